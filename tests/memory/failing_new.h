// SPDX-License-Identifier: Apache-2.0
//
// operator new that fails on demand, for the whole program it is linked into. One thread at a time
// sets plans.
#pragma once

#include <cstdint>
#include <functional>

#include "cairn/allocator.h"

namespace cairn::memory {

// Which allocations fail. They are counted, from 1 on, where allocations may fail: within
// a FailingScope, and not within the simulated machine (whole_world.h).
struct FailPlan {
  uint64_t at = UINT64_MAX;
  bool persistent = false;  // Every one from `at` on.
  // Those of the thread that sets the plan alone. Else those of all threads, and where several run
  // it is chance whose fails.
  bool of_this_thread = false;
};
void SetFailPlan(const FailPlan& plan);  // Counts from 1 again.
void EndFailPlan();                      // None fails any more. The counts stay.
uint64_t AllocationsCounted();
uint64_t AllocationsFailed();
// Where the first one that failed was asked for, as a list of addresses for addr2line, to stderr.
void PrintFirstFailure();
void PrintStack();  // Where the caller is, in the same way.

// Calls `act` at the n-th allocation from now of this thread, wherever that is: between two steps
// of a call, or under a lock. 0: not any more. Returns how many were still to come.
uint64_t CallAtAllocation(uint64_t n, std::function<void()> act = nullptr);

// Allocates through such an operator new: for Options::allocator, since the default one maps large
// memory.
Allocator NewAllocator();

// Where allocations may fail now. Returns what was so before.
bool SetFailing(bool on);

class FailingScope {
 public:
  FailingScope() : before_(SetFailing(true)) {}
  ~FailingScope() { SetFailing(before_); }
  FailingScope(const FailingScope&) = delete;
  FailingScope& operator=(const FailingScope&) = delete;

 private:
  const bool before_;
};

}  // namespace cairn::memory
