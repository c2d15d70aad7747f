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
  queue->files_ = UringFiles::TryMake(&queue->ring_);
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
  // The number may be another file's by now, and is then not closed.
  if (lost_ || io_uring_enter(static_cast<unsigned>(ring_.ring_fd), 0, 0, 0, nullptr) != 0) {
    ring_.ring_fd = ring_.enter_ring_fd = -1;
  }
  if (files_ != nullptr) files_->End();
  io_uring_queue_exit(&ring_);
}

void UringQueue::Submit(Request* request) {
  CAIRN_CHECK(in_flight_ < depth_);
  ++in_flight_;
  request->status = Status();
  request->transferred = 0;
  Issue(request);
}

void UringQueue::RunHere(Request* request) {
  FileOf(request)->Run(*request);
  done_.PushBack(request);
}

// Submits the rest of the request to the kernel.
void UringQueue::Issue(Request* request) {
  PosixFile* file = FileOf(request);
  const bool alone = alone_ > 0;
  if (alone) --alone_;
  if (alone || lost_ ||
      (request->kind == Request::Kind::kDurableWrite && !file->dsync_in_one_call())) {
    return RunHere(request);
  }
  if (!PrepareOn(*file, request)) return done_.PushBack(request);
  Enter();
}

// Prepares an entry. False: the file's descriptor is lost, and the request is over.
bool UringQueue::PrepareOn(PosixFile& file, Request* request) {
  int place = UringFiles::kNoPlace;
  request->status = files_ != nullptr ? files_->Find(file, &place) : file.CheckDescriptor();
  if (!request->status.ok()) return false;
  const bool held = place != UringFiles::kNoPlace;
  const int fd = held ? place : file.fd();
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  CAIRN_CHECK(sqe != nullptr);  // The ring has an entry for each request in flight.
  std::byte* data = request->data + request->transferred;
  const size_t left = request->length - request->transferred;
  const auto length = static_cast<unsigned>(std::min(left, kMaxCallBytes));
  const uint64_t offset = request->offset + request->transferred;
  switch (request->kind) {
    case Request::Kind::kRead: io_uring_prep_read(sqe, fd, data, length, offset); break;
    case Request::Kind::kWrite: io_uring_prep_write(sqe, fd, data, length, offset); break;
    case Request::Kind::kDurableWrite:
      io_uring_prep_write(sqe, fd, data, length, offset);
      sqe->rw_flags = RWF_DSYNC;
      break;
    case Request::Kind::kSync: io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC); break;
  }
  if (held) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
  io_uring_sqe_set_data(sqe, request);
  return true;
}

// How many entries the kernel has taken, in all.
unsigned UringQueue::Taken() const { return io_uring_smp_load_acquire(ring_.sq.khead); }

// The number of the ring leads to something else, or nowhere. Entries that the kernel has not taken
// are done here; the others end in the ring's memory, which is still mapped.
void UringQueue::Lose() {
  lost_ = true;
  for (unsigned at = Taken(); at != ring_.sq.sqe_tail; ++at) {
    const io_uring_sqe& sqe = ring_.sq.sqes[at & ring_.sq.ring_mask];
    auto* request = reinterpret_cast<Request*>(static_cast<uintptr_t>(sqe.user_data));
    if (request != nullptr) RunHere(request);  // Else from TakeBack.
  }
}

// Submits prepared entries. False when the kernel is short of memory or wants completions to be
// taken first: then they go with the next call.
bool UringQueue::Enter() {
  while (!lost_) {
    const unsigned before = Taken();
    const int result = io_uring_submit(&ring_);
    if (result == -EINTR) continue;
    if (result == -EAGAIN || result == -EBUSY || result == -ENOMEM) return false;
    // Another ring may have the number: then it took nothing of ours.
    if (result < 0 || Taken() - before != static_cast<unsigned>(result)) Lose();
    return true;
  }
  return true;
}

// The same, and waits for a completion, but not for ever.
bool UringQueue::Await() {
  if (lost_) return false;
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
    if (result == -EAGAIN || result == -EBUSY || result == -ENOMEM) return false;
    Lose();
    return true;
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
    // Looking at a lost ring must not lead into the kernel.
    if ((lost_ && io_uring_cq_ready(&ring_) == 0) || io_uring_peek_cqe(&ring_, &cqe) != 0 ||
        cqe == nullptr) {
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
