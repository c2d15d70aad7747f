// SPDX-License-Identifier: Apache-2.0
//
// The bug: objects that were put together share a record of the log, of up to 4 MiB. Reads of one
// record were joined up to 2 MiB alone, so a larger one was read whole for each object of it: 16
// chunks of 512 KiB took 64 MiB of reads, and loading them 4 times as long. Sealing read it twice
// for each, for ids and for content. Method: a simulated disk counts the bytes of the log that a
// batch of gets reads, and those that sealing reads.
#include "engine/restore/plan/plan.h"
#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

class ARecordOfManyObjects : public ::testing::Test {
 protected:
  static constexpr size_t kObjects = 8;
  static constexpr size_t kBytes = 448u << 10;  // 3.5 MiB together.

  void SetUp() override {
    options_ = TinyOptions();
    options_.segment_bytes = 16u << 20;
    options_.hot_tail_bytes = 16u << 20;
    options_.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("store", options_));
  }
  static std::string_view KeyOf(size_t i) { return std::string_view("abcdefgh").substr(i, 1); }
  // All in one record, of which nothing is in memory then.
  void PutAndReopen() {
    ASSERT_OK_ASSIGN(const ObjectClassId id,
                     Objects(store_).RegisterClass({.name = "chunks", .page_bytes = 64u << 10}));
    std::vector<ObjectPut> puts;
    for (size_t i = 0; i < kObjects; ++i) contents_.push_back(Content(i, kBytes));
    for (size_t i = 0; i < kObjects; ++i) puts.push_back({.key = KeyOf(i), .value = contents_[i]});
    const uint64_t before = store_.Metrics().log_records;
    ASSERT_OK(Objects(store_).PutBatch(puts, {.object_class = id}));
    EXPECT_EQ(before + 1, store_.Metrics().log_records) << "they are not in one record";
    ASSERT_OK(store_.Close());
    ASSERT_OK_ASSIGN(store_, Store::Open("store", options_));
  }
  uint64_t BytesReadOfTheLog(const std::function<void()>& work) {
    uint64_t bytes = 0;
    machine_.disk->AddFault({.when =
                                 [&](const io::SimOperation& one) {
                                   const bool log = one.path.find("/log/") != std::string::npos;
                                   if (one.op == io::SimOp::kRead && log) bytes += one.length;
                                   return false;
                                 },
                             .persistent = true});
    work();
    machine_.disk->ClearFaults();
    return bytes;
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  Options options_;
  Store store_;
  std::vector<std::vector<std::byte>> contents_;
};

TEST_F(ARecordOfManyObjects, IsReadOnceForAll) {
  PutAndReopen();
  std::vector<std::vector<std::byte>> into(kObjects, std::vector<std::byte>(kBytes));
  std::vector<ObjectGet> gets;
  for (size_t i = 0; i < kObjects; ++i) gets.push_back({.key = KeyOf(i), .into = into[i]});
  const uint64_t read = BytesReadOfTheLog([&] {
    ASSERT_OK_ASSIGN(const std::vector<GetResult> got, Objects(store_).GetBatch(gets));
    for (const GetResult& one : got) EXPECT_OK(one.status);
  });
  EXPECT_EQ(contents_, into);
  EXPECT_GE(read, kObjects * kBytes);
  EXPECT_LE(read, kObjects * kBytes * 5 / 4);
}

TEST_F(ARecordOfManyObjects, IsSealedWithTwoReads) {
  PutAndReopen();
  const uint64_t read = BytesReadOfTheLog([&] { ASSERT_OK(store_.Compact()); });
  EXPECT_GE(read, kObjects * kBytes);
  EXPECT_LE(read, kObjects * kBytes * 9 / 4);
  EXPECT_GT(store_.Metrics().table_bytes, kObjects * kBytes);
}

TEST_F(ARecordOfManyObjects, IsOneWindowHoweverLargeItIs) {
  constexpr uint64_t kRecord = 2 * engine::kReadWindowBytes;
  std::vector<engine::ReadJob> jobs(3, {.file = 1, .offset = 100, .bytes = kRecord});
  jobs.push_back({.file = 1, .offset = 100 + kRecord, .bytes = kRecord});
  const std::vector<engine::ReadWindow> windows = engine::PlanWindows(jobs);
  ASSERT_EQ(2u, windows.size()) << "a window grows with what lies behind it";
  EXPECT_EQ(3u, windows[0].job_count);
  EXPECT_EQ(1u, windows[1].job_count);
}

}  // namespace
}  // namespace cairn::testing
