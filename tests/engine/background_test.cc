// SPDX-License-Identifier: Apache-2.0
//
// Property: the background keeps to its rate while there is room, and never lets the log outgrow
// its limit for that; paused it touches nothing, and whatever happens meanwhile blocks no append
// and loses nothing. Method: the simulated machine, on its virtual clock.
#include <algorithm>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kSlowest = 64 << 10;  // Bytes a second.
constexpr uint64_t kSegment = 256 << 10;

class BackgroundTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_ = TestWorld::Make("simulated");
    options_ = world_->options();
    options_.background_bytes_per_second = kSlowest;
  }
  void Open() {
    ASSERT_OK(store_.Close());
    ASSERT_OK_ASSIGN(store_, world_->Open(options_));
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    auto found = store_.FindBranch("chat");
    if (!found.ok()) found = store_.CreateBranch(id, {.name = "chat"});
    ASSERT_OK(found);
    chat_ = *found;
    ASSERT_OK_ASSIGN(length_, chat_.length());
  }
  void Append(uint64_t count) {
    for (const uint64_t end = length_ + count; length_ < end; length_ += 8) {
      ASSERT_OK(AppendSome(chat_, model_, length_, 8));
    }
  }
  io::Scheduler& scheduler() { return *world_->world().scheduler; }
  // Names of all tables, with what the log has.
  std::vector<std::string> Files() {
    std::vector<std::string> files;
    for (const char* directory : {"/tables", "/log", ""}) {
      auto names = world_->world().files->List(world_->path() + directory);
      EXPECT_OK(names);
      if (!names.ok()) continue;
      for (const std::string& name : *names) {
        if (!name.starts_with("spare")) files.push_back(name);
      }
    }
    return files;
  }

  const ModelSpec model_ = WideModel();
  std::unique_ptr<TestWorld> world_;
  Options options_;
  Store store_;
  Branch chat_;
  uint64_t length_ = 0;
};

TEST_F(BackgroundTest, CompactTakesAsLongAsTheRateSays) {
  Open();
  Append(64);  // Half a MiB.
  const uint64_t begin = scheduler().MonotonicNs();
  ASSERT_OK(store_.Compact());
  const double seconds = static_cast<double>(scheduler().MonotonicNs() - begin) / kSecond;
  const StoreMetrics metrics = store_.Metrics();
  const uint64_t moved = metrics.background_read_bytes + metrics.background_written_bytes;
  EXPECT_GE(moved, 2 * metrics.table_bytes) << "written, and read back";
  EXPECT_NEAR(static_cast<double>(moved) / kSlowest, seconds, 0.5);
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_));
}

TEST_F(BackgroundTest, TheRateNeverLetsTheLogGrowBeyondItsLimit) {
  options_.log_bytes_max = 16 * kSegment;
  Open();
  uint64_t longest = 0;
  for (int i = 0; i < 100; ++i) {
    Append(32);  // One segment or more a virtual second: sixteen times the rate would not do.
    scheduler().Sleep(kSecond);
    longest = std::max(longest, store_.Metrics().log_segments);
  }
  EXPECT_GT(longest, 12U) << "while there is room the rate holds";
  EXPECT_LE(longest, 17U) << "the one that is written to beside the sixteen";
  EXPECT_GT(store_.Metrics().retired_segments, 60U);
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_));
}

TEST_F(BackgroundTest, LittleRoomUnderMaxBytesLiftsTheRate) {
  options_.max_bytes = 3 << 20;
  Open();
  ASSERT_OK(store_.PauseBackground());  // Else the last append waits until there is room.
  while (AppendSome(chat_, model_, length_, 8).ok()) length_ += 8;
  ASSERT_OK(store_.ResumeBackground());
  ASSERT_OK(chat_.Rewind(32));
  length_ = 32;
  const uint64_t begin = scheduler().MonotonicNs();
  (void)store_.Compact();  // There may be room for it or not.
  EXPECT_LT(scheduler().MonotonicNs() - begin, 5 * kSecond);
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_));
}

TEST_F(BackgroundTest, PausedNothingIsTouchedAndTheLogGrows) {
  options_.background_bytes_per_second = 0;
  options_.log_bytes_max = 1;  // At least four segments.
  Open();
  Append(64);
  ASSERT_OK(store_.PauseBackground());
  const StoreMetrics before = store_.Metrics();
  for (int i = 0; i < 20; ++i) {
    Append(32);
    scheduler().Sleep(kSecond);
  }
  StoreMetrics after = store_.Metrics();
  EXPECT_GT(after.log_segments, 20U) << "five times its limit";
  EXPECT_EQ(before.retired_segments, after.retired_segments);
  EXPECT_EQ(before.background_written_bytes, after.background_written_bytes);
  EXPECT_EQ(before.background_read_bytes, after.background_read_bytes);
  ASSERT_OK(store_.Flush());
  const std::vector<std::string> files = Files();
  scheduler().Sleep(100 * kSecond);
  EXPECT_EQ(files, Files());
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_));

  ASSERT_OK(store_.ResumeBackground());
  scheduler().Sleep(100 * kSecond);
  EXPECT_LE(store_.Metrics().log_segments, 5U) << "nobody had to ask again";
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_));
}

