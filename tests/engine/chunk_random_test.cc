// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever branches do (appends of what others have, forks, rewinds, drops, approximate
// KV, KV that comes later, seals, restarts), every position of a prompt that lies in a run of 47
// ids that some branch has with exact KV lies in a match, and every match is true. A plan of the
// prompt loads only ids that are equal, its similar segments are as similar as they must be, and a
// restore of it brings the KV that they have. Method: drawn histories against a naive comparison of
// all with all. No text comes more than seven times, so eight entries of each fingerprint are all
// there are.
#include <random>

#include "tests/engine/blend_test.h"
#include "tests/support/test_seed.h"

namespace cairn::testing {
namespace {

struct Known {
  Branch branch;
  std::vector<TokenId> ids;
  std::vector<bool> exact;  // False: approximate, or without KV.
};

class ChunkRandomTest : public BlendTest {
 protected:
  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }
  Known& Any() { return known_[Below(known_.size())]; }

  // Takes it from a pool, so that many have it, or makes what nobody has.
  std::vector<TokenId> NextText() {
    if (const size_t pick = Below(kTexts + 3); pick < kTexts && uses_[pick] < 7) {
      ++uses_[pick];
      const std::vector<TokenId> whole = Tokens(100 + 70 * pick, 900 + pick);
      const size_t begin = Below(40);
      return Part(whole, begin, whole.size() - Below(40));
    }
    return Tokens(1 + Below(120), 10'000 + fresh_++);
  }
  void Create() {
    ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = {}, .ns = "docs"}));
    known_.push_back({branch, {}, {}});
  }
  void Grow(Known* one) {
    const std::vector<TokenId> text = NextText();
    const size_t kind = Below(8);
    const bool all_kv =
        std::find(one->exact.begin(), one->exact.end(), false) == one->exact.end() ||
        approximate_.contains(one->branch.id());
    if (kind == 0 && all_kv) {
      ASSERT_OK(one->branch.AppendSync(MakeDelta(text)));
      one->ids.insert(one->ids.end(), text.begin(), text.end());
      const size_t before = one->exact.size();
      one->exact.resize(one->ids.size(), false);
      Chunks(Part(text, 0, std::min<size_t>(text.size(), 60)));  // Indexed without.
      KvSet kv(spec_, Layout::kContiguous, before, text.size());
      kv.Write(kSeed, before, one->ids.size());
      ASSERT_OK(one->branch.Fill(*kv.View(before, text.size())));
      std::fill(one->exact.begin() + static_cast<ptrdiff_t>(before), one->exact.end(), true);
      return;
    }
    const bool exact = kind != 1;
    if (!exact) approximate_.insert(one->branch.id());
    ASSERT_OK(Append(one->branch, text, kSeed, {}, exact));
    one->ids.insert(one->ids.end(), text.begin(), text.end());
    one->exact.resize(one->ids.size(), exact);
  }
  void Step() {
    switch (Below(12)) {
      case 0: return Create();
      case 1: {
        const Known& from = Any();
        const size_t at = Below(from.ids.size() + 1);
        ASSERT_OK_ASSIGN(Branch fork, from.branch.ForkAt(at, {.name = {}, .ns = "docs"}));
        if (approximate_.contains(from.branch.id())) approximate_.insert(fork.id());
        known_.push_back({fork,
                          Part(from.ids, 0, at),
                          {from.exact.begin(), from.exact.begin() + static_cast<ptrdiff_t>(at)}});
        return;
      }
      case 2: {
        Known& one = Any();
        const size_t length = Below(one.ids.size() + 1);
        ASSERT_OK(one.branch.Rewind(length));
        one.ids.resize(length);
        one.exact.resize(length);
        return;
      }
      case 3:
        if (known_.size() < 4) return;
        std::swap(Any(), known_.back());
        ASSERT_OK(known_.back().branch.Drop());
        known_.pop_back();
        return;
      case 4: ASSERT_OK(store_.Compact()); return;
      case 5:
        SealAndReopen();
        for (Known& one : known_) one.branch = Branch(store_.core(), one.branch.id());
        return;
      default: return Grow(&Any());
    }
  }

  std::vector<TokenId> Prompt() {
    std::vector<std::vector<TokenId>> parts;
    for (size_t i = 0; i < 6; ++i) {
      const Known& one = Any();
      const size_t begin = Below(one.ids.size() + 1);
      parts.push_back(Part(one.ids, begin, begin + Below(one.ids.size() - begin + 1)));
      if (Below(2) == 0) parts.push_back(Tokens(Below(30), 50'000 + fresh_++));
    }
    std::vector<TokenId> prompt = Joined(parts);
    for (size_t i = Below(8); i != 0 && !prompt.empty(); --i) ++prompt[Below(prompt.size())];
    return prompt;
  }
  void CheckPlan(const std::vector<TokenId>& prompt) {
    if (prompt.empty()) return;
    const BlendOptions options;
    const BlendPlan plan = PlanOf(prompt, options);
    EXPECT_TRUE(plan.complete);
    std::vector<bool> loaded(prompt.size(), false);
    for (const BlendStep& step : plan.steps) {
      std::fill(loaded.begin() + static_cast<ptrdiff_t>(step.begin),
                loaded.begin() + static_cast<ptrdiff_t>(step.end), step.loads);
    }
    for (const BlendSegment& segment : plan.segments) {
      if (segment.match == BlendMatch::kNone) continue;
      const uint64_t end = segment.source + (segment.end - segment.begin);
      ASSERT_OK_ASSIGN(const BranchId id, store_.core()->changes().ForkNode(
                                              segment.node, end, {.name = {}, .ns = "forks"}));
      Branch fork(store_.core(), id);
      ASSERT_OK_ASSIGN(const std::vector<TokenId> ids, fork.ReadTokens(segment.source, end));
      CheckSegment(prompt, segment, ids, loaded, options);
      EXPECT_OK(fork.Drop());
    }
    ExpectRestores(plan);
    loaded_ += plan.load_tokens;
  }
  static void CheckSegment(const std::vector<TokenId>& prompt, const BlendSegment& segment,
                           const std::vector<TokenId>& ids, const std::vector<bool>& loaded,
                           const BlendOptions& options) {
    std::vector<size_t> equal = {0};  // Before each id.
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t at = segment.begin + i;
      const bool same = ids[i] == prompt[at];
      EXPECT_TRUE(same || !loaded[at]) << "position " << at << " has another id";
      equal.push_back(equal.back() + (same ? 1 : 0));
    }
    const bool all = equal.back() == ids.size();
    EXPECT_EQ(all, segment.match != BlendMatch::kPartial);
    EXPECT_TRUE(ids.front() == prompt[segment.begin] && ids.back() == prompt[segment.end - 1]);
    const size_t window = std::min<size_t>(options.chunk_tokens, ids.size());
    for (size_t end = window; end <= ids.size(); ++end) {
      EXPECT_GE(static_cast<double>(equal[end] - equal[end - window]),
                options.min_match_ratio * static_cast<double>(window));
    }
  }
  // Which positions lie in a run that a branch has.
  std::vector<bool> Naive(std::span<const TokenId> prompt) const {
    std::vector<bool> has(prompt.size(), false);
    for (const Known& one : known_) {
      std::vector<size_t> before(one.ids.size() + 1, 0);  // Run that ends there, of the row above.
      for (size_t at = 0; at < prompt.size(); ++at) {
        for (size_t there = one.ids.size(); there-- > 0;) {
          const bool same = one.exact[there] && one.ids[there] == prompt[at];
          before[there + 1] = same ? before[there] + 1 : 0;
          for (size_t i = 0; before[there + 1] >= engine::kChunkRun && i < engine::kChunkRun; ++i) {
            has[at - i] = true;
          }
        }
      }
    }
    return has;
  }
  void Compare() {
    const std::vector<TokenId> prompt = Prompt();
    // A drop is followed by trims, which would take what was just found.
    ASSERT_OK(store_.PauseBackground());
    std::vector<bool> found(prompt.size(), false);
    for (const ChunkMatch& match : UntilComplete(prompt).matches) {
      std::fill(found.begin() + static_cast<ptrdiff_t>(match.begin),
                found.begin() + static_cast<ptrdiff_t>(match.end), true);
    }
    CheckPlan(prompt);
    ASSERT_OK(store_.ResumeBackground());
    const std::vector<bool> naive = Naive(prompt);
    for (size_t at = 0; at < prompt.size(); ++at) {
      ASSERT_TRUE(found[at] || !naive[at]) << "position " << at << " of " << prompt.size();
      matched_ += found[at];
    }
  }

  static constexpr size_t kTexts = 6;
  std::mt19937_64 random_{TestSeed()};
  std::vector<Known> known_;
  std::set<BranchId> approximate_;
  std::array<int, kTexts> uses_{};
  uint64_t fresh_ = 0, matched_ = 0, loaded_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Worlds, ChunkRandomTest, ::testing::Values("simulated"), NameOf);

TEST_P(ChunkRandomTest, HistoriesAgreeWithANaiveSearch) {
  for (int history = 0; history < 3; ++history) {
    SCOPED_TRACE("history " + std::to_string(history));
    known_.clear();
    uses_ = {};
    ASSERT_OK(store_.Close());
    ASSERT_NO_FATAL_FAILURE(BlendTest::SetUp());
    Create();
    for (int step = 0; step < 60; ++step) {
      ASSERT_NO_FATAL_FAILURE(Step()) << "step " << step;
      if (step % 6 != 5) continue;
      ASSERT_NO_FATAL_FAILURE(Compare()) << "after step " << step;
    }
  }
  EXPECT_GT(matched_, 3'000u) << "it compares little";
  EXPECT_GT(loaded_, 1'000u) << "plans load little";
}

}  // namespace
}  // namespace cairn::testing
