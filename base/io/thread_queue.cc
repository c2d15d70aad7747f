// SPDX-License-Identifier: Apache-2.0
#include "base/io/thread_queue.h"

#include <unistd.h>

#include "base/core/check.h"
#include "base/io/posix_file.h"

namespace cairn::io {
namespace {

void Run(Request* request) { static_cast<PosixFile*>(request->file)->Run(*request); }

}  // namespace

ThreadPool::ThreadPool() : owner_(getpid()) {
  threads_.reserve(kMaxThreads);  // Submit and the threads must not throw.
}

ThreadPool::~ThreadPool() {
  // In a forked child the threads do not exist, and one of them may hold the mutex for ever.
  if (getpid() == owner_) {
    MutexLock lock(&mutex_);
    CAIRN_CHECK(first_offer_ == nullptr);
    stopping_ = true;
    work_.NotifyAll();
  }
  threads_.clear();
}

// Offers a queue with waiting requests, once, and makes sure that a thread will come.
void ThreadPool::OfferLocked(ThreadQueue* queue) {
  queue->pool_->mutex_.AssertHeld();  // This is its pool.
  if (!queue->offered_) {
    queue->offered_ = true;
    queue->next_offer_ = first_offer_;
    first_offer_ = queue;
  }
  if (idle_ > 0) {
    work_.NotifyOne();
  } else if (threads_.size() < kMaxThreads) {
    // If no thread can be had the reaping thread does the work.
    auto thread = scheduler_.StartThread("cairn-io", [this] { Work(); });
    if (thread != nullptr) threads_.push_back(std::move(thread));
  }
}

void ThreadPool::Work() {
  MutexLock lock(&mutex_);
  for (;;) {
    while (first_offer_ == nullptr && !stopping_) {
      ++idle_;
      work_.Wait(&mutex_);
      --idle_;
    }
    if (first_offer_ == nullptr) return;
    ThreadQueue* queue = first_offer_;
    queue->pool_->mutex_.AssertHeld();  // This is its pool.
    first_offer_ = queue->next_offer_;
    queue->offered_ = false;
    if (queue->waiting_.empty()) continue;  // The reaping thread was quicker.
    Request* request = queue->waiting_.PopFront();
    if (!queue->waiting_.empty()) OfferLocked(queue);

    lock.Unlock();
    Run(request);
    lock.Lock();
    // The queue lives until this request was handed back, which takes the mutex.
    queue->done_.PushBack(request);
    queue->reaper_.NotifyOne();
  }
}

ThreadQueue::ThreadQueue(std::shared_ptr<ThreadPool> pool, size_t depth)
    : pool_(std::move(pool)), depth_(depth) {
  CAIRN_CHECK(depth_ > 0);
}

ThreadQueue::~ThreadQueue() {
  if (getpid() != pool_->owner_) return;
  while (in_flight_ > 0) Reap();
  MutexLock lock(&pool_->mutex_);
  if (!offered_) return;
  ThreadQueue** link = &pool_->first_offer_;
  while (*link != this) link = &(*link)->next_offer_;
  *link = next_offer_;
}

void ThreadQueue::Submit(Request* request) {
  CAIRN_CHECK(in_flight_ < depth_);
  ++in_flight_;
  request->status = Status();
  request->transferred = 0;
  MutexLock lock(&pool_->mutex_);
  waiting_.PushBack(request);
  if (in_flight_ > 1) pool_->OfferLocked(this);
}

Request* ThreadQueue::Reap() {
  CAIRN_CHECK(in_flight_ > 0);
  MutexLock lock(&pool_->mutex_);
  Request* request = nullptr;
  while (done_.empty() && waiting_.empty()) reaper_.Wait(&pool_->mutex_);
  if (!done_.empty()) {
    request = done_.PopFront();
  } else {
    request = waiting_.PopFront();
    lock.Unlock();
    Run(request);
  }
  --in_flight_;
  return request;
}

}  // namespace cairn::io
