// SPDX-License-Identifier: Apache-2.0
//
// Property: a spec that makes no sense is refused by the name of its field; what a context comes to
// is what docs/shadow.md says, and what was published for the published setting.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/shadow/shadow_plan.h"

namespace cairn::shadow {
namespace {

std::string Refusal(const Status& status) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return std::string(status.message());
}

using Change = void (*)(ShadowSpec&);

TEST(ShadowPlan, ASpecIsRefusedByItsField) {
  EXPECT_TRUE(ValidateShadowSpec(ShadowSpec{}).ok());
  EXPECT_TRUE(ValidateShadowSpec(ShadowSpec::Published()).ok());
  const std::pair<const char*, Change> refused[] = {
      {"chunk_tokens", [](ShadowSpec& s) { s.chunk_tokens = 0; }},
      {"chunk_tokens", [](ShadowSpec& s) { s.chunk_tokens = 3; }},
      {"chunk_tokens", [](ShadowSpec& s) { s.chunk_tokens = 32; }},
      {"keys", [](ShadowSpec& s) { s.keys = ShadowKeys{0}; }},
      {"landmark_bits", [](ShadowSpec& s) { s.landmark_bits = 5; }},
      {"local_tokens", [](ShadowSpec& s) { s.local_tokens = 30; }},
      {"budget_tokens", [](ShadowSpec& s) { s.budget_tokens = 510; }},
      {"outlier_share", [](ShadowSpec& s) { s.outlier_share = -0.1; }},
      {"outlier_share", [](ShadowSpec& s) { s.outlier_share = 1.5; }},
      {"outlier_share", [](ShadowSpec& s) { s.outlier_share = std::nan(""); }},
      {"rank is given", [](ShadowSpec& s) { s.rank = 7; }},
      {"rank_energy is given", [](ShadowSpec& s) { s.rank_energy = 0.5; }},
      {"just one of rank and rank_energy", [](ShadowSpec& s) { s.keys = ShadowKeys::kLowRank; }},
      {"just one of rank and rank_energy",
       [](ShadowSpec& s) {
         s.keys = ShadowKeys::kLowRank;
         s.rank = 30;
         s.rank_energy = 0.9;
       }},
      {"rank_energy",
       [](ShadowSpec& s) {
         s.keys = ShadowKeys::kLowRank;
         s.rank_energy = 1.1;
       }},
  };
  for (const auto& [field, change] : refused) {
    ShadowSpec spec;
    change(spec);
    EXPECT_NE(Refusal(ValidateShadowSpec(spec)).find(field), std::string::npos)
        << field << ": " << ValidateShadowSpec(spec).ToString();
  }
}

TEST(ShadowPlan, AGroupIsRefusedByWhatItLacks) {
  const auto full = [] { return LayerGroup::FullAttention(2, 3, 64, Dtype::kBf16); };
  EXPECT_TRUE(ValidateShadowSpec(ShadowSpec{}, full()).ok());
  const std::pair<const char*, LayerGroup> refused[] = {
      {"retention", LayerGroup::SlidingWindow(2, 3, 64, Dtype::kBf16, 512, 0)},
      {"keys, then values", LayerGroup::Mla(2, 1024, 128, Dtype::kBf16)},
      {"bf16 or f16", LayerGroup::FullAttention(2, 3, 64, Dtype::kF32)},
      {"multiple of 8", LayerGroup::FullAttention(2, 3, 60, Dtype::kF16)},
  };
  for (const auto& [what, group] : refused) {
    EXPECT_NE(Refusal(ValidateShadowSpec(ShadowSpec{}, group)).find(what), std::string::npos)
        << ValidateShadowSpec(ShadowSpec{}, group).ToString();
  }
  LayerGroup uneven = full();
  uneven.planes[1].heads = 2;
  EXPECT_NE(Refusal(ValidateShadowSpec(ShadowSpec{}, uneven)).find("heads"), std::string::npos);
  ShadowSpec low_rank = ShadowSpec::Published(192);
  EXPECT_EQ(low_rank.rank, 30u);
  EXPECT_TRUE(ValidateShadowSpec(low_rank, full()).ok());
  low_rank.rank = 193;
  EXPECT_EQ(Refusal(ValidateShadowSpec(low_rank, full())),
            "shadow: group \"attention\": rank is 193, the keys of a layer have 192 channels");
}

TEST(ShadowPlan, TheDefaultAt4096) {
  const Result<ShadowPlan> plan = PlanShadow(ShadowSpec{}, 4096);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->covered, 4032u);  // 4064 down to a multiple of 64.
  EXPECT_EQ(plan->chunks, 1008u);
  EXPECT_EQ(plan->sink_chunks, 2u);
  EXPECT_EQ(plan->outlier_chunks, 4u);   // 3.024, rounded up.
  EXPECT_EQ(plan->budget_chunks, 128u);  // 512 tokens.
}