TEST_F(BackgroundTest, PausedAFullStoreRefusesAndLosesNothing) {
  options_.background_bytes_per_second = 0;
  options_.log_bytes_max = 1;
  options_.max_bytes = 4 << 20;
  Open();
  ASSERT_OK(store_.PauseBackground());
  Status status;
  while (true) {
    const auto appended = AppendSome(chat_, model_, length_, 8);
    status = appended.status();
    if (!status.ok()) break;
    length_ += 8;
  }
  EXPECT_FAILS(status, StatusCode::kNoSpace);
  EXPECT_GT(length_ * model_.token_bytes(), options_.max_bytes / 2);
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_));
  EXPECT_OK(chat_.Rewind(8));
  ASSERT_OK(store_.Flush());
  ASSERT_OK(store_.ResumeBackground());
  scheduler().Sleep(kSecond);
  length_ = 8;
  Append(64);
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_));
}

TEST_F(BackgroundTest, PausingStopsInTheMiddleAndResumingFinishes) {
  Open();
  Append(128);
  Status compacted;
  auto compact = scheduler().StartThread("compact", [&] { compacted = store_.Compact(); });
  while (store_.Metrics().background_read_bytes == 0) scheduler().Sleep(kSecond / 100);
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(store_.PauseBackground());
    const StoreMetrics stopped = store_.Metrics();
    EXPECT_EQ(0U, stopped.seals);
    EXPECT_FAILS(store_.Compact(), StatusCode::kInvalidState, "paused");
    Append(8);
    scheduler().Sleep(10 * kSecond);
    EXPECT_EQ(stopped.background_read_bytes, store_.Metrics().background_read_bytes);
    EXPECT_EQ(stopped.background_written_bytes, store_.Metrics().background_written_bytes);
    ASSERT_OK(store_.ResumeBackground());
    scheduler().Sleep(kSecond);
  }
  compact.reset();
  EXPECT_OK(compacted);
  EXPECT_LE(1U, store_.Metrics().seals) << "what came meanwhile may have got a table of its own";
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_));
}

TEST_F(BackgroundTest, PausesNestAndNeedAResume) {
  Open();
  EXPECT_FAILS(store_.ResumeBackground(), StatusCode::kInvalidState, "not paused");
  ASSERT_OK(store_.PauseBackground());
  ASSERT_OK(store_.PauseBackground());
  ASSERT_OK(store_.ResumeBackground());
  EXPECT_FAILS(store_.Compact(), StatusCode::kInvalidState, "paused");
  ASSERT_OK(store_.ResumeBackground());
  EXPECT_OK(store_.Compact());
  EXPECT_FAILS(store_.ResumeBackground(), StatusCode::kInvalidState, "not paused");
  ASSERT_OK(store_.Close());
  EXPECT_FAILS(store_.PauseBackground(), StatusCode::kInvalidState, "closed");
  EXPECT_FAILS(store_.ResumeBackground(), StatusCode::kInvalidState, "closed");
}

TEST_F(BackgroundTest, ClosingWaitsNeitherForThePauseNorForTheRate) {
  for (const bool paused : {true, false}) {
    Open();
    Append(128);
    Status compacted;
    auto compact = scheduler().StartThread("compact", [&] { compacted = store_.Compact(); });
    scheduler().Sleep(kSecond / 10);
    if (paused) {
      ASSERT_OK(store_.PauseBackground());
    }
    const uint64_t begin = scheduler().MonotonicNs();
    ASSERT_OK(store_.Close());
    compact.reset();
    EXPECT_FALSE(compacted.ok());
    EXPECT_LT(scheduler().MonotonicNs() - begin, kSecond);
  }
  Open();
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_));
}

TEST_F(BackgroundTest, AStoreThatIsReadOnlyHasNone) {
  Open();
  Append(8);
  ASSERT_OK(store_.Close());
  options_.create_if_missing = false;
  options_.read_only = true;
  ASSERT_OK_ASSIGN(Store reader, world_->Open(options_));
  EXPECT_OK(reader.PauseBackground());
  EXPECT_OK(reader.ResumeBackground());
  ASSERT_OK(reader.Close());
}

TEST(BackgroundOptionTest, ARateInTheWrongUnitIsRefused) {
  Options options = TinyOptions();
  for (const uint64_t rate : {uint64_t{0}, kSlowest, UINT64_MAX}) {
    options.background_bytes_per_second = rate;
    EXPECT_OK(options.Validate());
  }
  for (const uint64_t rate : {uint64_t{1}, kSlowest - 1}) {
    options.background_bytes_per_second = rate;
    EXPECT_FAILS(options.Validate(), StatusCode::kInvalidArgument, "background_bytes_per_second");
  }
}

}  // namespace
}  // namespace cairn::testing
