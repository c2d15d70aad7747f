// SPDX-License-Identifier: Apache-2.0
//
// The files that a ring holds: its requests name a place in the ring's own table, which a close()
// by somebody else cannot reach, and no descriptor. A file gets a place with its first request;
// when all are taken, the least recently used file loses its place. The file gives its places back
// when it ends, since a ring that holds it would keep its blocks on the disk.
#pragma once

#include <liburing.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>

#include "base/core/mutex.h"
#include "base/io/posix_file.h"
#include "cairn/status.h"

namespace cairn::io {

class UringFiles final : public FileHolder, public std::enable_shared_from_this<UringFiles> {
 public:
  static constexpr int kNoPlace = -1;

  // Null if the kernel has no such tables, or refuses one. End() comes before the ring's end.
  static std::shared_ptr<UringFiles> TryMake(io_uring* ring);
  UringFiles(io_uring* ring, pid_t owner) : ring_(ring), owner_(owner) {}

  // The file's place; kNoPlace if the ring does not take it. kIoError: the file's descriptor is
  // lost, and the ring does not hold it yet. For the thread that has the queue.
  Status Find(PosixFile& file, int* place);
  void Forget(uint64_t file_id) override;
  void End();

 private:
  // More than a log, a table that is written and the tables of a restore; few enough to look
  // through at each request.
  static constexpr unsigned kPlaces = 32;
  struct Place {
    uint64_t file_id = 0;  // 0: free.
    uint64_t used = 0;
  };

  Mutex mutex_;
  io_uring* ring_ CAIRN_GUARDED_BY(mutex_);  // Null after End.
  const pid_t owner_;
  std::array<Place, kPlaces> places_ CAIRN_GUARDED_BY(mutex_);
  uint64_t uses_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::io
