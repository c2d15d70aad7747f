// SPDX-License-Identifier: Apache-2.0
#include "base/io/uring_queue.h"

#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/core/check.h"
#include "base/io/unique_fd.h"

namespace cairn::io {
namespace {

PosixFile* FileOf(const Request* request) { return static_cast<PosixFile*>(request->file); }

}  // namespace

int ProbeUring() {
  io_uring ring = {};
  int result = io_uring_queue_init(2, &ring, 0);
  if (result < 0) return -result;
  // A sandbox may grant the set-up and refuse the rest.
  io_uring_prep_nop(io_uring_get_sqe(&ring));
  result = io_uring_submit_and_wait(&ring, 1);
  io_uring_queue_exit(&ring);
  return result < 0 ? -result : 0;
}

std::unique_ptr<Queue> UringQueue::TryMake(size_t depth) {
  std::unique_ptr<UringQueue> queue(new UringQueue(depth));
  const auto entries = static_cast<unsigned>(std::bit_ceil(depth));
  if (io_uring_queue_init(entries, &queue->ring_, 0) < 0) {
    queue->ring_.ring_fd = -1;
    return nullptr;
  }
  queue->ring_.ring_fd = queue->ring_.enter_ring_fd = AboveStandard(queue->ring_.ring_fd);
  if (queue->ring_.ring_fd < 0) {
    io_uring_queue_exit(&queue->ring_);
    return nullptr;
  }
  // A child of fork() must not reap what its parent submitted.
  io_uring_ring_dontfork(&queue->ring_);
  return queue;
}

UringQueue::UringQueue(size_t depth) : depth_(depth), owner_(getpid()) { CAIRN_CHECK(depth_ > 0); }

UringQueue::~UringQueue() {
  if (ring_.ring_fd < 0) return;
  if (getpid() != owner_) {
    close(ring_.ring_fd);  // The rings themselves are not mapped here.
    return;
  }
  while (in_flight_ > 0) Reap();
  io_uring_queue_exit(&ring_);
}

void UringQueue::Submit(Request* request) {
  CAIRN_CHECK(in_flight_ < depth_);
  ++in_flight_;
  request->status = Status();
  request->transferred = 0;
  Issue(request);
}

// Submits the rest of the request to the kernel.
void UringQueue::Issue(Request* request) {
  const PosixFile* file = FileOf(request);
  const bool alone = alone_ > 0;
  if (alone) --alone_;
  if (alone || (request->kind == Request::Kind::kDurableWrite && !file->dsync_in_one_call())) {
    FileOf(request)->Run(*request);
    done_.PushBack(request);
    return;
  }
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  CAIRN_CHECK(sqe != nullptr);  // The ring has an entry for each request in flight.
  std::byte* data = request->data + request->transferred;
  const size_t left = request->length - request->transferred;
  const auto length = static_cast<unsigned>(std::min(left, kMaxCallBytes));
  const uint64_t offset = request->offset + request->transferred;
  switch (request->kind) {
    case Request::Kind::kRead: io_uring_prep_read(sqe, file->fd(), data, length, offset); break;
    case Request::Kind::kWrite: io_uring_prep_write(sqe, file->fd(), data, length, offset); break;
    case Request::Kind::kDurableWrite:
      io_uring_prep_write(sqe, file->fd(), data, length, offset);
      sqe->rw_flags = RWF_DSYNC;
      break;
    case Request::Kind::kSync: io_uring_prep_fsync(sqe, file->fd(), IORING_FSYNC_DATASYNC); break;
  }
  io_uring_sqe_set_data(sqe, request);
  Enter();
}

// Submits prepared entries. False when the kernel is short of memory or wants completions to be
// taken first: then they go with the next call.
bool UringQueue::Enter() {
  for (;;) {
    const int result = io_uring_submit(&ring_);
    if (result >= 0) return true;
    if (result == -EINTR) continue;
    CAIRN_CHECK(result == -EAGAIN || result == -EBUSY || result == -ENOMEM);
    return false;
  }
}

// The same, and waits for a completion, but not for ever.
bool UringQueue::Await() {
  __kernel_timespec patience{.tv_sec = 1, .tv_nsec = 0};
  for (;;) {
    io_uring_cqe* cqe = nullptr;
    const int result = io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &patience, nullptr);
    if (result >= 0) return true;
    if (result == -EINTR) continue;
    if (result == -ETIME) {
      TakeBack();
      return true;
    }
    CAIRN_CHECK(result == -EAGAIN || result == -EBUSY || result == -ENOMEM);
    return false;
  }
}

// Running requests end normally; those that wait for a thread end with -ECANCELED.
void UringQueue::TakeBack() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (sqe == nullptr) return;
  io_uring_prep_cancel(sqe, nullptr, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
  io_uring_sqe_set_data(sqe, nullptr);
  Enter();
}

// True when the request is over.
bool UringQueue::Complete(Request* request, int answer) {
  if (answer == -EAGAIN || answer == -ECANCELED) {
    // The kernel could not do it without blocking, or never came to it: block here.
    constexpr uint32_t kAlone = 64;  // Then it is tried again.
    if (answer == -ECANCELED) alone_ = kAlone;
    FileOf(request)->Run(*request);
    return true;
  }
  return FileOf(request)->Advance(*request, answer);
}

Request* UringQueue::Reap() {
  CAIRN_CHECK(in_flight_ > 0);
  constexpr timespec kShortOfMemoryPause{0, 1'000'000};
  for (;;) {
    if (!done_.empty()) {
      --in_flight_;
      return done_.PopFront();
    }
    io_uring_cqe* cqe = nullptr;
    if (io_uring_peek_cqe(&ring_, &cqe) != 0 || cqe == nullptr) {
      if (!Await()) nanosleep(&kShortOfMemoryPause, nullptr);
      continue;
    }
    auto* request = static_cast<Request*>(io_uring_cqe_get_data(cqe));
    const int answer = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    if (request == nullptr) continue;  // From TakeBack.
    if (Complete(request, answer)) {
      --in_flight_;
      return request;
    }
    Issue(request);
  }
}

}  // namespace cairn::io
