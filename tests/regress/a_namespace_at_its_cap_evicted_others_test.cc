// SPDX-License-Identifier: Apache-2.0
//
// The bug: an append that its namespace's cap refused asked for room of the whole store, and other
// namespaces lost their KV for it: when what was over the cap waited in staging to be coalesced,
// and when it stood before others in a batch. Method: a namespace that loses nothing, full to the
// byte, beside one that may.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTokens = 32;

class ANamespaceAtItsCapEvictedOthers : public ::testing::Test {
 protected:
  void Open(const Options& options) {
    ASSERT_OK_ASSIGN(store_, world_->Open(options));
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
    ASSERT_OK(store_.SetNamespace("others", {.evict = Evict::kKv}));
    for (int i = 0; i < 4; ++i) {
      ASSERT_OK_ASSIGN(Branch other, store_.CreateBranch(id_, {.ns = "others"}));
      ASSERT_OK(AppendSome(other, model_, 0, kTokens));
      others_.push_back(other);
    }
  }
  void CheckOthers() {
    EXPECT_EQ(0u, store_.Metrics().evicted_bytes);
    for (const Branch& other : others_) EXPECT_TRUE(HasKv(other, model_, 0, kTokens));
  }
  uint64_t BytesOf(const std::string& ns) {
    const auto namespaces = store_.Namespaces();
    EXPECT_OK(namespaces);
    for (const NamespaceInfo& one : *namespaces) {
      if (one.name == ns) return one.bytes;
    }
    return 0;
  }

  const uint64_t position_bytes_ = WideModel().token_bytes() + sizeof(TokenId);
  const ModelSpec model_ = WideModel();
  const std::unique_ptr<TestWorld> world_ = TestWorld::Make("memory");
  Store store_;
  ModelId id_{};
  std::vector<Branch> others_;
};

TEST_F(ANamespaceAtItsCapEvictedOthers, WhenSomethingWaitsToBeJoined) {
  Options options = world_->options();
  options.delta_batch_tokens = 8;
  options.delta_batch_wait_ns = 60'000'000'000;
  Open(options);
  ASSERT_OK(
      store_.SetNamespace("full", {.max_bytes = 2 * position_bytes_, .evict = Evict::kNever}));
  ASSERT_OK_ASSIGN(Branch waiting, store_.CreateBranch(id_, {.ns = "full"}));
  ASSERT_OK_ASSIGN(Branch refused, store_.CreateBranch(id_, {.ns = "full"}));
  KvSet kv(model_, Layout::kContiguous, 0, 1);
  const auto ticket = waiting.Append({.tokens = Tokens(1), .kv = kv.View(0, 1)});
  ASSERT_OK(ticket);
  EXPECT_FAILS(AppendSome(refused, model_, 0, 2), StatusCode::kNoSpace, "namespace \"full\"");
  CheckOthers();
}

TEST_F(ANamespaceAtItsCapEvictedOthers, WhenABatchAppendsElsewhereToo) {
  Open(world_->options());
  ASSERT_OK(store_.SetNamespace("full", {.max_bytes = position_bytes_, .evict = Evict::kNever}));
  ASSERT_OK_ASSIGN(Branch refused, store_.CreateBranch(id_, {.ns = "full"}));
  ASSERT_OK_ASSIGN(Branch last, store_.CreateBranch(id_, {.ns = "others"}));
  KvSet kv(model_, Layout::kContiguous, 0, 2);
  const std::vector<TokenId> tokens = Tokens(2);
  WriteBatch batch;
  batch.Append(refused, {.tokens = tokens, .kv = kv.View(0, 2)});
  batch.Append(last, {.tokens = tokens, .kv = kv.View(0, 2)});
  EXPECT_FAILS(store_.Write(batch), StatusCode::kNoSpace, "namespace \"full\"");
  ASSERT_OK(store_.Compact());
  CheckOthers();
}

TEST_F(ANamespaceAtItsCapEvictedOthers, ABatchThatIsLargeElsewhereWaitsForRoom) {
  Open(world_->options());
  ASSERT_OK(store_.SetNamespace("small", {.max_bytes = 3 * position_bytes_, .evict = Evict::kKv}));
  ASSERT_OK_ASSIGN(Branch first, store_.CreateBranch(id_, {.ns = "small"}));
  ASSERT_OK(AppendSome(first, model_, 0, 2));
  ASSERT_OK_ASSIGN(Branch second, store_.CreateBranch(id_, {.ns = "small"}));
  ASSERT_OK_ASSIGN(Branch large, store_.CreateBranch(id_, {.ns = "unbounded"}));
  KvSet kv(model_, Layout::kContiguous, 0, 8);
  const std::vector<TokenId> tokens = Tokens(8);
  WriteBatch batch;
  batch.Append(large, {.tokens = tokens, .kv = kv.View(0, 8)});
  batch.Append(second, {.tokens = std::span(tokens).first(2), .kv = kv.View(0, 2)});
  EXPECT_FAILS(store_.Write(batch), StatusCode::kBusy, "room is being made");
  ASSERT_OK(store_.Compact());
  EXPECT_OK(store_.Write(batch));
  for (const Branch& other : others_) EXPECT_TRUE(HasKv(other, model_, 0, kTokens));
}

}  // namespace
}  // namespace cairn::testing
