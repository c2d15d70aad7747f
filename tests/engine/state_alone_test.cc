// SPDX-License-Identifier: Apache-2.0
//
// Property: a state may be set without a token, at length 0 too; it replaces what the branch has
// there and nothing that another branch has, and it comes back along every path that ends there or
// goes on. Method: each way out of that position alone; then random appends, forks, rewinds, seals
// and openings, against a map of what every branch should have.
#include <cstring>
#include <map>
#include <random>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

AppMetadata Metadata(uint64_t value) {
  AppMetadata metadata;
  metadata.bytes.resize(sizeof(value));
  std::memcpy(metadata.bytes.data(), &value, sizeof(value));
  return metadata;
}

SamplerState Sampler(uint64_t value) {
  SamplerState sampler;
  sampler.generator = GeneratorKind::kPhilox;
  sampler.philox_offset = value;
  return sampler;
}

Status Set(Branch& branch, uint64_t value, bool both = false) {
  const AppMetadata metadata = Metadata(value);
  const SamplerState sampler = Sampler(value);
  Delta delta;
  delta.metadata = &metadata;
  if (both) delta.sampler = &sampler;
  return branch.AppendSync(delta).status();
}

Status Grow(Branch& branch, uint64_t count) {
  return branch.AppendSync(MakeDelta(Tokens(count))).status();
}

// The value, or what was found instead.
std::string At(const Branch& branch, uint64_t position) {
  const auto found = branch.MetadataAt(position);
  if (!found.ok()) return std::string(StatusCodeName(found.status().code()));
  uint64_t value = 0;
  std::memcpy(&value, found->metadata->bytes.data(), sizeof(value));
  return std::to_string(value) + "@" + std::to_string(found->position);
}

class StateAloneTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    model_ = Register(TinyModel());
    chat_ = Create(model_, "chat");
  }
  void OpenAgain() {
    Reopen();
    chat_ = Find("chat");
  }
  // All of it goes into tables, and out of the log.
  void Seal() {
    ASSERT_OK(store_.Compact());
    ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages[0].what;
  }
  ModelId model_{};
  Branch chat_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, StateAloneTest, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(StateAloneTest, BeforeTheFirstToken) {
  EXPECT_EQ("NotFound", At(chat_, 0));
  ASSERT_OK(Set(chat_, 1, /*both=*/true));
  EXPECT_EQ(0u, *chat_.length());
  EXPECT_EQ("1@0", At(chat_, 0));
  EXPECT_EQ(Sampler(1), chat_.SamplerAt(0)->sampler);
  ASSERT_OK(Set(chat_, 2));
  EXPECT_EQ("2@0", At(chat_, 0));
  EXPECT_EQ(Sampler(1), chat_.SamplerAt(0)->sampler) << "metadata alone replaces metadata alone";
  OpenAgain();
  EXPECT_EQ("2@0", At(chat_, 0));
  Seal();
  EXPECT_EQ("2@0", At(chat_, 0));
  ASSERT_OK_ASSIGN(Branch fork, chat_.ForkAt(0, {.name = "fork"}));
  EXPECT_EQ("2@0", At(fork, 0));
  ASSERT_OK(Grow(chat_, 3));
  EXPECT_EQ("2@0", At(chat_, 3));
  ASSERT_OK(chat_.Rewind(0));
  OpenAgain();
  EXPECT_EQ("2@0", At(chat_, 0));
  EXPECT_EQ("2@0", At(Find("fork"), 0));
  Seal();
  EXPECT_EQ("2@0", At(chat_, 0));
}

TEST_P(StateAloneTest, OthersKeepWhatTheyHave) {
  ASSERT_OK(Grow(chat_, 4));
  ASSERT_OK(Set(chat_, 1));
  ASSERT_OK_ASSIGN(Branch twin, chat_.ForkAt(4, {.name = "twin"}));
  ASSERT_OK_ASSIGN(Branch child, chat_.ForkAt(4, {.name = "child"}));
  ASSERT_OK(Grow(child, 2));
  ASSERT_OK(Set(chat_, 2));
  ASSERT_OK(Set(twin, 3));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ("2@4", At(chat_, 4));
    EXPECT_EQ("3@4", At(twin, 4));
    EXPECT_EQ("1@4", At(child, 6));
    ASSERT_OK_ASSIGN(Branch late, chat_.ForkAt(4, {}));
    EXPECT_EQ("2@4", At(late, 4)) << "a fork at the place of the state has it";
    ASSERT_OK(Grow(late, 1));
    EXPECT_EQ("2@4", At(late, 5));
    ASSERT_OK(late.Drop());
    if (round == 0) OpenAgain();
    if (round == 1) Seal();
    twin = Find("twin");
    child = Find("child");
  }
  // When the others are gone, what they had goes, and the nodes are joined.
  ASSERT_OK(twin.Drop());
  ASSERT_OK(child.Drop());
  ASSERT_OK(Grow(chat_, 1));
  Seal();
  OpenAgain();
  EXPECT_EQ("2@4", At(chat_, 5));
}

