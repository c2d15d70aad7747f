// SPDX-License-Identifier: Apache-2.0
//
// The bug: a MANIFEST that was replaced is removed by who replaced it. Where a crash, or an error
// of the disk, came between, it stayed for ever, one for each such crash; and after an error the
// MANIFEST that had been written was taken for one that had not.
// Method: the store is found as it was before a MANIFEST was removed, then opened and closed; and
// one removal fails.
#include <algorithm>
#include <cerrno>

#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

bool RemovesManifest(const io::SimOperation& operation) {
  return operation.op == io::SimOp::kRemove && operation.path.find("MANIFEST") != std::string::npos;
}

std::ptrdiff_t Manifests(const io::SimDisk& disk) {
  const auto files = disk.Files();
  return std::count_if(files.begin(), files.end(), [](const std::string& path) {
    return path.find("MANIFEST") != std::string::npos;
  });
}

Result<Store> OpenOn(const io::SimWorld& machine) {
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  return Store::Open("store", options);
}

TEST(OldCheckpoints, OfACrashGoWhenTheStoreIsOpened) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  std::unique_ptr<io::SimDisk> found;
  machine.disk->set_on_operation([&](const io::SimOperation& operation) {
    if (RemovesManifest(operation)) {
      found = machine.disk->CrashClone(io::CrashChoice::KeepAll());
    }
  });
  {
    ASSERT_OK_ASSIGN(Store store, OpenOn(machine));
    ASSERT_OK(store.RegisterModel(TinyModel()));
    ASSERT_OK(store.Close());
  }
  ASSERT_NE(nullptr, found);
  ASSERT_EQ(2, Manifests(*found));
  const io::SimWorld again = io::CrashWorld(*found, io::CrashChoice::KeepAll());
  ASSERT_OK_ASSIGN(Store store, OpenOn(again));
  EXPECT_EQ(1, Manifests(*again.disk));
  ASSERT_OK(store.Close());
  EXPECT_EQ(1, Manifests(*again.disk));
}

TEST(OldCheckpoints, OneThatCannotBeRemovedIsNoError) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  ASSERT_OK_ASSIGN(Store store, OpenOn(machine));
  ASSERT_OK(store.RegisterModel(TinyModel()));
  machine.disk->AddFault({.when = RemovesManifest, .error = EIO, .persistent = true});
  EXPECT_OK(store.Close());
  EXPECT_GT(machine.disk->faults_struck(), 0u);
  machine.disk->ClearFaults();
  ASSERT_OK_ASSIGN(const Store again, OpenOn(machine));
  EXPECT_EQ(1, Manifests(*machine.disk));
}

}  // namespace
}  // namespace cairn::testing
