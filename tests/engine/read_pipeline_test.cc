// SPDX-License-Identifier: Apache-2.0
//
// Property: a buffer that a sink keeps is not read into before the sink gives it back, however long
// that takes; and when Run returned all are back, also after damage, a cancellation or a deadline.
// Method: a file of known words on the simulated machine; a sink that keeps what it is given, looks
// at it when it lets it go, and lets it go when asked or from a thread of its own, in drawn order.
#include "engine/restore/pipeline.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/core/seeded_random.h"
#include "sim/world.h"
#include "tests/support/status.h"

namespace cairn::engine {
namespace {

constexpr uint64_t kJobBytes = 1 << 20;
constexpr uint64_t kJobs = 60;
constexpr uint64_t kMs = 1'000'000;

// The first word of every block says where it stands.
std::vector<std::byte> Content() {
  std::vector<std::byte> content(kJobs * kJobBytes);
  for (uint64_t at = 0; at < content.size(); at += io::kBlockBytes) {
    std::memcpy(content.data() + at, &at, sizeof(at));
  }
  return content;
}

class KeepingCallbacks final : public PipelineCallbacks {
 public:
  KeepingCallbacks(std::shared_ptr<io::File> file, uint64_t seed, bool gives_back_itself)
      : file_(std::move(file)), random_(seed), gives_back_itself_(gives_back_itself) {}
  ~KeepingCallbacks() override { EXPECT_EQ(kept(), 0u); }

  std::vector<ReadJob> Jobs() {
    std::vector<ReadJob> jobs;
    for (uint64_t i = 0; i < kJobs; ++i) {
      jobs.push_back({1, ReadJob::Kind::kRecord, i * kJobBytes, kJobBytes, i, i});
    }
    return jobs;
  }
  size_t kept() {
    std::lock_guard lock(mutex_);
    return kept_.size();
  }
  // Lets one go that is drawn. False: there is none.
  bool LetOneGo() {
    Kept gone;
    {
      std::lock_guard lock(mutex_);
      if (kept_.empty()) return false;
      std::swap(kept_[random_.Next() % kept_.size()], kept_.back());
      gone = std::move(kept_.back());
      kept_.pop_back();
    }
    for (uint64_t at = 0; at < gone.bytes.size(); at += io::kBlockBytes) {
      uint64_t found = 0;
      std::memcpy(&found, gone.bytes.data() + at, sizeof(found));
      EXPECT_EQ(found, gone.offset + at) << "read over while it was kept";
    }
    return true;
  }

  Result<std::shared_ptr<io::File>> OpenFor(const ReadJob&, bool) override { return file_; }
  Status Work(const ReadJob& job, const ReadBytes& bytes, uint64_t*) override {
    if (job.index == damaged_job) return Status(StatusCode::kCorruption, "damaged");
    std::lock_guard lock(mutex_);
    kept_.push_back({bytes.Keep(), bytes.bytes(), job.offset});
    kept_max_ = std::max(kept_max_, kept_.size());
    ++worked_;
    outcome.JobDone();
    return Status::Ok();
  }
  void WindowDone(std::span<const ReadJob> jobs, size_t /*buffer*/) override {
    EXPECT_FALSE(jobs.empty());
  }
  Status BeforeRead(uint64_t) override { return Status::Ok(); }
  ReadLimits Limits() const override {
    return {.piece_bytes = 256 << 10, .in_flight_bytes = UINT64_MAX};
  }
  ItemOutcome& OutcomeOf(const ReadJob&) override { return outcome; }
  bool AnyWanted() override { return !outcome.ended(); }
  void StopAll(const Status& status) override { outcome.Stop(status); }
  bool Reclaim(uint64_t deadline_ns) override {
    if (gives_back_itself_) return false;
    return (deadline_ns != 0 || random_.Next() % 4 == 0) && LetOneGo();
  }

  ItemOutcome outcome;
  size_t damaged_job = SIZE_MAX;
  size_t kept_max_ = 0;
  uint64_t worked_ = 0;

