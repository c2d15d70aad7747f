// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever another thread does to the keys between two steps of a call, the answer for a
// key is true at some moment of the call. Method: that of between_test.cc.
#include <chrono>
#include <future>
#include <thread>

#include "tests/engine/objects_test.h"
#include "tests/memory/failing_new.h"

namespace cairn::testing {
namespace {

constexpr std::chrono::milliseconds kLocked(2);  // Done by then, or it waits.
constexpr uint64_t kMaxSteps = 2000;             // More allocations than any of these calls makes.

class ObjectsBetweenTest : public ::testing::Test {
 protected:
  void Open(const Options& options) {
    ASSERT_OK_ASSIGN(store_, Store::Open(":memory:", options));
    space_ = Objects(store_);
    ASSERT_OK_ASSIGN(class_, space_.RegisterClass({.name = "pages", .page_bytes = 512}));
  }
  Result<std::vector<PutResult>> Put(std::initializer_list<std::string_view> keys,
                                     IfPresent if_present = IfPresent::kKeep) {
    std::vector<ObjectPut> puts;
    for (const std::string_view key : keys) puts.push_back({.key = key, .value = value_});
    return space_.PutBatch(
        puts,
        {.object_class = class_, .if_present = if_present, .durability = Durability::kMemory});
  }
  // At the n-th allocation from now of this thread another one runs `other`.
  void Beside(uint64_t n, const std::function<void()>& other,
              const std::function<void()>& then = nullptr) {
    memory::CallAtAllocation(n, [=, this] {
      std::promise<void> done;
      std::future<void> is_done = done.get_future();
      threads_.emplace_back([other, done = std::move(done)]() mutable {
        other();
        done.set_value();
      });
      is_done.wait_for(kLocked);
      if (then) then();
    });
  }
  // Waits for the call that was to come. False: it never came.
  bool Join() {
    const bool came = memory::CallAtAllocation(0) == 0;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return came;
  }

  const std::vector<std::byte> value_ = Content(1, 1300);
  Store store_;
  Objects space_;
  ObjectClassId class_{};
  std::vector<std::thread> threads_;
};

// A key that always exists, as one object or the next.
TEST_F(ObjectsBetweenTest, WhatIsReplacedIsThere) {
  Open(TinyOptions());
  ASSERT_OK(Put({"a"}));
  uint64_t n = 1;
  for (bool came = true; came && n < kMaxSteps; ++n) {
    SCOPED_TRACE("at allocation " + std::to_string(n));
    Beside(n, [&] { EXPECT_OK(Put({"a"}, IfPresent::kReplace)); });
    const Result<ObjectInfo> info = space_.Stat("a");
    came = Join();
    ASSERT_OK(info);
    EXPECT_EQ(1300u, info->bytes);
  }
  EXPECT_GT(n, 10u);
}

// Names are read without the lock. One that somebody else loads meanwhile, and that is not in
// memory any more when all are read, was taken for free: its key was put a second time. Each of the
// two reads takes many allocations.
TEST_F(ObjectsBetweenTest, WhatIsLoadedAndForgottenMeanwhileIsThere) {
  constexpr uint64_t kStep = 4;
  Options options = TinyOptions();
  options.tree_memory_bytes = 0;
  Open(options);
  ASSERT_OK(Put({"a", "b", "c"}));
  ASSERT_OK(store_.Compact());
  uint64_t n = 1;
  for (bool came = true; came && n < kMaxSteps; n += kStep) {
    bool then_came = true;
    for (uint64_t k = 1; came && then_came && k < kMaxSteps; k += kStep) {
      SCOPED_TRACE("at allocations " + std::to_string(n) + " and " + std::to_string(k) + " more");
      for (int i = 0; i < 4; ++i) ASSERT_OK(Put({"c"}));  // The others are in memory no more.
      bool first = false;
      Beside(
          n, [&] { EXPECT_OK(Put({"a"})); },
          [&] {
            first = true;
            Beside(k, [&] {
              for (int i = 0; i < 4; ++i) EXPECT_OK(Put({"c"}));
            });
          });
      const Result<std::vector<PutResult>> kept = Put({"a", "b"});
      then_came = Join();
      came = first;
      ASSERT_OK(kept);
      for (const PutResult& result : *kept) {
        EXPECT_OK(result.status);
        EXPECT_FALSE(result.stored);
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(3u, space_.Usage()->at(0).branches);
}

}  // namespace
}  // namespace cairn::testing
