// SPDX-License-Identifier: Apache-2.0
//
// The work of the process, independent of the rest of the machine.
#pragma once

#include <cstdint>

#include "base/io/unique_fd.h"

namespace cairn::bench {

// Counts this thread and those that it starts from now on: instructions in user space where the
// kernel grants a counter of them, else nanoseconds of processor time.
class WorkCounter {
 public:
  WorkCounter();
  uint64_t Read() const;
  bool counts_instructions() const { return counter_.valid(); }
  const char* unit() const { return counts_instructions() ? "instructions" : "ns of processor"; }

 private:
  io::UniqueFd counter_;
};

}  // namespace cairn::bench