 private:
  struct Kept {
    BufferHold hold;
    std::span<const std::byte> bytes;
    uint64_t offset = 0;
  };
  const std::shared_ptr<io::File> file_;
  SeededRandom random_;
  const bool gives_back_itself_;
  std::mutex mutex_;
  std::vector<Kept> kept_;
};

class ReadPipelineTest : public ::testing::Test {
 protected:
  void Open(uint64_t seed) {
    pool_ = nullptr;  // Before what it stands on.
    file_ = nullptr;
    sim_ = io::MakeSimWorld(seed);
    auto opened = sim_.disk->Open("/file", {.write = true, .create = true, .direct = true});
    ASSERT_OK(opened);
    file_ = std::move(*opened);
    const std::vector<std::byte> content = Content();
    ASSERT_OK(file_->Allocate(0, content.size()));
    ASSERT_OK(sim_.disk->WriteRaw("/file", 0, content));
    budget_ = std::make_unique<MemoryBudget>(64 << 20);
    pool_ = std::make_unique<ReadPool>(sim_.world(), Allocator::Default(), 64 << 20, budget_.get());
  }
  void Run(KeepingCallbacks* callbacks, uint64_t deadline_ns = io::kNoDeadline) {
    io::Executor executor(*sim_.scheduler, "helps", 2);
    callbacks->outcome.Expect(kJobs);
    std::make_shared<ReadPipeline>(sim_.world(), &executor, 2, pool_.get(), callbacks, deadline_ns)
        ->Run(callbacks->Jobs());
    EXPECT_EQ(callbacks->kept(), 0u) << "Run returned before all was given back";
  }
  io::SimWorld sim_;
  std::shared_ptr<io::File> file_;
  std::unique_ptr<MemoryBudget> budget_;
  std::unique_ptr<ReadPool> pool_;
};

TEST_F(ReadPipelineTest, WhatIsKeptIsNotReadOver) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Open(seed);
    KeepingCallbacks callbacks(file_, seed, false);
    Run(&callbacks);
    EXPECT_OK(callbacks.outcome.status());
    EXPECT_EQ(callbacks.worked_, kJobs);
    EXPECT_GT(callbacks.kept_max_, 8u) << "many at once";
  }
}

// All buffers are kept, and nobody asked gives one back: the run waits for those that do.
TEST_F(ReadPipelineTest, ASinkMayGiveBackByItself) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Open(seed);
    KeepingCallbacks callbacks(file_, seed, true);
    std::atomic<bool> over{false};
    const auto gives_back = sim_.scheduler->StartThread("gives back", [&] {
      while (!over.load() || callbacks.kept() != 0) {
        sim_.scheduler->Sleep(3 * kMs);
        callbacks.LetOneGo();
      }
    });
    Run(&callbacks);
    over = true;
    EXPECT_OK(callbacks.outcome.status());
    EXPECT_EQ(callbacks.worked_, kJobs);
  }
}

TEST_F(ReadPipelineTest, HoldsEndBeforeAFailedRunReturns) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Open(seed);
    const uint64_t begun_ns = sim_.scheduler->MonotonicNs();
    {
      KeepingCallbacks whole(file_, seed, false);
      Run(&whole);
    }
    const uint64_t part_ns = (sim_.scheduler->MonotonicNs() - begun_ns) * seed / 6;
    KeepingCallbacks damaged(file_, seed, false);
    damaged.damaged_job = 7 + seed;
    Run(&damaged);
    EXPECT_FAILS(damaged.outcome.status(), StatusCode::kCorruption,
                 "damaged; restorable up to position " + std::to_string(7 + seed));
    EXPECT_GE(damaged.worked_, 7 + seed) << "what begins before it is looked at";

    KeepingCallbacks late(file_, seed, false);
    Run(&late, sim_.scheduler->MonotonicNs() + part_ns);
    EXPECT_FAILS(late.outcome.status(), StatusCode::kDeadlineExceeded, "took too long");

    KeepingCallbacks cancelled(file_, seed, false);
    const auto ticket = std::make_shared<TicketState>(sim_.world(), nullptr, 0);
    ticket->is_job = true;
    ASSERT_TRUE(ticket->BeginJob());
    cancelled.outcome.ticket = ticket.get();
    const auto cancels = sim_.scheduler->StartThread("cancels", [&] {
      sim_.scheduler->Sleep(part_ns);
      static_cast<void>(ticket->Cancel());
    });
    Run(&cancelled);
    EXPECT_EQ(cancelled.outcome.status().code(), StatusCode::kCancelled);
    ticket->Finish(cancelled.outcome.status());
  }
}

}  // namespace
}  // namespace cairn::engine
