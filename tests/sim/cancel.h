// SPDX-License-Identifier: Apache-2.0
//
// Ends calls at every operation of the disk, by Cancel, by their deadline and by closing the store,
// takes their memory away, and looks whether the store still uses it.
#pragma once

#include <cstdint>
#include <string>

namespace cairn::sim {

struct CancelOptions {
  uint64_t stride = 1;  // Every how many operations.
  // A canary that the check must find: the memory is taken away before the call is over.
  bool too_early = false;
};

struct CancelResult {
  uint64_t runs = 0;
  // How the calls ended.
  uint64_t done = 0, cancelled = 0, unknown = 0, timed_out = 0, refused = 0;
  std::string violation;  // The first; empty if none.

  std::string Counts() const;  // One line.
};

CancelResult RunCancels(const CancelOptions& options);

}  // namespace cairn::sim
