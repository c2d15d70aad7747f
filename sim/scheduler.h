// SPDX-License-Identifier: Apache-2.0
//
// Threads, waiting, clocks and chance, all from one seed: the same seed gives the same run.
//
// Threads are fibers on the one real thread that made the scheduler, which is itself the fiber
// "root". A switch happens in Wait, Sleep, Yield, the join of a Thread and simulated I/O, nowhere
// else; the next fiber is drawn. Time is virtual: each switch takes kSwitchNs, and when all fibers
// wait the clock jumps to the next deadline. If there is none, that is a deadlock: the process ends
// with a list of where each fiber waits.
//
// Wait sometimes returns early (about one switch in 64 wakes a waiter for no reason), so that
// callers that forget to look again are found.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/core/seeded_random.h"
#include "base/io/fiber.h"
#include "base/io/world.h"

namespace cairn::io {

class SimScheduler final : public Scheduler {
 public:
  static constexpr uint64_t kSwitchNs = 100;

  explicit SimScheduler(uint64_t seed);
  ~SimScheduler() override;  // Every Thread is gone before.

  // Priorities mean nothing here: the next fiber is drawn.
  std::unique_ptr<Thread> StartThread(
      std::string name, std::function<void()> body,
      ThreadPriority priority = ThreadPriority::kInherited) override;
  bool Wait(std::atomic<uint32_t>& word, uint32_t expected, uint64_t deadline_ns) override;
  void WakeAll(std::atomic<uint32_t>& word) override;
  void Sleep(uint64_t duration_ns) override;
  void Yield() override;
  uint64_t MonotonicNs() override { return now_ns_; }
  uint64_t WallNs() override;
  uint64_t Random64() override { return values_.Next(); }
  uint64_t ProcessId() override { return 1; }
  uint32_t Cores() override { return 4; }
  std::unique_ptr<Notifier> NewNotifier() override;

  // Runs `body` as a fiber of its own, to its end.
  void Run(std::function<void()> body);

  uint64_t switches() const { return switches_; }
  // Depends on every choice made so far: equal for equal runs.
  uint64_t schedule_hash() const { return schedule_hash_; }

 private:
  struct Task;
  class SimThread;

  static void TaskEntry(void* task);
  void Dispatch(bool for_ever);
  void WakeDue();
  void WakeOneForNoReason();
  void MakeReady(size_t waiting_index, bool timed_out);
  void AdvanceClock();
  [[noreturn]] void DieOfDeadlock() const;

  const std::thread::id thread_;
  SeededRandom choices_;
  SeededRandom values_;
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t switches_ = 0;
  uint64_t schedule_hash_ = 0;
  uint64_t next_task_ = 0;
  std::unique_ptr<Task> root_;
  Task* current_;
  std::vector<Task*> ready_;  // Without the current one, save inside Dispatch.
  std::vector<Task*> waiting_;
  std::vector<FiberStack> free_stacks_;
};

}  // namespace cairn::io
