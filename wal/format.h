// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a segment file; wal/FORMAT.md explains them. Structures lie on disk as they lie in
// memory: little-endian, no padding, the hash first and over everything that follows it, sealed
// with the place (store, segment, epoch, offset) so that right bytes in the wrong place fail.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "base/codec/hash.h"
#include "base/core/align.h"
#include "base/core/check.h"
#include "cairn/status.h"
#include "wal/constants.h"
#include "wal/record.h"

namespace cairn::wal {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint64_t kSegmentMagic = 0x474f4c4e52494143;  // "CAIRNLOG"
inline constexpr uint32_t kGroupMagic = 0x50524743;            // "CGRP"
inline constexpr uint32_t kRecordMagic = 0x43455243;           // "CREC"
inline constexpr uint32_t kFooterMagic = 0x544f4643;           // "CFOT"

inline constexpr uint32_t kFormatVersion = 1;
inline constexpr uint8_t kRecordVersion = 1;

// At offset 0, in a block of its own, written together with the first group.
struct SegmentHeader {
  uint64_t hash;  // Over the rest of the 4 KiB block. Sealed with epoch and offset of the header.
  uint64_t magic;
  uint32_t format_version;
  uint32_t flags;  // 0
  StoreId store;
  uint64_t segment;
  uint64_t epoch;
  uint64_t first_sequence;
  uint64_t segment_bytes;
  uint64_t created_wall_ns;
  uint64_t synced_upto;
  // Where the log ended when this segment was opened. All 0 for the first segment of a store.
  uint64_t predecessor_segment;
  uint64_t predecessor_epoch;
  uint64_t predecessor_last_sequence;
  uint64_t predecessor_end_offset;
  uint64_t predecessor_last_hash;  // GroupHeader::hash of its last group.
  uint64_t first_group_hash;       // Binds the first group to this very header.
};
static_assert(sizeof(SegmentHeader) == 136);
static_assert(offsetof(SegmentHeader, format_version) == 16);
static_assert(offsetof(SegmentHeader, store) == 24);
static_assert(offsetof(SegmentHeader, segment) == 40);
static_assert(offsetof(SegmentHeader, predecessor_segment) == 88);
static_assert(offsetof(SegmentHeader, first_group_hash) == 128);

struct GroupHeader {
  uint64_t hash;
  uint32_t magic;
  uint32_t record_count;
  uint64_t epoch;
  uint64_t segment;
  uint64_t first_sequence;
  uint32_t length;  // Header and records, without the padding to 4 KiB.
  uint32_t flags;
  uint64_t synced_upto;   // Every sequence up to it was durable when this group was closed.
  uint64_t records_hash;  // Over the header hashes of the records, in order: binds the contents.

