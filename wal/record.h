// SPDX-License-Identifier: Apache-2.0
//
// Records as the log's users see them: what to append, and what was found. The byte layout is in
// wal/format.h and wal/FORMAT.md. The log does not know what a record means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/codec/hash.h"
#include "cairn/status.h"

namespace cairn::wal {

// Where a record lies. The offset is that of its frame in the segment file.
struct Location {
  uint64_t segment = 0;
  uint64_t epoch = 0;
  uint32_t offset = 0;
  uint32_t bytes = 0;  // Frame, fields, strip table and payload; a multiple of 64.
  auto operator<=>(const Location&) const = default;
};

// A strip is the smallest piece of a payload that is read alone: it has a checksum of its own and
// starts at a multiple of 64 bytes. The tag is the writer's.
struct Strip {
  uint32_t tag = 0;
  uint32_t bytes = 0;
};

// Kind 0 means "never written".
struct RecordSpec {
  uint16_t kind = 0;
  bool more = false;  // The unit goes on in a later record; see `unit`.
  uint64_t unit = 0;  // 0: a unit of its own or the first of one; else sequence of the first.
  std::span<const std::byte> fields;  // A field table (base/codec/fields.h).
  std::span<const Strip> strips;
};

// A record whose header has been verified (magic, place, header hash). Points into the caller's
// bytes. The payload may be absent (recovery reads headers alone).
struct RecordView {
  uint16_t kind = 0;
  bool more = false;
  uint64_t sequence = 0;
  uint64_t unit = 0;  // Never 0 here: the sequence of the unit's first record.
  Location location;
  std::span<const std::byte> fields;
  size_t strip_count() const { return strips_.size(); }
  Strip strip(size_t index) const;
  // Offset of the strip's bytes from the record's frame.
  uint32_t strip_offset(size_t index) const;
  // `record` is the whole record, starting at its frame. kCorruption names segment and offset.
  Status VerifyStrip(std::span<const std::byte> record, size_t index, const StoreId& store) const;

  struct StripEntry {  // As on disk.
    uint32_t tag;
    uint32_t bytes;
    uint64_t hash;
  };
  std::span<const StripEntry> strips_;
  uint32_t payload_offset_ = 0;
};

// Whether the record in memory of the log (see Log::FindHot) has been published. One that was only
// reserved has a place but not yet its bytes; when this is true, they may be read.
bool IsSealed(std::span<const std::byte> record);

// Bytes that a record of these parts takes in the log.
uint64_t RecordBytes(size_t fields_bytes, std::span<const Strip> strips);

// Parses and verifies the header of the record that starts at bytes[0] and is meant to lie at
// `location` (of which `bytes` may be 0 when unknown). `bytes` must hold at least frame, fields and
// strip table. kCorruption names segment and offset; never reads out of bounds, whatever the bytes.
Result<RecordView> ParseRecord(std::span<const std::byte> bytes, const Location& location,
                               const StoreId& store);

}  // namespace cairn::wal
