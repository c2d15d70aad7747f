// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/ring.h"

#if CAIRN_WITH_URING
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#endif

namespace cairn::bench {

#if CAIRN_WITH_URING
namespace {

class KernelRing final : public Ring {
 public:
  KernelRing() {
    io_uring_params parameters{};
    parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    ready_ = io_uring_queue_init_params(kDepth * 2, &ring_, &parameters) == 0;
    if (!ready_) ready_ = io_uring_queue_init(kDepth * 2, &ring_, 0) == 0;  // Before Linux 6.1.
  }
  ~KernelRing() override {
    if (ready_) io_uring_queue_exit(&ring_);
  }
  bool ready() const { return ready_; }

  int Read(int fd, uint64_t offset, std::byte* into, size_t bytes) override {
    return Transfer(bytes, [&](io_uring_sqe* sqe, size_t done, unsigned length) {
      io_uring_prep_read(sqe, fd, into + done, length, offset + done);
    });
  }

  int WriteDurable(int fd, uint64_t offset, const std::byte* from, size_t bytes) override {
    const int error = Transfer(bytes, [&](io_uring_sqe* sqe, size_t done, unsigned length) {
      io_uring_prep_write(sqe, fd, from + done, length, offset + done);
    });
    if (error != 0) return error;
    // By system call: a sync on the ring would run on a worker thread of the kernel, later.
    return fdatasync(fd) == 0 ? 0 : errno;
  }

 private:
  template <typename Prepare>
  int Transfer(size_t bytes, Prepare prepare) {
    size_t submitted = 0;
    unsigned in_flight = 0;
    int error = 0;
    while (in_flight > 0 || (submitted < bytes && error == 0)) {
      while (in_flight < kDepth && submitted < bytes && error == 0) {
        const auto length = static_cast<unsigned>(std::min(kPieceBytes, bytes - submitted));
        io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
        prepare(sqe, submitted, length);
        io_uring_sqe_set_data64(sqe, length);
        submitted += length;
        ++in_flight;
      }
      // Once all is submitted there is nothing to refill, so wait for the rest in one call.
      io_uring_submit_and_wait(&ring_, submitted < bytes ? 1 : in_flight);
      do {
        const int failed = Reap();
        error = error == 0 ? failed : error;
        --in_flight;
      } while (in_flight > 0 && io_uring_cq_ready(&ring_) > 0);
    }
    return error;
  }

  // One completion; a transfer shorter than asked for counts as EIO.
  int Reap() {
    io_uring_cqe* cqe = nullptr;
    int error = 0;
    do {
      error = -io_uring_wait_cqe(&ring_, &cqe);
    } while (error == EINTR);
    if (error != 0) return error;
    if (cqe->res < 0) {
      error = -cqe->res;
    } else if (static_cast<uint64_t>(cqe->res) != io_uring_cqe_get_data64(cqe)) {
      error = EIO;
    }
    io_uring_cqe_seen(&ring_, cqe);
    return error;
  }

  io_uring ring_{};
  bool ready_ = false;
};

}  // namespace

std::unique_ptr<Ring> Ring::TryCreate() {
  auto ring = std::make_unique<KernelRing>();
  if (!ring->ready()) return nullptr;
  return ring;
}
#else
std::unique_ptr<Ring> Ring::TryCreate() { return nullptr; }
#endif

}  // namespace cairn::bench
