// SPDX-License-Identifier: Apache-2.0
//
// Property: at most the given number of files stay open, the most recently used; who holds one
// keeps it; where the system refuses one, what nobody holds is closed, and others are waited for.
// Method: on the simulated disk, which fails chosen operations.
#include "base/io/file_cache.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "sim/world.h"
#include "tests/support/status.h"

namespace cairn::io {
namespace {

class FileCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 5; ++i) {
      auto made = disk_->Open(Path(i), {.write = true, .create = true});
      ASSERT_OK(made);
      ASSERT_OK((*made)->Truncate(kBlockBytes));
    }
  }
  static std::string Path(int i) { return "/f" + std::to_string(i); }
  Result<std::shared_ptr<File>> Open(int i, bool waits = true) {
    return cache_.Open(*disk_, static_cast<uint64_t>(i), Path(i), waits);
  }
  // From now on opening fails, so often.
  void Refuse(int times) {
    refusals_ = times;
    disk_->ClearFaults();
    disk_->AddFault({.when =
                         [this](const SimOperation& operation) {
                           return operation.op == SimOp::kOpen && refusals_ > 0 && refusals_-- > 0;
                         },
                     .error = EMFILE,
                     .persistent = true});
  }

  SimWorld machine_ = MakeSimWorld(1);
  SimDisk* const disk_ = machine_.disk.get();
  FileCache cache_{*machine_.world().scheduler, 3};
  int refusals_ = 0;
};

TEST_F(FileCacheTest, KeepsThoseUsedLast) {
  for (int i = 0; i < 3; ++i) ASSERT_OK(Open(i));
  ASSERT_OK_ASSIGN(const std::shared_ptr<File> first, Open(0));
  ASSERT_OK(Open(3));
  EXPECT_EQ(3U, cache_.size());
  Refuse(1 << 20);
  EXPECT_OK(Open(0, false));
  EXPECT_OK(Open(2, false));
  EXPECT_OK(Open(3, false));
  EXPECT_FAILS(Open(1, false), StatusCode::kIoError, "EMFILE") << "was not used for longest";
}

TEST_F(FileCacheTest, ClosesWhatNobodyHoldsWhenTheSystemRefusesOne) {
  ASSERT_OK_ASSIGN(const std::shared_ptr<File> held, Open(0));
  ASSERT_OK(Open(1));
  ASSERT_OK(Open(2));
  Refuse(1);
  EXPECT_OK(Open(3, false));
  EXPECT_EQ(2U, cache_.size()) << "the one held, and the new one";
  EXPECT_OK(held->Size());
}

TEST_F(FileCacheTest, WaitsForWhatOthersHoldIfToldTo) {
  ASSERT_OK_ASSIGN(const std::shared_ptr<File> held, Open(0));
  Refuse(5);
  EXPECT_FAILS(Open(1, false), StatusCode::kIoError, "EMFILE");
  EXPECT_OK(Open(1));
  Refuse(1 << 20);
  EXPECT_FAILS(Open(2), StatusCode::kIoError, "EMFILE") << "not for ever";
}

TEST_F(FileCacheTest, ForgetsWhatIsToBeDeleted) {
  ASSERT_OK_ASSIGN(const std::shared_ptr<File> held, Open(0));
  cache_.Forget(0);
  cache_.Forget(4);
  EXPECT_EQ(0U, cache_.size());
  ASSERT_OK(disk_->Remove(Path(0)));
  EXPECT_FAILS(Open(0), StatusCode::kNotFound, "/f0");
}

}  // namespace
}  // namespace cairn::io
