// SPDX-License-Identifier: Apache-2.0
//
// Reads a log from its first segment to its last, whatever its state: damage is reported and
// skipped. Recovery (wal/log.h) decides what a store may serve; this shows the content of the
// files.
#pragma once

#include <cstdint>
#include <string>

#include "base/io/world.h"
#include "wal/segment_reader.h"

namespace cairn::cli {

// Why the walk through a segment ends, or jumps.
struct LogStop {
  enum class Kind : uint8_t {
    kEnd,      // Nothing more was written.
    kTorn,     // The last group is incomplete; it was never acknowledged as durable.
    kDamaged,  // Bytes that later ones were built on are wrong or missing.
    kVoid,     // A segment that an earlier recovery cut off.
  };
  Kind kind = Kind::kEnd;
  std::string path;
  uint64_t segment = 0, offset = 0;
  std::string what;
  uint64_t lost_first = 0, lost_last = 0;  // Sequences that cannot be read; 0, 0: none known.
  uint64_t resumes_at = 0;                 // Offset where the walk goes on; 0: it does not.
};
const char* StopName(LogStop::Kind kind);

class LogVisitor {
 public:
  virtual ~LogVisitor() = default;
  virtual void OnSegment(const wal::SegmentReader& reader, const wal::SegmentHeader& header) = 0;
  // The group is good until the function returns.
  virtual void OnGroup(const wal::SegmentReader::Group& group) = 0;
  virtual void OnStop(const LogStop& stop) = 0;
};

struct LogPlace {
  std::string directory;  // "<store>/log"
  StoreId store;
  uint64_t first_segment = 1;
};
// From the manifest; if that is damaged, from the first segment that has a header. `note` then says
// so. kNotFound when there is neither.
Result<LogPlace> FindLog(io::World& world, const std::string& store, std::string* note);

// Fails only on errors of the operating system.
Status WalkLog(io::World& world, const LogPlace& place, LogVisitor* visitor);

}  // namespace cairn::cli