  uint64_t last_sequence() const { return first_sequence + record_count - 1; }
};
static_assert(sizeof(GroupHeader) == 64);
static_assert(offsetof(GroupHeader, epoch) == 16);
static_assert(offsetof(GroupHeader, length) == 40);
static_assert(offsetof(GroupHeader, records_hash) == 56);

// The log was closed in order: nothing follows in this epoch. Such a group has no records.
inline constexpr uint32_t kGroupCleanEnd = 1;

struct RecordFrame {
  uint64_t header_hash;  // Over the rest of the frame, the fields and the strip table.
  uint32_t magic;
  uint16_t kind;
  uint8_t version;
  uint8_t flags;
  uint32_t fields_bytes;  // Padded to 8 in the record.
  uint32_t strip_count;
  uint32_t payload_offset;  // From the frame; a multiple of 64.
  uint32_t record_bytes;    // Everything; a multiple of 64.
  uint64_t sequence;
  uint64_t unit;
  uint64_t reserved[2];  // 0
};
static_assert(sizeof(RecordFrame) == 64);
static_assert(offsetof(RecordFrame, fields_bytes) == 16);
static_assert(offsetof(RecordFrame, sequence) == 32);
static_assert(sizeof(RecordView::StripEntry) == 16);

inline constexpr uint8_t kRecordMore = 1;

// The last 64 bytes of a full segment. Before it, from `footer_offset`, for each group:
//   FooterGroup, then for each of its records FooterRecord and the record's header.
struct FooterTrailer {
  uint64_t hash;
  uint32_t magic;
  uint32_t group_count;
  uint64_t segment;
  uint64_t epoch;
  uint64_t first_sequence;
  uint64_t last_sequence;
  uint32_t footer_offset;  // A multiple of 4 KiB.
  uint32_t entries_bytes;
  uint64_t entries_hash;  // Unsealed: the trailer's seal covers it.
};
static_assert(sizeof(FooterTrailer) == 64);

struct FooterGroup {
  uint64_t offset;
  GroupHeader header;
};
static_assert(sizeof(FooterGroup) == 72);

struct FooterRecord {
  uint32_t offset;
  uint32_t header_bytes;
};
static_assert(sizeof(FooterRecord) == 8);

// The first group of a segment lies behind the header block.
inline constexpr uint32_t kFirstGroupOffset = kBlock;
// Largest size of a segment's first group, header included.
constexpr uint64_t MaxGroupBytes(uint64_t segment_bytes) { return segment_bytes - kBlock; }

// Frame, fields and strip table: what the header hash covers, and all that recovery needs.
constexpr uint64_t RecordHeaderBytes(uint64_t fields_bytes, uint64_t strip_count) {
  return sizeof(RecordFrame) + AlignUp(fields_bytes, 8) + strip_count * 16;
}

template <typename T>
T LoadAs(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// The hash of bytes that store it in their first 8.
inline uint64_t HashBehindHash(const std::byte* data, size_t bytes, uint64_t place_seed) {
  CAIRN_CHECK(bytes > 8);
  return SealHash(Hash({data + 8, bytes - 8}), place_seed);
}

// GroupHeader::records_hash is this, starting from 0, over the header hashes of the records.
inline uint64_t FoldRecordHash(uint64_t folded, uint64_t header_hash) {
  return SealHash(header_hash, folded + 1);
}

// Writes the 4 KiB block: `header` with magic, version and hash filled in, then zeros.
void EncodeSegmentHeader(SegmentHeader header, std::byte* block);

// kCorruption when the block is not the header of this segment; kUnsupportedFormat when it is and
// a newer version wrote it.
Result<SegmentHeader> ParseSegmentHeader(std::span<const std::byte> block, uint64_t segment,
                                         const StoreId& store);

// Fills in magic and hash and writes the 64 bytes. Returns the hash.
uint64_t EncodeGroupHeader(GroupHeader header, uint32_t offset, const StoreId& store,
                           std::byte* at);

// Nothing, unless the 64 bytes are a group header of any epoch that was written at this very place.
std::optional<GroupHeader> ParseGroupHeader(std::span<const std::byte> bytes, uint64_t segment,
                                            uint32_t offset, const StoreId& store);

// Fills in the hash and writes the last 64 bytes of a segment of `segment_bytes`.
void EncodeFooterTrailer(FooterTrailer trailer, uint64_t segment_bytes, const StoreId& store,
                         std::byte* at);

// Nothing, unless the 64 bytes end the footer of this use of this segment.
std::optional<FooterTrailer> ParseFooterTrailer(std::span<const std::byte> bytes, uint64_t segment,
                                                uint64_t epoch, uint64_t segment_bytes,
                                                const StoreId& store);

// Writes frame, fields, strip table (hashes 0) and the zeros between them and the payload and
// between strips. The memory is the record's, RecordBytes() long.
void EncodeRecord(const RecordSpec& spec, uint64_t sequence, std::byte* record);

// Fills in the strips' sealed hashes and the header hash, which makes the record valid.
void SealRecord(const Location& location, const StoreId& store,
                std::span<const uint64_t> strip_hashes, std::byte* record);

std::string SegmentFileName(uint64_t segment);
// "<directory>/<file name>: offset <n>: "
std::string At(const std::string& path, uint64_t offset);

}  // namespace cairn::wal
