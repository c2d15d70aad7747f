// SPDX-License-Identifier: Apache-2.0
//
// Property: what a store takes of the machine's memory stays near Options::max_memory_bytes: 1.5
// times that and 16 MiB, whatever the malloc of the process keeps.
// Method: a child process appends, seals and restores eight times its limit, with several threads.
// It lives in a control group with that limit, where the machine allows one; and the kernel's own
// count of its highest resident memory is compared. Where neither can be had the test is skipped.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kTokens = 100;
constexpr size_t kThreads = 4;

// This process's value, in bytes. 0 where the system does not say.
uint64_t Memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

// From now on VmHWM is the highest since.
bool ForgetHighest() {
  std::ofstream("/proc/self/clear_refs") << "5";
  return Memory("VmHWM") != 0 && Memory("VmHWM") <= Memory("VmRSS") + kMiB;
}

// A control group (version 2) of this test's, if the machine lets it make one.
class MemoryGroup {
 public:
  explicit MemoryGroup(uint64_t bytes_max) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      if (line.starts_with("0::")) path_ = "/sys/fs/cgroup" + line.substr(3);
    }
    path_ += "/cairn-test-" + std::to_string(getpid());
    made_ = mkdir(path_.c_str(), 0700) == 0 && Write("memory.max", std::to_string(bytes_max));
    if (made_) Write("memory.swap.max", "0");  // Not there without swap.
  }
  ~MemoryGroup() { rmdir(path_.c_str()); }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  bool made() const { return made_; }
  bool Enter() const { return Write("cgroup.procs", "0"); }

 private:
  // Into a file that the system has made: where no control groups are mounted there is none.
  bool Write(const std::string& file, const std::string& text) const {
    std::fstream into(path_ + "/" + file, std::ios::in | std::ios::out);
    return into.is_open() && (into << text << std::flush).good();
  }
  std::string path_;
  bool made_ = false;
};

// 8 KiB per token.
ModelSpec Model() {
  ModelSpec model;
  model.identity.name = "toy";
  model.groups.push_back(LayerGroup::FullAttention(8, 4, 64, Dtype::kBf16));
  return model;
}

bool Work(const std::string& path, uint64_t max_memory_bytes) {
  Options options;
  options.create_if_missing = true;
  options.max_memory_bytes = max_memory_bytes;
  options.hot_tail_bytes = max_memory_bytes / 4;
  options.executor_threads = 2;
  auto store = Store::Open(path, options);
  if (!Expect(store.ok(), store.status().ToString())) return false;
  const ModelSpec model = Model();
  const auto id = store->RegisterModel(model);
  if (!Expect(id.ok(), id.status().ToString())) return false;
  const uint64_t branches = 8 * max_memory_bytes / (kTokens * 8192);
  std::atomic<bool> good{true};
  const auto expect = [&](const Status& status) {
    if (!Expect(status.ok(), status.ToString())) good = false;
    return status.ok();
  };
  const auto run = [&](const std::function<void(uint64_t)>& one) {
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t i = t; i < branches && good; i += kThreads) one(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  KvSet kv(model, Layout::kContiguous, 0, kTokens);
  kv.Write(kSeed, 0, kTokens);
  const KvView* const view = kv.View(0, kTokens);
  run([&](uint64_t i) {
    auto branch = store->CreateBranch(*id, {.name = std::to_string(i)});
    if (!expect(branch.status())) return;
    expect(branch->AppendSync(MakeDelta(Tokens(kTokens, i), view)).status());
  });
  if (!good || !expect(store->Compact())) return false;
  run([&](uint64_t i) {
    auto branch = store->FindBranch(std::to_string(i));
    if (!expect(branch.status())) return;
    KvSet back(model, Layout::kContiguous, 0, kTokens);
    RestoreRequest request;
    request.into = back.View(0, kTokens);
    if (expect(branch->Restore(request).status())) good = good && Expect(back == kv, "other bytes");
  });
  return good && expect(store->Close());
}

// Beside the store: what the threads restore into, and the pattern that they compare with.
constexpr uint64_t kOwnBytes = (kThreads + 1) * kTokens * 8192 + kMiB;

class ResidentMemory : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ResidentMemory, StaysNearItsLimit) {
  const uint64_t limit = GetParam() * kMiB;
  const uint64_t most = limit * 3 / 2 + 16 * kMiB + kOwnBytes;
  TempDirectory directory;
  const MemoryGroup group(most);
  const bool counts = InChild([] { return ForgetHighest(); });
  if (!group.made() && !counts) GTEST_SKIP() << "no control group, and no count of memory";
  EXPECT_TRUE(InChild([&] {
    if (group.made() && !Expect(group.Enter(), "the group does not take this process"))
      return false;
    ForgetHighest();
    const uint64_t before = Memory("VmRSS"), files_before = Memory("RssFile");
    if (!Work(directory.path() + "/store", limit)) return false;
    // The program's own pages are those of a file.
    const uint64_t files = Memory("RssFile") - std::min(Memory("RssFile"), files_before);
    const uint64_t highest = Memory("VmHWM") - before - files;
    std::printf("limit %lu MiB: %lu MiB resident%s\n", limit / kMiB, highest / kMiB,
                group.made() ? ", in a control group" : "");
    std::fflush(stdout);
    return !counts || Expect(highest <= most, std::to_string(highest) + " bytes are resident");
  })) << "or the kernel ended it for its memory";
}

INSTANTIATE_TEST_SUITE_P(, ResidentMemory, ::testing::Values(16, 64),
                         [](const auto& limit) { return std::to_string(limit.param) + "MiB"; });

}  // namespace
}  // namespace cairn::testing
