// SPDX-License-Identifier: Apache-2.0
//
// Runs actions at a time: ends of tickets at their deadline, coalesced appends that waited long
// enough.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "base/core/mutex.h"
#include "base/io/world.h"

namespace cairn::engine {

// Thread-safe, but for Start.
class Timer {
 public:
  // Returns when to run it again; io::kNoDeadline: never. Must neither block nor throw.
  using Action = std::function<uint64_t()>;
  // An action with the memory for its entry: At and running it again allocate nothing.
  using Entry = std::multimap<uint64_t, Action>::node_type;
  static Entry Make(Action action);
  explicit Timer(io::World world) : world_(std::move(world)) {}
  ~Timer() { Stop(); }
  // False when the system refuses a thread.
  bool Start();
  // The action runs on the timer's thread, at or after `when_ns`, unless Stop comes first.
  // REQUIRES: Start.
  void At(uint64_t when_ns, Entry entry);
  // Joins the thread. Idempotent.
  void Stop();

 private:
  void Run();

  io::World world_;
  Mutex mutex_;
  std::multimap<uint64_t, Action> actions_ CAIRN_GUARDED_BY(mutex_);
  bool stopping_ CAIRN_GUARDED_BY(mutex_) = false;
  std::atomic<uint32_t> version_{0};  // Changes when the earliest time may have changed.
  std::unique_ptr<io::Thread> thread_;
};

}  // namespace cairn::engine
