// SPDX-License-Identifier: Apache-2.0
//
// One small instance of every format on disk, its bits flipped and cut to its lengths, each read by
// its own reader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cairn::crash {

struct FormatRotOptions {
  uint64_t seed = 0;        // Which bit and length are the first.
  uint64_t bit_stride = 1;  // Every how many bits one is flipped...
  uint64_t cut_stride = 1;  // ...and every how many lengths one is cut to.
};

struct FormatRot {
  std::string format;
  uint64_t bytes = 0;  // The instance's size.
  uint64_t flips = 0, cuts = 0;
  uint64_t refused = 0;    // A Status.
  uint64_t unchanged = 0;  // Exactly the original, so these bits do not matter.
  // Other content. None, except in a format without a checksum, whose owner has one.
  uint64_t other = 0;
  bool checked = true;    // Whether the format has one.
  std::string violation;  // The first broken promise; empty if none.
  std::string ToString() const;
};

std::vector<FormatRot> RunFormatRot(const FormatRotOptions& options);

}  // namespace cairn::crash