TEST_P(StateAloneTest, WhatHoldsNothingIsRefused) {
  ASSERT_OK(Grow(chat_, 4));
  const ModelSpec spec = TinyModel();
  KvSet kv(spec, Layout::kContiguous, 0, 4);
  const AppMetadata metadata = Metadata(1);
  Delta delta;
  EXPECT_FAILS(chat_.AppendSync(delta), StatusCode::kInvalidArgument, "or a state alone");
  delta.metadata = &metadata;
  delta.kv = kv.View(0, 4);
  EXPECT_FAILS(chat_.AppendSync(delta), StatusCode::kInvalidArgument, "Fill attaches KV alone");
  delta.kv = kv.View(0, 0);
  EXPECT_OK(chat_.AppendSync(delta));
  delta.kv = nullptr;
  const ContentSpan span{.begin = 3, .end = 4};
  delta.spans = std::span(&span, 1);
  EXPECT_FAILS(chat_.AppendSync(delta), StatusCode::kInvalidArgument, "content span");
  EXPECT_FAILS(chat_.AppendSync({.tokens = {}, .metadata = &metadata}, {.expected_length = 3}),
               StatusCode::kConflict, "4 tokens");
}

TEST_P(StateAloneTest, InABatchAndWhileAppendsAreCoalesced) {
  const AppMetadata first = Metadata(1), second = Metadata(2);
  WriteBatch batch;
  const int made = batch.Create(model_, {.name = "made"});
  Delta delta;
  delta.metadata = &first;
  batch.Append(made, delta);
  delta.metadata = &second;
  batch.Append(made, delta);
  const int fork = batch.Fork(made, 0, {.name = "fork"});
  delta.metadata = &first;
  batch.Append(fork, delta);
  ASSERT_OK_ASSIGN(auto result, store_.Write(batch));
  ASSERT_OK(result.ticket.Wait());
  OpenAgain();
  EXPECT_EQ("2@0", At(Find("made"), 0));
  EXPECT_EQ("1@0", At(Find("fork"), 0));

  Options options = world_->options();
  options.delta_batch_tokens = 8;
  Reopen(options);
  chat_ = Find("chat");
  const std::vector<TokenId> token = Tokens(1);
  ASSERT_OK_ASSIGN(Ticket coalesced, chat_.Append(MakeDelta(token)));
  delta.metadata = &second;
  ASSERT_OK_ASSIGN(Ticket state, chat_.Append(delta));
  ASSERT_OK(coalesced.Wait());
  ASSERT_OK(state.Wait());
  EXPECT_EQ("2@1", At(chat_, 1));
}

// The state of a branch at each of its positions.
struct Expected {
  uint64_t length = 0;
  std::map<uint64_t, uint64_t> states;
};

TEST_P(StateAloneTest, AtRandom) {
  std::mt19937_64 random(20'25);
  const auto below = [&](uint64_t count) { return random() % count; };
  std::map<std::string, Expected> all = {{"chat", {}}};
  uint64_t next = 1;
  for (int step = 0; step < 400; ++step) {
    auto chosen = all.begin();
    std::advance(chosen, below(all.size()));
    Branch branch = Find(chosen->first);
    Expected& expected = chosen->second;
    const uint64_t position = below(expected.length + 1);
    const uint64_t what = below(100);
    if (what < 35) {
      ASSERT_OK(Set(branch, next));
      expected.states[expected.length] = next++;
    } else if (what < 55) {
      const uint64_t count = 1 + below(3);
      ASSERT_OK(Grow(branch, count));
      expected.length += count;
    } else if (what < 75 && all.size() < 8) {
      const std::string name = "b" + std::to_string(next++);
      const uint64_t at = below(2) == 0 ? expected.length : position;
      ASSERT_OK(branch.ForkAt(at, {.name = name}));
      Expected fork = expected;
      fork.length = at;
      fork.states.erase(fork.states.upper_bound(at), fork.states.end());
      all[name] = fork;
    } else if (what < 88) {
      ASSERT_OK(branch.Rewind(position));
      expected.length = position;
      expected.states.erase(expected.states.upper_bound(position), expected.states.end());
    } else if (what < 92 && all.size() > 1) {
      ASSERT_OK(branch.Drop());
      all.erase(chosen);
    } else if (what < 96) {
      ASSERT_OK(store_.Compact());
    } else {
      Reopen();
    }
    for (const auto& [name, want] : all) {
      const Branch found = Find(name);
      ASSERT_EQ(want.length, *found.length());
      for (uint64_t at = 0; at <= want.length; ++at) {
        const auto state = want.states.upper_bound(at);
        const std::string text = state == want.states.begin()
                                     ? "NotFound"
                                     : std::to_string(std::prev(state)->second) + "@" +
                                           std::to_string(std::prev(state)->first);
        ASSERT_EQ(text, At(found, at)) << "step " << step << ", " << name << " at " << at;
      }
    }
  }
  ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty()) << report.damages[0].what;
}

}  // namespace
}  // namespace cairn::testing
