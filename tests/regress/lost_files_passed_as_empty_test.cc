// SPDX-License-Identifier: Apache-2.0
//
// The bugs: a log whose end was zeroed, whole segments of it, opened as a shorter one; a store
// without its manifest was created again, its log deleted, as were a stranger's files in a folder
// called "log"; salvage of a log with a cut segment kept nothing of what lay before. Method: files
// of a closed store on the simulated disk are removed and cut.
#include "sim/disk.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

class LostFilesPassedAsEmpty : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = TinyOptions();
    options_.world = std::make_shared<io::World>(sim_.world());
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
    for (int i = 0; i < 100; ++i) ASSERT_OK(chat.AppendSync({.tokens = Tokens(1000)}));
    ASSERT_OK(store.Close());
    options_.create_if_missing = false;
  }
  Result<Store> TryOpen() { return Store::Open("/store", options_); }
  std::vector<std::string> LogFiles() {
    std::vector<std::string> files;
    for (const std::string& path : sim_.disk->Files()) {
      if (path.starts_with("store/log/0")) files.push_back(path);
    }
    return files;
  }

  io::SimWorld sim_ = io::MakeSimWorld(1);
  Options options_;
};

TEST_F(LostFilesPassedAsEmpty, ALogThatEndsBeforeItsCheckpoint) {
  const std::vector<std::string> files = LogFiles();
  ASSERT_GE(files.size(), 3u);
  const std::vector<std::byte> zeros(options_.segment_bytes);
  for (size_t i = 1; i < files.size(); ++i) ASSERT_OK(sim_.disk->WriteRaw(files[i], 0, zeros));
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, "MANIFEST-");
  options_.recovery = Recovery::kSetAside;
  {
    ASSERT_OK_ASSIGN(Store store, TryOpen());
    EXPECT_NE("", store.recovery_note());
    ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
    EXPECT_GT(*chat.length(), 0u);
    ASSERT_OK(chat.AppendSync({.tokens = Tokens(1)}));
  }
  options_.recovery = Recovery::kRefuse;
  EXPECT_OK(TryOpen()) << "what was kept is what counts from then on";
}

TEST_F(LostFilesPassedAsEmpty, ALogWithoutAnyFile) {
  for (const std::string& path : sim_.disk->Files()) {
    if (path.starts_with("store/log/")) {
      ASSERT_OK(sim_.disk->Remove(path));
    }
  }
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, "first segment is missing");
}

TEST_F(LostFilesPassedAsEmpty, AStoreWithoutItsManifestIsNotMadeAnew) {
  for (const std::string& path : sim_.disk->Files()) {
    if (path.starts_with("store/MANIFEST-")) {
      ASSERT_OK(sim_.disk->Remove(path));
    }
  }
  const std::vector<std::string> before = LogFiles();
  options_.create_if_missing = true;
  // A log that cannot be read may be one.
  for (const io::SimOp looked : {io::SimOp::kStat, io::SimOp::kRead}) {
    sim_.disk->AddFault({.when =
                             [looked](const io::SimOperation& op) {
                               return op.op == looked && op.path.find("/log/0") != op.path.npos;
                             },
                         .error = EIO});
    EXPECT_FAILS(TryOpen(), StatusCode::kIoError, "/log/0");
    sim_.disk->ClearFaults();
  }
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, "no MANIFEST");
  EXPECT_EQ(before, LogFiles());
  // Nor is it said that there never was one.
  options_.create_if_missing = false;
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, "no MANIFEST");
  options_.read_only = true;
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, "no MANIFEST");
}

TEST_F(LostFilesPassedAsEmpty, AStrangersLogFolderIsLeftAlone) {
  ASSERT_OK(sim_.disk->CreateDirectory("/app"));
  ASSERT_OK(sim_.disk->CreateDirectory("/app/log"));
  ASSERT_OK(sim_.disk->Open("/app/log/app.log", {.write = true, .create = true}));
  options_.create_if_missing = true;
  EXPECT_FAILS(Store::Open("/app", options_), StatusCode::kInvalidState, "app.log");
  EXPECT_OK(sim_.disk->Info("/app/log/app.log"));
}

TEST_F(LostFilesPassedAsEmpty, SalvageKeepsWhatLiesBeforeACutSegment) {
  const std::vector<std::string> files = LogFiles();
  ASSERT_OK(sim_.disk->TruncateRaw(files[1], 100'000));
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, files[1].substr(10));
  options_.recovery = Recovery::kSetAside;
  ASSERT_OK_ASSIGN(Store store, TryOpen());
  EXPECT_NE("", store.recovery_note());
  ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
  EXPECT_GT(*chat.length(), 10'000u);
}

// Also of this store, but at another number.
TEST_F(LostFilesPassedAsEmpty, SegmentsThatChangedPlaces) {
  const std::vector<std::string> files = LogFiles();
  ASSERT_OK(sim_.disk->Rename(files[0], "store/log/x"));
  ASSERT_OK(sim_.disk->Rename(files[1], files[0]));
  ASSERT_OK(sim_.disk->Rename("store/log/x", files[1]));
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, "holds segment");
}

}  // namespace
}  // namespace cairn::testing
