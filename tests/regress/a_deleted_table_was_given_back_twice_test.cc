// SPDX-License-Identifier: Apache-2.0
//
// The bug: when the directory could not be synced after a table had been removed, on a disk that
// was nearly full, the next round of the space thread removed it once more and returned its bytes a
// second time: more was written than max_bytes allows. Now the bytes of a removed table are
// returned once, and the failure is reported.
#include <string>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(ADeletedTableWasGivenBackTwice, ItIsReturnedOnce) {
  const io::SimWorld machine = io::MakeSimWorld(1, {.capacity_bytes = 10 << 20});
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  std::vector<Branch> branches;
  for (uint64_t b = 0; b < 4; ++b) {
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id));
    for (uint64_t at = 0; at < 40; at += 4) {
      ASSERT_OK(AppendSome(branch, model, at, 4, kSeed + b, Durability::kPower));
    }
    branches.push_back(std::move(branch));
  }
  ASSERT_OK(store.Compact());
  const uint64_t tables = store.Metrics().tables;
  ASSERT_OK(store.PauseBackground());
  for (Branch& branch : branches) ASSERT_OK(branch.Drop(Durability::kPower));
  {
    // So little is free that removed blocks are waited for.
    ASSERT_OK_ASSIGN(const io::DiskSpace space, machine.disk->Space("/store"));
    ASSERT_OK_ASSIGN(const auto other,
                     machine.disk->Open("/other", {.write = true, .create = true}));
    ASSERT_OK(other->Allocate(0, space.free_bytes - (64 << 10)));
  }
  bool removed = false;
  machine.disk->AddFault(
      {.when =
           [&](const io::SimOperation& one) {
             removed |= one.op == io::SimOp::kRemove && one.path.starts_with("/store/tables/");
             return removed && one.op == io::SimOp::kSyncDirectory && one.path == "/store/tables";
           },
       .error = EIO});
  ASSERT_OK(store.ResumeBackground());
  EXPECT_FAILS(store.Compact(), StatusCode::kIoError, "fsync /store/tables");
  for (int round = 0; round < 3; ++round) EXPECT_OK(store.Compact());
  EXPECT_LT(store.Metrics().tables, tables);
  uint64_t bytes = 0;
  for (const std::string& file : machine.disk->Files()) {
    if (file == "other") continue;
    ASSERT_OK_ASSIGN(const auto content, machine.disk->ReadRaw(file));
    bytes += content.size();
  }
  EXPECT_GE(store.Metrics().physical_bytes, bytes);
}

}  // namespace
}  // namespace cairn::testing
