// SPDX-License-Identifier: Apache-2.0
//
// The bug: a backup was put in the place of a store that had gone on, and was written to there. A
// follower that was open meanwhile showed the old bytes, or mixed them with the new ones, with
// status Ok: both histories give the same numbers to other segments and tables, and the checksums
// fit. Method: two histories of a store, of equal length; the files of one replace those of the
// other under followers that have read everything, or nothing.
#include <deque>
#include <functional>

#include "base/io/file_util.h"
#include "engine/manifest/manifest.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kBefore = 8, kAfter = 16;  // Positions before the histories part, and behind.
constexpr uint64_t kOther = kSeed + 1;        // KV of the other history.

class AFollowerServedWhatABackupReplaced : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    Branch chat = Create(Register(model_), "chat");
    ASSERT_OK(AppendSome(chat, model_, 0, kBefore, kSeed, Durability::kPower));
    ASSERT_OK(store_.Compact());
  }

  io::FileSystem& files() { return *world_->world().files; }
  std::string Other() const { return world_->path() + "-other"; }

  Options Writing() const {
    Options options = world_->options();
    options.create_if_missing = false;
    options.index = Index::kNone;  // A copy makes its own, whose tables take numbers.
    return options;
  }
  Store Follow() {
    Options options = Writing();
    options.read_only = true;
    auto opened = world_->Open(options);
    EXPECT_OK(opened);
    return opened.ok() ? std::move(*opened) : Store();
  }

  // Opens the store at `path`, goes on with it, and closes it.
  void GoOn(const std::string& path, uint64_t seed, bool sealed) {
    ASSERT_OK_ASSIGN(Store store, Store::Open(path, Writing()));
    ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
    ASSERT_OK(AppendSome(chat, model_, kBefore, kAfter - kBefore, seed, Durability::kPower));
    if (sealed) {
      ASSERT_OK(store.Compact());
    }
    ASSERT_OK(store.Close());
  }

  void ForEachFile(const std::string& directory, const std::string& below,
                   const std::function<void(const std::string&)>& call) {
    ASSERT_OK_ASSIGN(const auto names, files().List(io::JoinPath(directory, below)));
    for (const std::string& name : names) {
      const std::string file = io::JoinPath(below, name);
      ASSERT_OK_ASSIGN(const io::FileInfo info, files().Info(io::JoinPath(directory, file)));
      if (info.is_directory) {
        ForEachFile(directory, file, call);
      } else {
        call(file);
      }
    }
  }
  // Puts the files of one directory into the place of those of another: new files, MANIFEST last.
  void Replace(const std::string& directory, const std::string& by) {
    std::deque<std::string> gone, come;
    ForEachFile(directory, "", [&](const std::string& file) { gone.push_back(file); });
    ForEachFile(by, "", [&](const std::string& file) {
      file.starts_with("MANIFEST") ? come.push_back(file) : come.push_front(file);
    });
    for (const std::string& file : gone) ASSERT_OK(files().Remove(io::JoinPath(directory, file)));
    for (const std::string& file : come) {
      ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes,
                       io::ReadWholeFile(files(), io::JoinPath(by, file), 1 << 30));
      ASSERT_OK_ASSIGN(const auto to, files().Open(io::JoinPath(directory, file),
                                                   {.write = true, .create = true}));
      ASSERT_OK(to->Write(0, bytes, /*durable=*/false));
    }
  }
  // As it is now, files and all.
  void CopyTo(const std::string& target) {
    ASSERT_OK(files().CreateDirectory(target));
    for (const char* below : {"/log", "/tables"})
      ASSERT_OK(files().CreateDirectory(target + below));
    Replace(target, world_->path());
  }

  // A follower shows the history on which it was opened, or says why not.
  void ExpectNothingWrong(const Store& follower) {
    ASSERT_OK_ASSIGN(const Branch chat, follower.FindBranch("chat"));
    EXPECT_EQ(kAfter, *chat.length());
    KvSet got(model_, Layout::kContiguous, 0, kAfter), want(model_, Layout::kContiguous, 0, kAfter);
    want.Write(kSeed, 0, kAfter);
    RestoreRequest request;
    request.into = got.View(0, kAfter);
    const auto restored = chat.Restore(request);
    if (restored.ok()) {
      EXPECT_TRUE(got == want);
    } else {
      EXPECT_FAILS(restored, StatusCode::kInvalidState, "another history");
    }
    const auto tokens = chat.ReadTokens(kBefore, kAfter);
    if (tokens.ok()) {
      EXPECT_EQ(Tokens(kAfter - kBefore, kSeed + kBefore), *tokens);
    } else {
      EXPECT_FAILS(tokens, StatusCode::kInvalidState, "another history");
    }
  }

  void Swap(bool sealed) {
    ASSERT_NO_FATAL_FAILURE(GoOn(world_->path(), kSeed, sealed));
    ASSERT_NO_FATAL_FAILURE(GoOn(Other(), kOther, sealed));
    Store fresh = Follow(), read = Follow();
    EXPECT_TRUE(HasKv(*read.FindBranch("chat"), model_, 0, kAfter));
    ASSERT_NO_FATAL_FAILURE(Replace(world_->path(), Other()));
    ExpectNothingWrong(read);
    ExpectNothingWrong(fresh);
    for (Store* store : {&read, &fresh}) {
      EXPECT_FAILS(store->Refresh(), StatusCode::kInvalidState, "another history of the store");
      ExpectNothingWrong(*store);
    }
    const Store anew = Follow();
    EXPECT_TRUE(HasKv(*anew.FindBranch("chat"), model_, kBefore, kAfter, kOther));
  }

  const ModelSpec model_ = WideModel();
};

