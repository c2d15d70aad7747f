// SPDX-License-Identifier: Apache-2.0
//
// Chooses the backend of the real machine.
#include "base/io/os_error.h"
#include "base/io/posix_file_system.h"
#include "base/io/real_scheduler.h"
#include "base/io/thread_queue.h"
#include "base/io/world.h"

#if CAIRN_WITH_URING
#include "base/io/uring_queue.h"
#endif

namespace cairn::io {
namespace {

// Empty when io_uring can be used.
std::string WhyNoUring() {
#if CAIRN_WITH_URING
  const int error = ProbeUring();
  if (error == 0) return {};
  return "io_uring is refused: " + DescribeErrno(error) +
         "; allow it with sysctl kernel.io_uring_disabled=0 and a seccomp profile that permits "
         "io_uring_setup, io_uring_enter and io_uring_register";
#else
  return "io_uring is not in this build; build with CAIRN_WITH_URING=ON";
#endif
}

std::shared_ptr<FileSystem> MakeFiles(bool uring, uint32_t file_mode) {
  auto pool = std::make_shared<ThreadPool>();
#if CAIRN_WITH_URING
  if (uring) {
    const auto new_queue = [pool](size_t depth) -> std::unique_ptr<Queue> {
      // Rings cost locked memory and descriptors; a further one may be refused at any time.
      auto queue = UringQueue::TryMake(depth);
      if (queue == nullptr) queue = std::make_unique<ThreadQueue>(pool, depth);
      return queue;
    };
    return std::make_shared<PosixFileSystem>("io_uring", new_queue, file_mode);
  }
#endif
  (void)uring;
  return std::make_shared<PosixFileSystem>(
      "threads", [pool](size_t depth) { return std::make_unique<ThreadQueue>(pool, depth); },
      file_mode);
}

}  // namespace

Result<World> MakeRealWorld(IoBackend backend, std::string* why, uint32_t file_mode) {
  // A name drawn badly would be taken for another store's: better none is made.
  if (const int error = RealScheduler::RandomIsRefused(); error != 0) {
    return OsError(error, "getrandom", "no random numbers");
  }
  bool uring = false;
  if (backend != IoBackend::kThreads) {
    const std::string refusal = WhyNoUring();
    uring = refusal.empty();
    if (!uring && backend == IoBackend::kUring) return Status(StatusCode::kIoError, refusal);
    if (!uring && why != nullptr) *why = refusal + "; blocking threads are used instead";
  }
  return World{.files = MakeFiles(uring, file_mode),
               .scheduler = std::make_shared<RealScheduler>()};
}

}  // namespace cairn::io
