// SPDX-License-Identifier: Apache-2.0
//
// The bug: a large append that the cap of its namespace refused wrote all its parts into the log
// first. Giving these back counted as room that had been made, so AppendSync wrote them again, and
// again, and never returned.
// Method: a namespace of which nothing may be evicted, in a store that gives its log back, and
// appends that are larger than a record.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kCount = 150;  // Positions; 1.2 MB.
constexpr uint64_t kLimitNs = 30'000'000'000;

class ALargeAppendBeyondAQuota : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    Options options = TinyOptions();
    options.max_bytes = 5 << 20;
    options.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK(store_.SetNamespace(
        "full",
        {.max_bytes = kCount * (model_.token_bytes() + sizeof(TokenId)), .evict = Evict::kKv}));
    ASSERT_OK_ASSIGN(Branch pinned, store_.CreateBranch(id, {.ns = "full", .keep = {true}}));
    ASSERT_OK(AppendSome(pinned, model_, 0, 16));
    ASSERT_OK_ASSIGN(branch_, store_.CreateBranch(id, {.ns = "full"}));
    kv_.Write(kSeed, 0, kCount);
    written_before_ = store_.Metrics().log_bytes_written;
  }
  void CheckNothingWasWritten() {
    EXPECT_LT(store_.Metrics().log_bytes_written, written_before_ + kCount * model_.token_bytes());
    EXPECT_EQ(0U, *branch_.length());
    EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
  }

  const io::SimWorld machine_ = io::MakeSimWorld(GetParam());
  const ModelSpec model_ = WideModel();
  const std::vector<TokenId> tokens_ = Tokens(kCount);
  KvSet kv_{model_, Layout::kContiguous, 0, kCount};
  Store store_;
  Branch branch_;
  uint64_t written_before_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Seeds, ALargeAppendBeyondAQuota, ::testing::Range<uint64_t>(1, 7));

TEST_P(ALargeAppendBeyondAQuota, IsRefused) {
  EXPECT_FAILS(
      branch_.AppendSync(MakeDelta(tokens_, kv_.View(0, kCount)), {.timeout_ns = kLimitNs}),
      StatusCode::kNoSpace, "namespace \"full\"");
  CheckNothingWasWritten();
}

TEST_P(ALargeAppendBeyondAQuota, IsRefusedToAFill) {
  ASSERT_OK(branch_.AppendSync(MakeDelta(tokens_)));
  EXPECT_FAILS(branch_.Fill(*kv_.View(0, kCount), {.timeout_ns = kLimitNs}), StatusCode::kNoSpace,
               "namespace \"full\"");
  EXPECT_EQ(0U, branch_.Info()->kv_lengths[0]);
  EXPECT_LT(store_.Metrics().log_bytes_written, written_before_ + kCount * model_.token_bytes());
}

}  // namespace
}  // namespace cairn::testing
