// SPDX-License-Identifier: Apache-2.0
//
// For sweeps: one operation of a simulated disk fails, the n-th of all or of some.
#pragma once

#include <cerrno>
#include <functional>
#include <string>
#include <utility>

#include "sim/disk.h"

namespace cairn::testing {

// As long as it lives. The operation that comes after `n` others of those that `counts` (null: all,
// looks and reads too) fails with EIO, once. Its end clears the disk of all faults.
class Strike {
 public:
  Strike(io::SimDisk& disk, uint64_t n,
         std::function<bool(const io::SimOperation&)> counts = nullptr)
      : disk_(disk) {
    disk.AddFault({.when =
                       [this, n, counts = std::move(counts)](const io::SimOperation& op) {
                         if ((counts && !counts(op)) || seen_++ != n) return false;
                         what_ = op.ToString();
                         return true;
                       },
                   .error = EIO});
  }
  ~Strike() { disk_.ClearFaults(); }
  Strike(const Strike&) = delete;
  Strike& operator=(const Strike&) = delete;

  bool met() const { return !what_.empty(); }  // False: there were fewer.
  const std::string& what() const { return what_; }

 private:
  io::SimDisk& disk_;
  uint64_t seen_ = 0;
  std::string what_;
};

}  // namespace cairn::testing
