// SPDX-License-Identifier: Apache-2.0
//
// The bug: io_uring gives what it cannot do at once (a sync, for one) to threads that the kernel
// makes for the process. Where the process may have no more (RLIMIT_NPROC, a container's limit of
// processes), nobody did it and who reaped waited for ever. Now it is taken back and done by the
// thread that reaps. Method: a child that may make no thread, more requests than a queue takes.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core/aligned_buffer.h"
#include "base/io/world.h"
#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

constexpr size_t kDepth = 4, kRequests = 12;

bool ReapsAll(const std::string& path) {
  alarm(30);  // Instead of for ever.
  constexpr uid_t kNobody = 65534;
  const rlimit none{0, 0};
  if (setuid(kNobody) != 0 || setrlimit(RLIMIT_NPROC, &none) != 0) return false;
  const io::World world = io::MakeRealWorld(io::IoBackend::kAuto).value();
  const auto file = world.files->Open(path, {.write = true, .create = true}).value();
  const AlignedBuffer bytes =
      AlignedBuffer::TryAllocate(Allocator::Default(), io::kBlockBytes, io::kBlockBytes);
  const auto queue = world.files->NewQueue(kDepth);
  io::Request requests[kRequests];
  size_t reaped = 0;
  const auto reap = [&] {
    const io::Request* const request = queue->Reap();
    ++reaped;
    return Expect(request->status.ok(), request->status.ToString());
  };
  for (size_t i = 0; i < kRequests; ++i) {
    requests[i].kind = i % 2 == 0 ? io::Request::Kind::kWrite : io::Request::Kind::kSync;
    requests[i].file = file.get();
    requests[i].data = bytes.data();
    requests[i].length = i % 2 == 0 ? io::kBlockBytes : 0;
    requests[i].offset = i * io::kBlockBytes;
    if (queue->in_flight() == kDepth && !reap()) return false;
    queue->Submit(&requests[i]);
  }
  while (queue->in_flight() > 0) {
    if (!reap()) return false;
  }
  return Expect(reaped == kRequests, "some were lost");
}

TEST(AQueueWithoutKernelThreads, IsReapedAllTheSame) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a user whose threads can be counted";
  const TempDirectory directory;
  ASSERT_EQ(0, chmod(directory.path().c_str(), 0777));
  EXPECT_TRUE(InChild([&] { return ReapsAll(directory.path() + "/file"); }));
}

}  // namespace
}  // namespace cairn::testing
