// SPDX-License-Identifier: Apache-2.0
//
// Threads, futexes, clocks and chance of the operating system (Linux).
//
// Threads made here block all signals, so that the host's handlers run on the host's threads.
#pragma once

#include <memory>

#include "base/io/world.h"

namespace cairn::io {

class RealScheduler final : public Scheduler {
 public:
  // 0 when the system gives random numbers, else its errno.
  static int RandomIsRefused();

  std::unique_ptr<Thread> StartThread(
      std::string name, std::function<void()> body,
      ThreadPriority priority = ThreadPriority::kInherited) override;
  bool Wait(std::atomic<uint32_t>& word, uint32_t expected, uint64_t deadline_ns) override;
  void WakeAll(std::atomic<uint32_t>& word) override;
  void Sleep(uint64_t duration_ns) override;
  void Yield() override {}
  uint64_t MonotonicNs() override;
  uint64_t WallNs() override;
  uint64_t Random64() override;
  uint64_t ProcessId() override;
  uint32_t Cores() override;
  uint64_t ResidentBytes() override;
  std::unique_ptr<Notifier> NewNotifier() override;
};

}  // namespace cairn::io
