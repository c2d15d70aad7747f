// SPDX-License-Identifier: Apache-2.0
//
// Makes calls with a failing allocation: each of their allocations in turn.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "tests/memory/failing_new.h"

namespace cairn::memory {

// As long as it lives, what is called here, and threads that run meanwhile, find no memory at the
// n-th allocation, or none from there on.
class FailingAt {
 public:
  explicit FailingAt(uint64_t n, bool persistent = false)
      : FailingAt(FailPlan{.at = n, .persistent = persistent}) {}
  explicit FailingAt(const FailPlan& plan) { SetFailPlan(plan); }
  ~FailingAt() { EndFailPlan(); }
  FailingAt(const FailingAt&) = delete;
  FailingAt& operator=(const FailingAt&) = delete;

 private:
  const FailingScope scope_;
};

// `run` for every n, until the n-th allocation is none of what it calls. How often it ran.
inline uint64_t AtEveryAllocation(const std::function<void(uint64_t n)>& run) {
  uint64_t n = 1;
  for (;; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    run(n);
    if (::testing::Test::HasFailure()) break;
    if (AllocationsFailed() == 0) {
      EXPECT_GT(n, 1u) << "none failed";
      break;
    }
  }
  SetFailPlan({});
  return n;
}

}  // namespace cairn::memory
