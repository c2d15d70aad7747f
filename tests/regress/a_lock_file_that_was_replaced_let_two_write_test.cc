// SPDX-License-Identifier: Apache-2.0
//
// The bug: who removed LOCK, or put another in its place, let a second process open the store, and
// the first went on writing beside it. Now it finds out before it writes anything: groups of the
// log, at a bounded rate, and each MANIFEST, table or segment. Method: LOCK removed or replaced
// under a store of every kind of world; no name and no byte changes from then on, and what a second
// store writes stays.
#include <algorithm>
#include <map>
#include <mutex>

#include "base/io/file_util.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class ALockThatWasReplaced : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    Options options = world_->options();
    options.listener = std::make_shared<EventListener>();
    options.listener->on_poisoned = [this](const Status& cause) {
      const std::lock_guard lock(cause_mutex_);
      cause_ = cause;
    };
    Reopen(options);
    model_ = Register(WideModel());
    chat_ = Create(model_, "chat");
    ASSERT_OK(AppendSome(chat_, WideModel(), 0, 64));
    ASSERT_OK(store_.Compact());
    AwaitSpares();
  }

  io::FileSystem& files() { return *world_->world().files; }
  std::string Lock() const { return io::JoinPath(world_->path(), "LOCK"); }
  // A group may follow the last look at once.
  void Pause() { world_->world().scheduler->Sleep(20'000'000); }

  // The log prepares segments unasked, two and the next one; then nothing is under way. One that is
  // counted may not have its name yet.
  void AwaitSpares() {
    while (store_.Metrics().log_spare_segments < 3 || OneIsMade()) Pause();
  }
  bool OneIsMade() {
    const auto names = files().List(io::JoinPath(world_->path(), "log")).value();
    return std::any_of(names.begin(), names.end(),
                       [](const std::string& name) { return name.ends_with(".tmp"); });
  }

  // The thread that finds out notifies the listener when callers know already.
  Status Cause() {
    for (int i = 0; i < 500; ++i) {
      {
        const std::lock_guard lock(cause_mutex_);
        if (!cause_.ok()) return cause_;
      }
      Pause();
    }
    return Status::Ok();
  }

  // Every file with its bytes, but for HINT, which says nothing that is relied on.
  std::map<std::string, std::vector<std::byte>> All() {
    std::map<std::string, std::vector<std::byte>> all;
    for (const std::string directory : {"", "log", "tables"}) {
      const std::string path = io::JoinPath(world_->path(), directory);
      for (const std::string& name : files().List(path).value()) {
        const std::string file = io::JoinPath(path, name);
        if (name == "HINT" || files().Info(file)->is_directory) continue;
        all[file] = io::ReadWholeFile(files(), file, UINT64_MAX).value();
      }
    }
    return all;
  }

  void ExpectNothingIsWritten() {
    ASSERT_OK(store_.PauseBackground());
    Pause();
    const auto before = All();
    const auto appended = AppendSome(chat_, WideModel(), 64, 64);
    EXPECT_TRUE(Fails(appended.status(), StatusCode::kPoisoned, "LOCK"));
    EXPECT_TRUE(Fails(Cause(), StatusCode::kLocked, "LOCK"));
    EXPECT_TRUE(Fails(store_.Close(), StatusCode::kPoisoned, "LOCK"));
    EXPECT_TRUE(before == All());
  }

  ModelId model_{};
  Branch chat_;
  std::mutex cause_mutex_;
  Status cause_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, ALockThatWasReplaced, ::testing::ValuesIn(TestWorld::Names()),
                         NameOf);

TEST_P(ALockThatWasReplaced, IsSaidWhenItIsGone) {
  ASSERT_OK(files().Remove(Lock()));
  ExpectNothingIsWritten();
}

TEST_P(ALockThatWasReplaced, IsSaidWhenItIsAnothers) {
  ASSERT_OK(files().Remove(Lock()));
  ASSERT_OK_ASSIGN(const auto another, files().Lock(Lock()));
  ExpectNothingIsWritten();
}

// No append comes, but the background writes tables and a MANIFEST.
TEST_P(ALockThatWasReplaced, IsSaidByTheBackground) {
  ASSERT_OK(AppendSome(chat_, WideModel(), 64, 64));
  AwaitSpares();
  ASSERT_OK(files().Remove(Lock()));
  const auto before = All();
  EXPECT_FALSE(store_.Compact().ok());
  EXPECT_TRUE(Fails(Cause(), StatusCode::kLocked, "LOCK"));
  EXPECT_FALSE(store_.Close().ok());
  EXPECT_TRUE(before == All());
}

// Nor at Close.
TEST_P(ALockThatWasReplaced, IsSaidByClose) {
  ASSERT_OK(store_.PauseBackground());
  ASSERT_OK(files().Remove(Lock()));
  const auto before = All();
  EXPECT_TRUE(Fails(store_.Close(), StatusCode::kLocked, "LOCK"));
  EXPECT_TRUE(before == All());
}

TEST_P(ALockThatWasReplaced, KeepsWhatTheSecondWrote) {
  if (GetParam() == "simulated") GTEST_SKIP() << "one store at a time";
  ASSERT_OK(files().Remove(Lock()));
  ASSERT_OK_ASSIGN(Store second, world_->Open());
  ASSERT_OK_ASSIGN(Branch chat, second.FindBranch("chat"));
  ASSERT_OK(AppendSome(chat, WideModel(), 64, 128));
  Pause();
  EXPECT_TRUE(
      Fails(AppendSome(chat_, WideModel(), 64, 64).status(), StatusCode::kPoisoned, "LOCK"));
  ASSERT_OK(AppendSome(chat, WideModel(), 192, 64));
  ASSERT_FALSE(store_.Close().ok());
  ASSERT_OK(second.Close());
  ASSERT_OK_ASSIGN(store_, world_->Open());
  EXPECT_EQ(256u, *Find("chat").length());
  EXPECT_TRUE(HasKv(Find("chat"), WideModel(), 0, 256));
}

}  // namespace
}  // namespace cairn::testing
