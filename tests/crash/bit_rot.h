// SPDX-License-Identifier: Apache-2.0
//
// Damages the files of a small store, one place after the other, and reads the store back as a user
// would after each.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace cairn::crash {

struct BitRotOptions {
  // How the store was left: closed in order, or killed with its last group just acknowledged.
  bool killed = false;
  uint64_t flip_stride = 1;    // Bytes between flips; in a sector of zeros, one flip per sector.
  uint64_t sector_stride = 1;  // Every how many of the other damages is tried.
  // Every how many of the damages that the opening refuses is tried with Recovery::kSetAside.
  uint64_t set_aside_stride = 1;
};

struct BitRotResult {
  // Damages tried.
  uint64_t flips = 0, sectors = 0, cuts = 0;
  // The results. Nothing: all was read as it was written, and Verify reported nothing.
  uint64_t set_aside = 0;  // Openings that refused damages were set aside in.
  uint64_t refused = 0, failed_reads = 0, told_by_verify = 0, shortened = 0, nothing = 0;
  std::map<std::string, uint64_t> nothing_in;  // By the kind of file.
  std::string violation;                       // The first broken promise; empty if none.
  uint64_t tried() const { return flips + sectors + cuts; }
  std::string ToString() const;
};

BitRotResult RunBitRot(const BitRotOptions& options);

}  // namespace cairn::crash
