// SPDX-License-Identifier: Apache-2.0
//
// Property: max_bytes holds at every moment, for the blocks of all files, those included that are
// unlinked and still open. Method: threads that append, rewind, drop and compact on the real disk,
// until ten times the cap was written; beside them one that looks at the directory every 10 ms.
//
// A look takes time, in which files come and go; so it looks twice. Files seen both times existed
// in between, all at once, with at least the smaller of the two numbers of blocks: that sum must
// not exceed the cap.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kStatBlock = 512;

// Blocks by inode.
using Look = std::map<ino_t, uint64_t>;

Look LookAt(const std::string& store) {
  Look look;
  const auto add = [&look](const struct stat& info) {
    if (S_ISREG(info.st_mode))
      look[info.st_ino] = static_cast<uint64_t>(info.st_blocks) * kStatBlock;
  };
  std::error_code vanished;
  std::filesystem::recursive_directory_iterator it(store, vanished), end;
  for (; !vanished && it != end; it.increment(vanished)) {
    struct stat info{};
    if (lstat(it->path().c_str(), &info) == 0) add(info);
  }
  // Files that this process has open in it, with or without a name.
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", vanished)) {
    char target[4096];
    const ssize_t length = readlink(entry.path().c_str(), target, sizeof target);
    if (length <= 0 || !std::string_view(target, static_cast<size_t>(length)).starts_with(store)) {
      continue;
    }
    struct stat info{};
    if (stat(entry.path().c_str(), &info) == 0) add(info);
  }
  return look;
}

// Bytes that have certainly been there at one moment.
uint64_t BytesNow(const std::string& store) {
  const Look first = LookAt(store), second = LookAt(store);
  uint64_t bytes = 0;
  for (const auto& [inode, blocks] : first) {
    const auto again = second.find(inode);
    if (again != second.end()) bytes += std::min(blocks, again->second);
  }
  return bytes;
}

class Watch {
 public:
  explicit Watch(const std::string& store)
      : thread_([this, store](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            most_ = std::max(most_, BytesNow(store));
            ++looks_;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        }) {}
  void Stop() {
    thread_.request_stop();
    thread_.join();
  }
  uint64_t most() const { return most_; }  // After Stop.
  int looks() const { return looks_; }

 private:
  uint64_t most_ = 0;
  int looks_ = 0;
  std::jthread thread_;  // Last, so that the others exist when it begins.
};

class CapOnDiskTest : public WorldTest {};
INSTANTIATE_TEST_SUITE_P(Worlds, CapOnDiskTest, ::testing::Values("threads", "io_uring"), NameOf);

TEST_P(CapOnDiskTest, HoldsAtEveryMoment) {
  constexpr uint64_t kCap = 24 << 20;
  constexpr int kWriters = 4;
  constexpr auto kUsual = std::chrono::seconds(15);
  constexpr auto kLongest = std::chrono::seconds(120);  // Under a sanitizer it takes longer.
  const ModelSpec model = WideModel();
  Options options = world_->options();
  options.max_bytes = kCap;
  options.replay_records_max = 200;
  Reopen(options);
  const ModelId id = Register(model);
  Watch watch(world_->path());
  std::atomic<uint64_t> refused{0};
  const auto begin = std::chrono::steady_clock::now();
  const auto goes_on = [&] {
    const uint64_t appended = store_.Metrics().kv_bytes_appended;
    return appended < 10 * kCap && !HasFailure() &&
           std::chrono::steady_clock::now() - begin < (appended < 5 * kCap ? kLongest : kUsual);
  };
  {
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < kWriters; ++writer) {
      writers.emplace_back([&, writer] {
        std::mt19937_64 random(static_cast<uint64_t>(writer));
        // Written once: what it says is no matter here.
        KvSet kv(model, Layout::kContiguous, 0, 192);
        kv.Write(kSeed, 0, 192);
        const std::vector<TokenId> tokens = Tokens(192);
        std::deque<Branch> branches;
        const auto made_room = [&] {
          ++refused;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          if (branches.empty()) return;
          Branch& oldest = branches.front();
          if (random() % 3 == 0 && *oldest.length() > 8) {
            EXPECT_OK(oldest.Rewind(8));
            branches.push_back(oldest);  // Its turn to be dropped comes later.
          } else {
            EXPECT_OK(oldest.Drop());
          }
          branches.pop_front();
        };
        while (goes_on()) {
          auto branch = store_.CreateBranch(id);
          if (!branch.ok()) {
            EXPECT_EQ(StatusCode::kNoSpace, branch.status().code()) << branch.status().ToString();
            made_room();
            continue;
          }
          // Every fourth is a table of its own.
          const uint64_t count = random() % 4 == 0 ? 192 : 8 + random() % 40;
          const auto delta = MakeDelta(std::span(tokens).first(count), kv.View(0, count));
          const Status appended = branch->AppendSync(delta, {}).status();
          branches.push_back(*branch);
          if (appended.ok()) continue;
          EXPECT_EQ(StatusCode::kNoSpace, appended.code()) << appended.ToString();
          made_room();
        }
      });
    }
    while (goes_on()) {
      const Status compacted = store_.Compact();
      EXPECT_TRUE(compacted.ok() || compacted.code() == StatusCode::kNoSpace);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }
  watch.Stop();
  const StoreMetrics metrics = store_.Metrics();
  RecordProperty("most_bytes", std::to_string(watch.most()));
  RecordProperty("looks", watch.looks());
  RecordProperty("appended", std::to_string(metrics.kv_bytes_appended));
  RecordProperty("refused", std::to_string(refused.load()));
  EXPECT_LE(watch.most(), kCap);
  EXPECT_GT(watch.most(), kCap / 4 * 3) << "else nothing was put to the test";
  EXPECT_GT(watch.looks(), 50);
  EXPECT_GE(metrics.kv_bytes_appended, 5 * kCap) << "it goes on at the cap";
  EXPECT_GT(metrics.retired_segments, 50u);
  ASSERT_OK(store_.Close());
  EXPECT_LE(BytesNow(world_->path()), kCap);
  Reopen(options);
  EXPECT_LE(BytesNow(world_->path()), kCap);
}

}  // namespace
}  // namespace cairn::testing