TEST(ShadowPlan, ShortContextsAreDense) {
  for (const uint64_t length : {0u, 1u, 31u, 32u, 95u}) {
    const Result<ShadowPlan> plan = PlanShadow(ShadowSpec{}, length);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->covered, 0u) << length;
    EXPECT_EQ(plan->chunks + plan->sink_chunks + plan->outlier_chunks + plan->budget_chunks, 0u);
  }
  EXPECT_EQ(PlanShadow(ShadowSpec{}, 96)->covered, 64u);
}

TEST(ShadowPlan, CountsStayWithinTheChunks) {
  ShadowSpec spec;
  spec.sink_tokens = 1000;
  EXPECT_EQ(PlanShadow(spec, 128)->sink_chunks, 16u);
  EXPECT_EQ(PlanShadow(spec, 128)->outlier_chunks, 0u);
  EXPECT_EQ(PlanShadow(spec, 128)->budget_chunks, 0u);
  spec.sink_tokens = 5;
  spec.outlier_chunks = 100;
  EXPECT_EQ(PlanShadow(spec, 128)->sink_chunks, 2u);
  EXPECT_EQ(PlanShadow(spec, 128)->outlier_chunks, 14u);
  spec.outlier_chunks = 0;
  spec.outlier_share = 0;
  spec.budget_tokens = 128;
  EXPECT_EQ(PlanShadow(spec, 128)->outlier_chunks, 0u);
  EXPECT_EQ(PlanShadow(spec, 128)->budget_chunks, 14u);
  spec.budget_tokens = 0;
  spec.chunk_tokens = 16;
  EXPECT_EQ(PlanShadow(spec, 96)->budget_chunks, 1u);  // An eighth would be none.
}

TEST(ShadowPlan, ABudgetOverTheContextIsRefused) {
  ShadowSpec spec;
  spec.budget_tokens = 4096;
  EXPECT_TRUE(PlanShadow(spec, 4096).ok());
  EXPECT_EQ(Refusal(PlanShadow(spec, 4095).status()),
            "shadow: budget_tokens is 4096, the context has 4095 tokens");
  EXPECT_NE(Refusal(PlanShadow(ShadowSpec{}, uint64_t{1} << 40).status()).find("too much"),
            std::string::npos);
}

// The published code has length / 8 - 4 chunks, rounded down to a multiple of 8.
TEST(ShadowPlan, ThePublishedSettingHasThePublishedChunks) {
  const ShadowSpec spec = ShadowSpec::Published();
  EXPECT_EQ(spec.rank, 160u);
  for (uint64_t length = 2048; length < 3000; ++length) {
    EXPECT_EQ(PlanShadow(spec, length)->chunks, (length / 8 - 4) / 8 * 8) << length;
  }
  const Result<ShadowPlan> plan = PlanShadow(spec, 131072);
  EXPECT_EQ(plan->chunks, 16376u);
  EXPECT_EQ(plan->outlier_chunks, 48u);
  EXPECT_EQ(plan->budget_chunks, 256u);
  EXPECT_EQ(131072 - plan->covered, 64u);
}

TEST(ShadowPlan, KeysHaveNames) {
  EXPECT_STREQ(ShadowKeysName(ShadowKeys::kExact), "exact");
  EXPECT_STREQ(ShadowKeysName(ShadowKeys::kInt8), "int8");
  EXPECT_STREQ(ShadowKeysName(ShadowKeys::kInt4), "int4");
  EXPECT_STREQ(ShadowKeysName(ShadowKeys::kLowRank), "low_rank");
}

}  // namespace
}  // namespace cairn::shadow
