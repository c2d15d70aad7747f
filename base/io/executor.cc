// SPDX-License-Identifier: Apache-2.0
#include "base/io/executor.h"

#include <new>
#include <utility>

#include "base/core/check.h"

namespace cairn::io {

void Event::Set() {
  // After the store a waiter may destroy this; only the address of the word is used from here on.
  Scheduler& scheduler = scheduler_;
  std::atomic<uint32_t>& word = word_;
  word.store(1, std::memory_order_release);
  scheduler.WakeAll(word);
}

bool Event::Wait(uint64_t deadline_ns) {
  while (!is_set()) {
    if (!scheduler_.Wait(word_, 0, deadline_ns)) return is_set();
  }
  return true;
}

void Latch::CountDown() {
  Scheduler& scheduler = scheduler_;
  std::atomic<uint32_t>& word = word_;
  const uint32_t before = word.fetch_sub(1, std::memory_order_acq_rel);
  CAIRN_CHECK(before > 0);
  if (before == 1) scheduler.WakeAll(word);
}

bool Latch::Wait(uint64_t deadline_ns) {
  for (;;) {
    const uint32_t count = word_.load(std::memory_order_acquire);
    if (count == 0) return true;
    if (!scheduler_.Wait(word_, count, deadline_ns)) return is_open();
  }
}

Turn::Holder::Holder(Turn* turn) : turn_(turn) {
  while (turn_->taken_.exchange(1, std::memory_order_acquire) != 0) {
    turn_->scheduler_.Wait(turn_->taken_, 1, kNoDeadline);
  }
}

Turn::Holder::~Holder() {
  turn_->taken_.store(0, std::memory_order_release);
  turn_->scheduler_.WakeAll(turn_->taken_);
}

Executor::Executor(Scheduler& scheduler, std::string name, size_t max_threads,
                   ThreadPriority priority)
    : scheduler_(scheduler),
      name_(std::move(name)),
      max_threads_(max_threads),
      priority_(priority),
      owner_process_(scheduler.ProcessId()) {
  CAIRN_CHECK(max_threads_ > 0);
}

Executor::~Executor() { Stop(); }

void Executor::Stop() {
  // In a forked child there are no threads to end, and one of them may have held the mutex.
  if (scheduler_.ProcessId() != owner_process_) return;
  for (;;) {
    Worker* worker = nullptr;
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      worker = TakeIdleLocked();
    }
    if (worker == nullptr) break;
    scheduler_.WakeAll(worker->wake);
  }
  JoinWorkers();
}

// Without the lock: while stopping none is started, and after the last one no other thread is left.
void Executor::JoinWorkers() CAIRN_NO_THREAD_SAFETY_ANALYSIS {
  for (auto& worker : workers_) worker->thread.reset();
  CAIRN_CHECK(jobs_.empty());
  workers_.clear();  // Jobs posted from here on run in their call.
}

// Null when all are at work. The caller wakes the worker.
Executor::Worker* Executor::TakeIdleLocked() {
  if (idle_.empty()) return nullptr;
  Worker* worker = idle_.back();
  idle_.pop_back();
  worker->wake.store(1, std::memory_order_release);
  return worker;
}

// If there is no memory there is one less.
void Executor::StartWorkerLocked() {
  try {
    auto worker = std::make_unique<Worker>();
    workers_.reserve(workers_.size() + 1);
    idle_.reserve(workers_.size() + 1);  // Its thread must not fail.
    worker->thread = scheduler_.StartThread(
        name_, [this, w = worker.get()] { Work(w); }, priority_);
    if (worker->thread != nullptr) workers_.push_back(std::move(worker));
  } catch (const std::bad_alloc&) {
  }
}

void Executor::Post(std::function<void()> job) {
  Worker* worker = nullptr;
  bool queued = false;
  {
    MutexLock lock(&mutex_);
    jobs_.push_back(std::move(job));  // First: when it throws, nothing has happened.
    worker = TakeIdleLocked();
    // While stopping only jobs post, and the thread of such a job will come back for more.
    if (worker == nullptr && workers_.size() < max_threads_ && !stopping_) StartWorkerLocked();
    queued = !workers_.empty();
    if (!queued) {
      job = std::move(jobs_.back());
      jobs_.pop_back();
    }
  }
  if (worker != nullptr) scheduler_.WakeAll(worker->wake);
  if (!queued) job();
}

void Executor::Work(Worker* worker) {
  MutexLock lock(&mutex_);
  for (;;) {
    if (!jobs_.empty()) {
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.Unlock();
      job();
      job = nullptr;  // Its captures may be large, or take a lock when destroyed.
      lock.Lock();
      continue;
    }
    if (stopping_) return;
    worker->wake.store(0, std::memory_order_relaxed);
    idle_.push_back(worker);
    lock.Unlock();
    while (worker->wake.load(std::memory_order_acquire) == 0) {
      scheduler_.Wait(worker->wake, 0, kNoDeadline);
    }
    lock.Lock();
  }
}

}  // namespace cairn::io
