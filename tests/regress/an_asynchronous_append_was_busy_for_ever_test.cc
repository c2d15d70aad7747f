// SPDX-License-Identifier: Apache-2.0
//
// The bug: an asynchronous append to a full store that may evict was kBusy, "room is being made",
// for ever, also where nothing was left that may go.
// Method: a store whose every branch is pinned, filled up; then one of them may go.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class AnAsynchronousAppendWasBusyForEver : public ::testing::Test {
 protected:
  void Start(uint64_t cap, uint64_t quota) {
    Options options = TinyOptions();
    options.max_bytes = cap;
    options.evict = Evict::kKv;
    options.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    ASSERT_OK(store_.SetNamespace("t", {.max_bytes = quota, .evict = Evict::kKv}));
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(branch_, store_.CreateBranch(id, {.ns = "t", .keep = {.pinned = true}}));
    ASSERT_OK_ASSIGN(other_, store_.CreateBranch(id, {.ns = "t", .keep = {.pinned = true}}));
    ASSERT_OK(AppendSome(other_, model_, 0, 32));
  }
  Status Append() {
    const uint64_t length = *branch_.length();
    KvSet kv(model_, Layout::kContiguous, length, 8);
    kv.Write(kSeed, length, length + 8);
    auto ticket = branch_.Append(MakeDelta(Tokens(8), kv.View(length, 8)));
    return ticket.ok() ? ticket->Wait() : ticket.status();
  }
  // Until it is `wanted`, or some seconds are over. kBusy is tried again.
  Status AppendUntil(StatusCode wanted) {
    Status status;
    for (int i = 0; i < 2000; ++i) {
      status = Append();
      if (status.code() == wanted) break;
      machine_.scheduler->Sleep(2'000'000);
    }
    return status;
  }
  void Check() {
    EXPECT_FAILS(AppendUntil(StatusCode::kNoSpace), StatusCode::kNoSpace);
    EXPECT_FAILS(AppendUntil(StatusCode::kNoSpace), StatusCode::kNoSpace) << "and again";
    EXPECT_TRUE(HasKv(branch_, model_, 0, *branch_.length()));
    EXPECT_TRUE(HasKv(other_, model_, 0, 32));
    ASSERT_OK(other_.SetKeep({}));
    EXPECT_OK(AppendUntil(StatusCode::kOk)) << "something may go";
    EXPECT_EQ((std::vector<KvHole>{{0, 0, 32}}), *other_.EvictedKv());
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  const ModelSpec model_ = WideModel();
  Store store_;
  Branch branch_, other_;
};

TEST_F(AnAsynchronousAppendWasBusyForEver, AtTheCapOfTheStore) {
  Start(4 << 20, UINT64_MAX);
  Check();
}

TEST_F(AnAsynchronousAppendWasBusyForEver, AtTheCapOfItsNamespace) {
  Start(UINT64_MAX, 1 << 20);
  Check();
}

}  // namespace
}  // namespace cairn::testing
