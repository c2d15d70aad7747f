// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/timer.h"

#include "base/core/check.h"

namespace cairn::engine {

bool Timer::Start() {
  thread_ = world_.scheduler->StartThread("cairn-timer", [this] { Run(); });
  return thread_ != nullptr;
}

Timer::Entry Timer::Make(Action action) {
  std::multimap<uint64_t, Action> made;
  made.emplace(0, std::move(action));
  return made.extract(made.begin());
}

void Timer::At(uint64_t when_ns, Entry entry) {
  {
    const MutexLock lock(&mutex_);
    if (stopping_) return;
    CAIRN_CHECK(thread_ != nullptr);
    const bool earliest = actions_.empty() || when_ns < actions_.begin()->first;
    entry.key() = when_ns;
    actions_.insert(std::move(entry));
    if (!earliest) return;
    version_.fetch_add(1, std::memory_order_release);
  }
  world_.scheduler->WakeAll(version_);
}

void Timer::Stop() {
  std::unique_ptr<io::Thread> thread;
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    actions_.clear();
    thread = std::move(thread_);
    version_.fetch_add(1, std::memory_order_release);
  }
  world_.scheduler->WakeAll(version_);
}

void Timer::Run() {
  while (true) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    Entry due;
    uint64_t next_ns = io::kNoDeadline;
    const uint64_t now_ns = world_.scheduler->MonotonicNs();
    {
      const MutexLock lock(&mutex_);
      if (stopping_) return;
      if (!actions_.empty()) {
        const auto first = actions_.begin();
        next_ns = first->first;
        if (next_ns <= now_ns) due = actions_.extract(first);
      }
    }
    if (due.empty()) {
      world_.scheduler->Wait(version_, seen, next_ns);
    } else if (const uint64_t again_ns = due.mapped()(); again_ns != io::kNoDeadline) {
      At(again_ns, std::move(due));
    }
  }
}

}  // namespace cairn::engine
