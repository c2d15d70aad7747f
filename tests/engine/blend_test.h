// SPDX-License-Identifier: Apache-2.0
//
// Plans of prompts that are made of what branches hold, and what their restores bring.
#pragma once

#include <string>
#include <vector>

#include "base/codec/kv_copy.h"
#include "base/codec/rotary.h"
#include "tests/engine/chunk_test.h"

namespace cairn::testing {

// "-77 f677@0": nothing up to position 77, then full up to 677, from position 0 of its source on.
inline std::string SegmentsOf(const BlendPlan& plan) {
  std::string text;
  for (const BlendSegment& segment : plan.segments) {
    if (!text.empty()) text += ' ';
    const bool none = segment.match == BlendMatch::kNone;
    text += none                                      ? '-'
            : BlendMatchName(segment.match)[1] == 'r' ? 'p'
                                                      : BlendMatchName(segment.match)[0];
    if (segment.match == BlendMatch::kPartial) text.back() = '~';
    text += std::to_string(segment.end);
    if (!none) text += '@' + std::to_string(segment.source);
  }
  return text;
}
// "C93 L675 C767": computed up to position 93, loaded up to 675, ...
inline std::string StepsOf(const BlendPlan& plan) {
  std::string text;
  for (const BlendStep& step : plan.steps) {
    if (!text.empty()) text += ' ';
    text += (step.loads ? 'L' : 'C') + std::to_string(step.end);
  }
  return text;
}

class BlendTest : public ChunkTest {
 protected:
  void SetUp() override {
    spec_.groups[0].inv_freq = RotaryFrequencies(4, 10'000.0);
    spec_.groups[0].planes[1].rotary.state = RotaryState::kNone;
    ChunkTest::SetUp();
  }
  BlendPlan PlanOf(const PrefixQuery& query, const BlendOptions& options = {}) {
    const auto plan = store_.PlanBlend(query, options);
    EXPECT_OK(plan);
    if (!plan.ok()) return {};
    EXPECT_EQ(query.tokens.size(), plan->tokens);
    ExpectCovers(plan->segments, plan->tokens);
    ExpectCovers(plan->steps, plan->tokens);
    EXPECT_FALSE(plan->steps.back().loads) << "the last token is computed";
    EXPECT_EQ(plan->tokens, plan->load_tokens + plan->compute_tokens);
    EXPECT_EQ(plan->load_bytes, plan->load_tokens * spec_.token_bytes());
    return *plan;
  }
  BlendPlan PlanOf(std::span<const TokenId> ids, const BlendOptions& options = {}) {
    return PlanOf(QueryOf(ids), options);
  }
  template <typename Parts>
  static void ExpectCovers(const Parts& parts, uint64_t tokens) {
    uint64_t at = 0;
    for (const auto& part : parts) {
      EXPECT_EQ(at, part.begin);
      EXPECT_LT(part.begin, part.end);
      at = part.end;
    }
    EXPECT_EQ(tokens, at);
  }
  // The restore of the plan writes what its steps load, turned, and nothing else.
  void ExpectRestores(const BlendPlan& plan, uint64_t begin = 0, uint64_t end = UINT64_MAX) {
    KvSet got(spec_, Layout::kNhd, 0, plan.tokens), want(spec_, Layout::kNhd, 0, plan.tokens);
    RestoreRequest request;
    request.begin = begin;
    request.end = end;
    request.into = got.View(0, plan.tokens);
    ASSERT_OK_ASSIGN(const RestoreResult result, store_.Restore(plan, request));
    uint64_t loaded = 0, approximate = 0;
    for (const BlendStep& step : plan.steps) {
      if (!step.loads) continue;
      for (uint64_t at = std::max(step.begin, begin); at < std::min(step.end, end); ++at) {
        const BlendSegment& segment = SegmentAt(plan, at);
        ++loaded;
        if (segment.match != BlendMatch::kPrefix) ++approximate;
        PutRow(at - segment.begin + segment.source, at, plan.position_correction, &want);
      }
    }
    EXPECT_TRUE(got == want);
    EXPECT_EQ(loaded * spec_.token_bytes(), result.bytes);
    EXPECT_EQ(approximate * spec_.token_bytes(), result.approximate_bytes);
  }
  static const BlendSegment& SegmentAt(const BlendPlan& plan, uint64_t position) {
    for (const BlendSegment& segment : plan.segments) {
      if (position < segment.end) return segment;
    }
    return plan.segments.back();
  }

 private:
  void PutRow(uint64_t source, uint64_t target, bool turns, KvSet* into) {
    KvSet row(spec_, Layout::kContiguous, source, 1);
    row.Write(kSeed, source, source + 1);
    const LayerGroup& group = spec_.groups[0];
    const GroupView from = row.pool(0).View(source, 1), to = into->pool(0).View(target, 1);
    for (uint32_t plane = 0; plane < group.planes.size(); ++plane) {
      const Plane& of = group.planes[plane];
      for (uint32_t layer = 0; layer < group.layers; ++layer) {
        std::vector<std::byte> bytes(SliceBytes(of, 1));
        GatherSlice(of, from.planes[plane], layer, PositionMap(from, source, 1), bytes.data());
        if (of.rotary.state == RotaryState::kApplied && turns && source != target) {
          const Rotation rotation = Rotation::Of(group, plane).value();
          std::vector<RotaryTurn> turn(rotation.pairs());
          rotation.Between({&source, 1}, {&target, 1}, turn);
          for (uint32_t head = 0; head < of.heads; ++head) {
            const auto one = std::span(bytes).subspan(size_t{head} * of.row_bytes, of.row_bytes);
            rotation.Turn(turn, one, one);
          }
        }
        ScatterSlice(of, to.planes[plane], layer, PositionMap(to, target, 1), bytes.data(), 1, 0);
      }
    }
  }
};

}  // namespace cairn::testing