TEST_P(AFollowerServedWhatABackupReplaced, InTables) {
  ASSERT_OK(store_.Checkpoint(Other()));
  ASSERT_OK(store_.Close());
  Swap(/*sealed=*/true);
}

TEST_P(AFollowerServedWhatABackupReplaced, InTheLog) {
  ASSERT_OK(store_.Checkpoint(Other()));
  ASSERT_OK(store_.Close());
  Swap(/*sealed=*/false);
}

// The store was closed, so that nothing but the openings distinguishes the two.
TEST_P(AFollowerServedWhatABackupReplaced, ByFilesThatWereCopied) {
  ASSERT_OK(store_.Close());
  ASSERT_NO_FATAL_FAILURE(CopyTo(Other()));
  Swap(/*sealed=*/true);
}

TEST_P(AFollowerServedWhatABackupReplaced, TheWriterGoesOnAfterTheCopy) {
  ASSERT_OK(store_.Checkpoint(Other()));
  Branch chat = Find("chat");
  ASSERT_OK(AppendSome(chat, model_, kBefore, kAfter - kBefore, kSeed, Durability::kPower));
  ASSERT_OK(store_.Close());
  const Store follower = Follow();
  ASSERT_NO_FATAL_FAILURE(Replace(world_->path(), Other()));
  ExpectNothingWrong(follower);
}

// A follower that has seen no more than the copy has goes on with it.
TEST_P(AFollowerServedWhatABackupReplaced, OneThatWasBehindGoesOn) {
  Store follower = Follow();
  ASSERT_OK(store_.Checkpoint(Other()));
  ASSERT_OK(store_.Close());
  ASSERT_NO_FATAL_FAILURE(GoOn(world_->path(), kSeed, true));
  ASSERT_NO_FATAL_FAILURE(GoOn(Other(), kOther, true));
  ASSERT_NO_FATAL_FAILURE(Replace(world_->path(), Other()));
  EXPECT_TRUE(HasKv(*follower.FindBranch("chat"), model_, 0, kBefore));
  ASSERT_OK_ASSIGN(const RefreshResult result, follower.Refresh());
  EXPECT_TRUE(result.changed);
  EXPECT_TRUE(HasKv(*follower.FindBranch("chat"), model_, 0, kBefore));
  EXPECT_TRUE(HasKv(*follower.FindBranch("chat"), model_, kBefore, kAfter, kOther));
}

// While the files are replaced there is no MANIFEST.
TEST_P(AFollowerServedWhatABackupReplaced, InTheMidstOfItReadsAreStale) {
  ASSERT_OK(store_.Close());
  const Store follower = Follow();
  ASSERT_NO_FATAL_FAILURE(CopyTo(Other()));
  ForEachFile(world_->path(), "", [&](const std::string& file) {
    if (!file.starts_with("MANIFEST")) return;
    EXPECT_OK(files().Remove(io::JoinPath(world_->path(), file)));
  });
  const Branch chat = *follower.FindBranch("chat");
  EXPECT_FAILS(chat.ReadTokens(0, kBefore), StatusCode::kStale, "it is being replaced");
  ASSERT_NO_FATAL_FAILURE(Replace(world_->path(), Other()));
  EXPECT_OK(chat.ReadTokens(0, kBefore));
}

INSTANTIATE_TEST_SUITE_P(Worlds, AFollowerServedWhatABackupReplaced,
                         ::testing::Values("simulated", "threads"), NameOf);

}  // namespace
}  // namespace cairn::testing
