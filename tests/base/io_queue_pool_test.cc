// SPDX-License-Identifier: Apache-2.0
//
// Property: a pool of queues lends each to one caller at a time, keeps no more than its limit when
// they come back, and a lease that ends early waits for what is in flight.
#include "base/io/queue_pool.h"

#include <gtest/gtest.h>

#include <array>

#include "base/io/forwarding_file_system.h"

namespace cairn::io {
namespace {

class CountingFiles final : public ForwardingFileSystem {
 public:
  CountingFiles() : ForwardingFileSystem(MakeMemoryWorld().files) {}
  std::unique_ptr<Queue> NewQueue(size_t depth) override {
    ++made;
    last_depth = depth;
    return ForwardingFileSystem::NewQueue(depth);
  }
  size_t made = 0;
  size_t last_depth = 0;
};

TEST(QueuePool, KeepsSomeOfThoseThatCameBack) {
  CountingFiles files;
  QueuePool pool(&files, 7, 1);
  EXPECT_EQ(files.made, 0u);
  std::unique_ptr<Queue> first = pool.Take();
  std::unique_ptr<Queue> second = pool.Take();
  EXPECT_EQ(files.made, 2u);
  EXPECT_EQ(files.last_depth, 7u);
  const Queue* const kept = second.get();
  pool.Return(std::move(second));
  pool.Return(std::move(first));  // One more than is kept.
  first = pool.Take();
  EXPECT_EQ(first.get(), kept);
  second = pool.Take();
  EXPECT_EQ(files.made, 3u);
  pool.Return(std::move(first));
  pool.Clear();
  first = pool.Take();
  EXPECT_EQ(files.made, 4u);
}

TEST(QueuePool, ALeaseWaitsForWhatIsInFlight) {
  CountingFiles files;
  auto file = files.Open("f", {.write = true, .create = true});
  ASSERT_TRUE(file.ok());
  const std::array<std::byte, 3> bytes = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE((*file)->Write(0, bytes, /*durable=*/false).ok());
  QueuePool pool(&files, 2, 1);
  std::array<std::byte, 3> read{};
  Request request{.file = file->get(), .data = read.data(), .length = read.size()};
  {
    const QueuePool::Lease queue(&pool);
    queue->Submit(&request);
    EXPECT_EQ(queue->in_flight(), 1u);
  }
  EXPECT_TRUE(request.status.ok());
  EXPECT_EQ(read, bytes);
  const QueuePool::Lease again(&pool);
  EXPECT_EQ(again->in_flight(), 0u);
  EXPECT_EQ(files.made, 1u);
}

}  // namespace
}  // namespace cairn::io
