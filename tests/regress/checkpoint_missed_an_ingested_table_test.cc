// SPDX-License-Identifier: Apache-2.0
//
// The bug: a copy took along an append that came while it was begun, and not the table that this
// append had put its KV into. Method: large appends by several threads, to ever new branches, on a
// disk where waiting for the log takes time, beside one Checkpoint after the other; every copy
// opens, and everything in it is verified.
#include <deque>
#include <filesystem>
#include <thread>

#include "base/io/file_util.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(CheckpointMissedAnIngestedTable, EveryCopyIsWhole) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("threads");
  Options options = world->options();
  options.direct_ingest_bytes = 64 << 10;
  options.log_bytes_max = 1 << 20;  // A copy copies the log.
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  constexpr uint64_t kEach = 16;
  constexpr int kWriters = 4, kCopies = 8;
  constexpr size_t kLive = 8;  // Branches of each writer: copies stay small.
  std::vector<std::jthread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&](const std::stop_token& stop) {
      std::deque<Branch> branches;
      while (!stop.stop_requested() && !::testing::Test::HasFailure()) {
        auto branch = store.CreateBranch(model);
        ASSERT_OK(branch);
        EXPECT_OK(AppendSome(*branch, spec, 0, kEach, kSeed, Durability::kPower));
        branches.push_back(*branch);
        if (branches.size() < kLive) continue;
        EXPECT_OK(branches.front().Drop());
        branches.pop_front();
      }
    });
  }
  // Also on a busy machine there is something to copy.
  while (store.Metrics().branches < kWriters * (kLive - 1) && !::testing::Test::HasFailure()) {
    std::this_thread::yield();
  }
  uint64_t copied = 0;
  for (int i = 0; i < kCopies && !::testing::Test::HasFailure(); ++i) {
    const std::string path =
        io::JoinPath(io::ParentPath(world->path()), "copy" + std::to_string(i));
    EXPECT_OK(store.Checkpoint(path));
    Options read = options;
    read.read_only = true;
    read.create_if_missing = false;
    ASSERT_OK_ASSIGN(Store copy, Store::Open(path, read));
    ASSERT_OK_ASSIGN(const VerifyReport report, copy.Verify(VerifyLevel::kAll));
    for (const VerifyReport::Damage& damage : report.damages) {
      ADD_FAILURE() << path << ": " << damage.where << ": " << damage.what;
    }
    copied += copy.Metrics().branches;
    ASSERT_OK(copy.Close());
    std::filesystem::remove_all(path);
  }
  writers.clear();  // Asks each to stop, and waits.
  EXPECT_GT(copied, 50u);
  EXPECT_GT(store.Metrics().ingests, 10u);
}

}  // namespace
}  // namespace cairn::testing
