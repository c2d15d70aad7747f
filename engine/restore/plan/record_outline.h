// SPDX-License-Identifier: Apache-2.0
//
// A record of the log taken apart: what its ops put into it, and where its strips lie. A batch is
// one record of many parts; its outline is kept, so that the next read of a part reads and verifies
// the strips of that part and nothing else of the record. So is that of a record of many strips,
// which is found in the page cache by it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/core/mutex.h"
#include "engine/restore/plan/plan.h"
#include "engine/tree/memory/op.h"
#include "wal/strips.h"

namespace cairn::engine {

// Kept for each outline beside its content: list and map nodes, the control block.
inline constexpr uint64_t kOutlineEntryBytes = 160;
// Strips from which on the outline of a record with one op is kept.
inline constexpr size_t kKeptOutlineStrips = 8;

class RecordOutline {
 public:
  // `bytes` begin with the record, and hold its header at least. kCorruption names segment and
  // offset.
  static Result<std::shared_ptr<const RecordOutline>> Make(std::span<const std::byte> bytes,
                                                           const wal::Location& location,
                                                           const StoreId& store);

  const wal::Location& location() const { return location_; }
  size_t op_count() const { return ends_.size(); }
  std::span<const LaneRange> LanesOf(size_t op) const;
  size_t strip_count() const { return strips_.size(); }
  const wal::StripPlace& strip(size_t index) const;
  bool IsPacked(size_t strip) const { return strip < packed_.size() && packed_[strip]; }
  // `bytes` are the strip's. kCorruption names segment and offset.
  Status VerifyStrip(size_t index, std::span<const std::byte> bytes, const StoreId& store) const;
  // The range of a lane of an op that begins there. Null: there is none.
  const LaneRange* Find(size_t op, uint32_t lane, uint64_t begin) const;
  // The first strip behind those of a range.
  size_t EndOfStrips(const LaneRange& range) const;

  // Whether it is worth keeping: strips of more than one op, or many, in the order of the ops.
  bool keeps() const { return keeps_; }
  uint64_t memory_bytes() const;

 private:
  RecordOutline() = default;

  wal::Location location_;
  uint64_t sequence_ = 0;
  bool keeps_ = false;
  std::vector<uint32_t> ends_;  // By op: the end of its lanes.
  std::vector<LaneRange> lanes_;
  std::vector<wal::StripPlace> strips_;
  std::vector<bool> packed_;  // By strip; empty: none is.
};

// The outlines that were used last, as far as there is memory for them. A place in the log is
// written once in an epoch, so an outline never becomes wrong. Thread-safe.
class RecordOutlines {
 public:
  explicit RecordOutlines(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Cuts the jobs whose outlines are known down to the strips that they want.
  void Narrow(std::span<RecordJob> jobs);
  // The outline of a job's record. `bytes`: what the job reads.
  Result<std::shared_ptr<const RecordOutline>> Of(const RecordJob& job,
                                                  std::span<const std::byte> bytes,
                                                  const StoreId& store);
  void Clear();
  uint64_t bytes();

 private:
  using Outlines = std::list<std::shared_ptr<const RecordOutline>>;
  struct HashOf {
    size_t operator()(const wal::Location& at) const;
  };

  std::shared_ptr<const RecordOutline> Find(const wal::Location& location);
  void Keep(std::shared_ptr<const RecordOutline> outline);

  const uint64_t bytes_max_;
  Mutex mutex_;
  Outlines outlines_ CAIRN_GUARDED_BY(mutex_);  // The one used last comes first.
  std::unordered_map<wal::Location, Outlines::iterator, HashOf> places_ CAIRN_GUARDED_BY(mutex_);
  uint64_t bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::engine
