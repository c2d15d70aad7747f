// SPDX-License-Identifier: Apache-2.0
//
// The bug: nodes that were being sealed when the log failed were given back to the tree that had
// been replayed meanwhile, which did not know of their use. So it let go of nodes of branches that
// it had in memory, and restores of those reported success and left out their KV.
// Method: a store that keeps as little of the tree in memory as it can, sealed on a simulated
// machine. Some write of a table takes long, and the log fails meanwhile; all is read then, and
// when that sealing has ended.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr int kBranches = 8;
constexpr uint64_t kTokens = 24;
constexpr uint64_t kSlowNs = 1'000'000'000;

bool Writes(const io::SimOperation& operation, std::string_view where) {
  const bool write = operation.op == io::SimOp::kWrite || operation.op == io::SimOp::kDurableWrite;
  return write && operation.path.find(where) != std::string::npos;
}

// The log fails while the `nth` write of a table is under way. Whether there were as many.
void FailAt(uint64_t nth, bool* failed) {
  const io::SimWorld machine = io::MakeSimWorld(nth);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.tree_memory_bytes = 0;
  // A branch that was read is kept, so that the index learns of it.
  options.evict = Evict::kKv;
  options.replay_records_max = 2;  // So that the index has what is to be sealed.
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open("store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  std::vector<Branch> branches;
  for (int i = 0; i < kBranches; ++i) {
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id));
    ASSERT_OK(AppendSome(branch, model, 0, kTokens));
    branches.push_back(branch);
  }
  uint64_t writes = 0;
  machine.disk->set_on_operation([&](const io::SimOperation& operation) {
    if (!Writes(operation, "/tables/") || ++writes != nth) return;
    io::SimFault slow;
    slow.at_index = operation.index;
    slow.delay_ns = kSlowNs;
    machine.disk->AddFault(std::move(slow));
    io::SimFault fault;
    fault.when = [](const io::SimOperation& one) { return Writes(one, "/log/"); };
    fault.error = EIO;
    fault.persistent = true;
    machine.disk->AddFault(std::move(fault));
  });
  const auto expect_all = [&] {
    for (const Branch& branch : branches) {
      EXPECT_FAILS(store.FindBranch("nobody"), StatusCode::kNotFound);  // Makes room.
      EXPECT_TRUE(HasKv(branch, model, 0, kTokens));
    }
  };
  auto compacts = machine.scheduler->StartThread("compacts", [&] { (void)store.Compact(); });
  for (int i = 0; i < 1000 && store.CreateBranch(id).ok(); ++i) {
    machine.scheduler->Sleep(100'000);
  }
  machine.scheduler->Sleep(kSlowNs / 10);  // It is rolled back.
  *failed = !store.poisoned().ok();
  if (*failed) expect_all();
  compacts.reset();
  expect_all();
  machine.disk->set_on_operation({});
}

TEST(KvWasLeftOutAfterTheLogFailed, WhereItWasBeingSealed) {
  int all = 0;
  bool failed = true;
  for (uint64_t nth = 1; failed && nth <= 200 && !HasFailure(); ++nth) {
    SCOPED_TRACE("from write " + std::to_string(nth));
    FailAt(nth, &failed);
    all += failed;
  }
  EXPECT_GT(all, 10);
}

}  // namespace
}  // namespace cairn::testing
