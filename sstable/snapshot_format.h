// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a snapshot table; sstable/FORMAT.md explains them. Structures lie on disk as they
// lie in memory: little-endian, no padding. Every checksum is sealed with its place (store, table
// number, offset), so that right bytes in the wrong place fail.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "base/codec/hash.h"
#include "cairn/status.h"
#include "sstable/index_format.h"

namespace cairn::sstable {

inline constexpr uint64_t kSnapshotMagic = 0x504e534e52494143;  // "CAIRNSNP"
inline constexpr uint32_t kSnapshotFormatVersion = 1;

// The use of a table. On disk; never change. Derived data (landmarks, low-rank keys) can be
// computed again: losing such a table is no data loss, so it never shares a file with pages.
enum class SnapshotKind : uint32_t { kPages = 1, kDerived = 2 };

// Frames are aligned to a cache line, so that copies out of a read window are aligned.
inline constexpr uint32_t kFrameAlignment = 64;

// The place of one frame. Entries are in the order of the fragment: slice by slice, and page by
// page within each. They stand right behind the fragment's frames, so that a small one is read at
// once.
struct FrameEntry {
  uint64_t hash;  // Over the stored bytes, sealed with their offset.
  uint64_t offset;
  uint32_t stored_bytes;
  uint32_t raw_bytes;
};
static_assert(sizeof(FrameEntry) == 24);

// The content of the fragment approximates what computing it in place would give, according to the
// caller. On disk; never change.
inline constexpr uint32_t kApproximateFragment = 1;

// Positions [begin, begin + count) of one lane of one node, in `slices` parts (the caller
// numbers them: a head of a plane of a layer, say) and `pages` stretches of `page_rows`
// positions.
struct FragmentEntry {
  uint64_t node;
  uint64_t begin;
  uint64_t offset;       // Its first frame; the others follow in order...
  uint64_t frames_hash;  // Over its FrameEntries, sealed with their offset.
  uint32_t lane;
  uint32_t count;
  uint32_t page_rows;
  uint32_t slices;
  uint32_t pages;
  uint32_t flags;           // kApproximateFragment, or 0.
  uint64_t entries_offset;  // ...and their FrameEntries behind the last.

  uint64_t end() const { return begin + count; }
  uint64_t frames() const { return uint64_t{slices} * pages; }
  uint64_t entries_bytes() const { return frames() * sizeof(FrameEntry); }
  // Frames and entries, from `offset` on.
  uint64_t bytes() const { return entries_offset + entries_bytes() - offset; }
  // Rows of a page; the last page may be short.
  uint32_t rows(uint32_t page) const {
    return page + 1 < pages ? page_rows : count - (pages - 1) * page_rows;
  }
};
static_assert(sizeof(FragmentEntry) == 64);
static_assert(offsetof(FragmentEntry, lane) == 32 && offsetof(FragmentEntry, pages) == 48);

// The last block of the file; zeros follow it up to 4096 bytes.
struct SnapshotFooter {
  uint64_t hash;  // Over the rest of the 4096 bytes.
  uint64_t magic;
  uint32_t format_version;
  uint32_t kind;
  StoreId store;
  uint64_t table;
  uint64_t fragments_offset;  // FragmentEntries, behind the last fragment.
  uint64_t fragment_count;
  uint64_t frame_count;
  uint64_t fragments_hash;  // Over the FragmentEntries, sealed with their offset.
  uint64_t raw_bytes;       // All frames, before and after they were packed.
  uint64_t stored_bytes;
};
static_assert(sizeof(SnapshotFooter) == 96);
static_assert(offsetof(SnapshotFooter, store) == 24 && offsetof(SnapshotFooter, table) == 40);

// A footer's facts about its table.
struct SnapshotInfo {
  uint64_t number = 0;
  SnapshotKind kind = SnapshotKind::kPages;
  uint64_t bytes = 0;  // The file's size.
  uint64_t fragments = 0, frames = 0;
  uint64_t raw_bytes = 0, stored_bytes = 0;
  bool operator==(const SnapshotInfo&) const = default;
};

struct ParsedSnapshotFooter {
  SnapshotInfo info;
  uint64_t fragments_offset = 0;
  uint64_t fragments_hash = 0;
};

// The order of fragments in a table.
struct FragmentKey {
  uint64_t node = 0;
  uint32_t lane = 0;
  uint64_t begin = 0;
  auto operator<=>(const FragmentKey&) const = default;
};
inline FragmentKey KeyOf(const FragmentEntry& entry) {
  return {entry.node, entry.lane, entry.begin};
}

// Conditions on every fragment of a table whose directory is at `fragments_offset`, checked before
// it is written and after it is read.
bool IsPossible(const FragmentEntry& entry, uint64_t fragments_offset);

// The checksum of bytes that stand at `offset`.
uint64_t PlacedHash(std::span<const std::byte> bytes, const StoreId& store, uint64_t table,
                    uint64_t offset);

// The footer block of a file of `footer.info.bytes`, sealed.
std::string EncodeSnapshotFooter(const StoreId& store, const ParsedSnapshotFooter& footer);

// `block` is the last 4096 bytes of a file of `file_bytes`. kCorruption when they are not the
// footer of this table; kUnsupportedFormat when they are and a newer version wrote it. Without the
// path.
Result<ParsedSnapshotFooter> ParseSnapshotFooter(std::span<const std::byte> block,
                                                 const StoreId& store, uint64_t table,
                                                 uint64_t file_bytes);

}  // namespace cairn::sstable
