// SPDX-License-Identifier: Apache-2.0
//
// The bug: mkfs puts lost+found into the root of a new volume, so a store could not be made there,
// nor a copy. Method: a directory that holds one, empty and not.
#include <filesystem>
#include <fstream>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(TheRootOfAVolume, IsAPlaceForAStoreAndForACopy) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/volume", copy = directory.path() + "/another";
  for (const std::string& root : {path, copy}) {
    std::filesystem::create_directories(root + "/lost+found");
    std::ofstream(root + "/lost+found/#1234") << "what fsck has found";
  }
  ASSERT_OK_ASSIGN(Store store, Store::Open(path, TinyOptions()));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(WideModel()));
  ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK(AppendSome(branch, WideModel(), 0, 64));
  ASSERT_OK(store.Checkpoint(copy));
  ASSERT_OK(store.Close());
  for (const std::string& root : {path, copy}) {
    ASSERT_OK_ASSIGN(Store again, Store::Open(root, TinyOptions()));
    ASSERT_OK_ASSIGN(const Branch chat, again.FindBranch("chat"));
    EXPECT_TRUE(HasKv(chat, WideModel(), 0, 64));
    EXPECT_TRUE(std::filesystem::exists(root + "/lost+found/#1234"));
  }
}

}  // namespace
}  // namespace cairn::testing
