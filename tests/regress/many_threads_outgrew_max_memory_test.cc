// SPDX-License-Identifier: Apache-2.0
//
// The bug: large appends took their memory beside max_memory_bytes, and each restore a buffer of
// its own beside it: 32 threads took 325 and 200 MiB at a limit of 16 MiB. They stand in line for
// it. Method: what the store allocates, counted, and what the system says of the process.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr size_t kThreads = 32;

std::atomic<uint64_t> allocated{0}, allocated_max{0};

Allocator CountingAllocator() {
  Allocator allocator = Allocator::Default();
  allocator.allocate = [](void* context, size_t bytes, size_t alignment) {
    const uint64_t now = allocated.fetch_add(bytes) + bytes;
    uint64_t seen = allocated_max.load();
    while (seen < now && !allocated_max.compare_exchange_weak(seen, now)) {
    }
    return Allocator::Default().allocate(context, bytes, alignment);
  };
  allocator.deallocate = [](void* context, void* memory, size_t bytes, size_t alignment) {
    allocated.fetch_sub(bytes);
    Allocator::Default().deallocate(context, memory, bytes, alignment);
  };
  return allocator;
}

// What the process has, in bytes: VmHWM, VmRSS. 0 where the system does not say.
uint64_t Resident(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}
// From now on VmHWM is the highest since.
bool ForgetHighest() {
  std::ofstream("/proc/self/clear_refs") << "5";
  return Resident("VmHWM") != 0 && Resident("VmHWM") <= Resident("VmRSS") + kMiB;
}

// 32 KiB per token in pages of 512 KiB, as a model of eight billion parameters has, but fewer
// layers.
ModelSpec LargeModel() {
  ModelSpec model;
  model.identity.name = "large";
  model.groups.push_back(LayerGroup::FullAttention(8, 8, 128, Dtype::kBf16));
  return model;
}

class ManyThreadsOutgrewMaxMemory : public ::testing::Test {
 protected:
  void Open() {
    Options options;
    options.create_if_missing = true;
    options.segment_bytes = 16 * kMiB;  // Records of 4 MiB.
    options.max_memory_bytes = 16 * kMiB;
    options.hot_tail_bytes = 8 * kMiB;
    options.executor_threads = 4;
    options.allocator = CountingAllocator();
    ASSERT_OK_ASSIGN(store_, Store::Open(directory_.path() + "/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    for (size_t i = 0; i < kThreads; ++i) {
      ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(id, {.name = std::to_string(i)}));
      branches_.push_back(branch);
    }
    kv_.Write(kSeed, 0, kTokens);
  }
  // From here on what is taken counts.
  void Begin() {
    allocated_max = allocated.load();
    resets_ = ForgetHighest();
    resident_before_ = Resident("VmRSS");
  }
  void InThreads(const std::function<Status(size_t)>& call) {
    std::vector<std::thread> threads;
    std::vector<Status> statuses(kThreads);
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { statuses[i] = call(i); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) EXPECT_OK(status);
  }
  void ExpectLittle() {
    const uint64_t resident = Resident("VmHWM") - std::min(resident_before_, Resident("VmHWM"));
    std::printf("allocated at most %.1f MiB; resident at most %.1f MiB more than before\n",
                static_cast<double>(allocated_max) / kMiB, static_cast<double>(resident) / kMiB);
    EXPECT_LE(allocated_max, 32 * kMiB);
    EXPECT_LE(resets_ ? resident : 0, 64 * kMiB);
  }
  Delta Whole() { return MakeDelta(tokens_, view_); }

  static constexpr uint64_t kTokens = 128;  // 4 MiB.
  const TempDirectory directory_;
  const ModelSpec model_ = LargeModel();
  const std::vector<TokenId> tokens_ = Tokens(kTokens);
  KvSet kv_{model_, Layout::kContiguous, 0, kTokens};
  const KvView* const view_ = kv_.View(0, kTokens);
  Store store_;
  std::vector<Branch> branches_;
  bool resets_ = false;
  uint64_t resident_before_ = 0;
};

TEST_F(ManyThreadsOutgrewMaxMemory, ThatAppend) {
  Open();
  Begin();
  InThreads([&](size_t i) { return branches_[i].AppendSync(Whole(), {}).status(); });
  ExpectLittle();
  for (size_t i = 0; i < kThreads; i += 11) {
    EXPECT_TRUE(HasKv(branches_[i], model_, 0, kTokens));
  }
}

TEST_F(ManyThreadsOutgrewMaxMemory, ThatRestore) {
  Open();
  // Large records of the log, which its memory has no more. Idle time would pack them.
  ASSERT_OK(store_.PauseBackground());
  for (size_t i = 0; i < 4; ++i) ASSERT_OK(branches_[i].AppendSync(Whole(), {}));
  std::deque<KvSet> into;
  std::vector<const KvView*> views;
  for (size_t i = 0; i < kThreads; ++i) {
    into.emplace_back(model_, Layout::kContiguous, 0, kTokens);
    into.back().Write(kSeed + 1, 0, kTokens);
    views.push_back(into.back().View(0, kTokens));
  }
  Begin();
  InThreads([&](size_t i) {
    RestoreRequest request;
    request.end = kTokens;
    request.into = views[i];
    return branches_[0].Restore(request).status();
  });
  ExpectLittle();
  EXPECT_GE(store_.Metrics().restored_log_records, uint64_t{kThreads});
  for (const KvSet& one : into) EXPECT_TRUE(one == kv_);
}

// A wait has an end. An append that is in the log already is reported as such.
TEST_F(ManyThreadsOutgrewMaxMemory, WhoWaitsIsCancelled) {
  Open();
  std::vector<Ticket> tickets;
  for (Branch& branch : branches_) {
    ASSERT_OK_ASSIGN(Ticket ticket, branch.Append(Whole(), {}));
    tickets.push_back(std::move(ticket));
  }
  for (Ticket& ticket : tickets) static_cast<void>(ticket.Cancel());
  for (Ticket& ticket : tickets) {
    const Status status = ticket.Wait();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCancelled ||
                status.code() == StatusCode::kUnknownOutcome)
        << status.ToString();
  }
  ASSERT_OK_ASSIGN(const uint64_t length, branches_[0].length());
  EXPECT_EQ(length % kTokens, 0U);
}

}  // namespace
}  // namespace cairn::testing
