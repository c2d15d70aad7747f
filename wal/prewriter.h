// SPDX-License-Identifier: Apache-2.0
//
// Writes a spare segment with zeros, a step at a time, so that small groups later find written
// blocks: a first write to a block that is only allocated makes the file system commit its journal.
// How many segments depends on what small groups have used of late.
//
// One thread at a time; the history may be kept under a lock of the owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/io/world.h"
#include "wal/constants.h"

namespace cairn::wal {

// Remembers the segments that the log has filled.
class FillHistory {
 public:
  // A segment was filled with groups of this average size.
  void Filled(uint64_t now_ns, uint64_t group_bytes);
  // As many as small groups filled in kUsageWindowNs; none if large groups filled the last one.
  size_t segments_wanted(uint64_t now_ns) const;
  bool any() const { return any_; }

 private:
  std::array<uint64_t, kPrewrittenSegmentsMax> small_ns_{};  // A ring of times.
  size_t small_ = 0;  // Since large groups filled one; modulo the size, the next place.
  bool any_ = false;
};

class Prewriter {
 public:
  explicit Prewriter(io::World world) : world_(std::move(world)) {}

  uint64_t spare() const { return spare_; }  // The one under way; 0: none.
  // Writes the next step of a spare of this size and returns the bytes written. A spare other than
  // before begins at its start, and gets all its blocks.
  Result<uint64_t> Step(uint64_t spare, const std::string& path, uint64_t bytes);
  bool done() const { return spare_ == 0; }  // By the last step, and synced.
  // Forgets the spare: it is renamed, or removed, or cannot be written.
  void Drop();

 private:
  Status Write(uint64_t end);

  io::World world_;
  std::unique_ptr<io::File> file_;
  uint64_t spare_ = 0, at_ = 0;
};

}  // namespace cairn::wal
