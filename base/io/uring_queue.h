// SPDX-License-Identifier: Apache-2.0
//
// Queues on io_uring: one ring a queue.
//
// The rings are plain, because a queue may be handed from thread to thread: SINGLE_ISSUER forbids
// that, and with COOP_TASKRUN a completion could wait for the next system call of the submitting
// thread while another one reaps. (COOP_TASKRUN gained nothing measurable on durable 4 KiB writes,
// one at a time.)
//
// The kernel gives requests that would block to a thread of its own; if it may make none (the
// process is at its limit), they are never done. So a request that is not over after a second is
// cancelled, and the reaping thread does it.
//
// The ring holds the files (uring_files.h). If its own descriptor is closed by somebody else the
// ring is lost: what the kernel has of it ends normally, and everything else is done by the threads
// that reap.
#pragma once

#include <liburing.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "base/io/posix_file.h"
#include "base/io/request_list.h"
#include "base/io/uring_files.h"
#include "base/io/world.h"

namespace cairn::io {

// 0 when this process may use io_uring, else the errno that the kernel gave.
int ProbeUring();

class UringQueue final : public Queue {
 public:
  // Null when the kernel grants no (further) ring.
  static std::unique_ptr<Queue> TryMake(size_t depth);
  ~UringQueue() override;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  void Submit(Request* request) override;
  Request* Reap() override;
  size_t in_flight() const override { return in_flight_; }

 private:
  explicit UringQueue(size_t depth);
  void Issue(Request* request);
  bool Enter();
  bool Await();
  void TakeBack();
  bool PrepareOn(PosixFile& file, Request* request);
  unsigned Taken() const;
  void Lose();
  void RunHere(Request* request);
  bool Complete(Request* request, int answer);

  const size_t depth_;
  const pid_t owner_;
  io_uring ring_ = {};
  std::shared_ptr<UringFiles> files_;  // Null: requests name descriptors.
  bool lost_ = false;                  // The ring's descriptor is not its own any more.
  size_t in_flight_ = 0;
  uint32_t alone_ = 0;  // Requests still to be done without the kernel's threads.
  RequestList done_;    // Finished without the ring, waiting to be reaped.
};

}  // namespace cairn::io
