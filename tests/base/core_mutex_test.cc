// SPDX-License-Identifier: Apache-2.0
//
// Property: one thread at a time has a Mutex, and its lock gives it back and takes it again where
// that is said. Method: threads add to a plain number, in and out of a lock's scope, as the thread
// sanitizer sees. (What the annotations refuse is refused where the fuzz preset compiles the
// library.)
#include "base/core/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cairn {
namespace {

constexpr int kThreads = 4, kRounds = 1000;

struct Counted {
  Mutex mutex;
  uint64_t count CAIRN_GUARDED_BY(mutex) = 0;

  void AddTwice() CAIRN_REQUIRES(mutex) {
    ++count;
    { MutexUnlock unlocked(&mutex); }
    ++count;
  }
  void Add() CAIRN_EXCLUDES(mutex) {
    MutexLock lock(&mutex);
    AddTwice();
    lock.Unlock();
    std::this_thread::yield();
    lock.Lock();
    ++count;
    if (count % 2 == 0) lock.Unlock();  // Its end then gives nothing back.
  }
};

TEST(Mutex, IsHeldByOneThreadAtATime) {
  Counted counted;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) counted.Add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&counted.mutex);
  EXPECT_EQ(counted.count, 3u * kThreads * kRounds);
}

TEST(SharedMutex, LetsReadersInTogetherAndOneWriter) {
  SharedMutex mutex;
  uint64_t count = 0;
  {
    ReaderLock first(&mutex);
    std::thread([&] {
      ReaderLock second(&mutex);
      EXPECT_EQ(count, 0u);
    }).join();
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        WriterLock lock(&mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, uint64_t{kThreads} * kRounds);
}

}  // namespace
}  // namespace cairn
