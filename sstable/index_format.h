// SPDX-License-Identifier: Apache-2.0
//
// The bytes of an index table; sstable/FORMAT.md explains them. Structures lie on disk as they lie
// in memory: little-endian, no padding, the hash first and over everything that follows it, sealed
// with the place (store, table number, offset) so that right bytes in the wrong place fail.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/codec/hash.h"
#include "base/core/align.h"
#include "cairn/status.h"
#include "sstable/constants.h"

namespace cairn::sstable {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint64_t kIndexMagic = 0x5844494e52494143;  // "CAIRNIDX"
inline constexpr uint32_t kBlockMagic = 0x4b4c4243;          // "CBLK"
inline constexpr uint32_t kIndexFormatVersion = 1;

// The epoch of a table's places. Log segments, which are numbered on their own, begin at epoch 1.
inline constexpr uint64_t kTableEpoch = 0;

// On disk; never change. 0 is never written.
enum class BlockKind : uint16_t { kData = 1, kPartition = 2, kRoot = 3 };

struct BlockHeader {
  uint64_t hash;  // Over the rest of the block, its padding included.
  uint32_t magic;
  uint16_t kind;
  uint16_t restart_count;
  uint32_t bytes;         // Header, entries, restarts and filter, without the padding.
  uint32_t filter_bytes;  // Partitions only.
};
static_assert(sizeof(BlockHeader) == 24);
static_assert(offsetof(BlockHeader, kind) == 12);
static_assert(offsetof(BlockHeader, bytes) == 16);

// The last block of the file, followed by a field table (base/codec/fields.h) and zeros.
struct IndexFooter {
  uint64_t hash;  // Over the rest of the 4096 bytes.
  uint64_t magic;
  uint32_t format_version;
  uint32_t flags;  // 0
  StoreId store;
  uint64_t table;
  uint64_t root_offset;
  uint32_t root_bytes;    // With its padding.
  uint32_t fields_bytes;  // The field table's.
};
static_assert(sizeof(IndexFooter) == 64);
static_assert(offsetof(IndexFooter, format_version) == 16);
static_assert(offsetof(IndexFooter, store) == 24);
static_assert(offsetof(IndexFooter, table) == 40);
static_assert(offsetof(IndexFooter, fields_bytes) == 60);

// Field ids of the footer; on disk, never change.
enum class IndexField : uint16_t {
  kRecords = 1,
  kTombstones = 2,
  kDataBlocks = 3,
  kPartitions = 4,
  kKeyBytes = 5,
  kValueBytes = 6,
  kSmallestKey = 7,
  kLargestKey = 8,
  kProbes = 9,
};
static_assert(sizeof(IndexFooter) + 9 * 16 + 2 * kMaxKeyBytes <= kTableAlignment,
              "the properties with the longest keys fit into the footer block");

// The footer's facts about a table. Merging is planned by them alone.
struct TableInfo {
  uint64_t number = 0;
  uint64_t bytes = 0;  // The file's size.
  uint64_t records = 0;
  uint64_t tombstones = 0;  // Deletions among the records.
  uint64_t data_blocks = 0;
  uint64_t partitions = 0;
  uint64_t key_bytes = 0;  // Before prefixes are shared.
  uint64_t value_bytes = 0;
  std::string smallest;
  std::string largest;
  bool operator==(const TableInfo&) const = default;
};

// The place of a block: the value of an entry in a partition or the root.
struct BlockHandle {
  uint64_t offset = 0;
  uint32_t bytes = 0;  // With its padding.
  bool operator==(const BlockHandle&) const = default;
};

struct ParsedFooter {
  TableInfo info;
  BlockHandle root;
  uint32_t filter_probes = 0;
};

template <typename T>
T LoadAs(const void* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Unsigned, seven bits per byte, low ones first; bit 7 says that more follow. At most ten bytes.
void PutVarint(std::string& to, uint64_t value);
// Returns the byte behind the number; null when it is cut, longer than ten bytes or not in its
// shortest form.
const char* GetVarint(const char* from, const char* end, uint64_t* value);

std::string EncodeHandle(const BlockHandle& handle);
// False for bytes that are not a handle.
bool DecodeHandle(std::string_view bytes, BlockHandle* handle);

// Fills in the hash, the first 8 bytes, of a block or footer that will stand at `offset`.
void SealBlock(std::span<char> block, const StoreId& store, uint64_t table, uint64_t offset);
bool CheckSeal(std::span<const std::byte> block, const StoreId& store, uint64_t table,
               uint64_t offset);

// The footer block of a file of `info.bytes`, sealed.
std::string EncodeFooter(const StoreId& store, const TableInfo& info, const BlockHandle& root);

// `block` is the last 4096 bytes of a file of `file_bytes`. kCorruption when they are not the
// footer of this table; kUnsupportedFormat when they are and a newer version wrote it. Without the
// path.
Result<ParsedFooter> ParseFooter(std::span<const std::byte> block, const StoreId& store,
                                 uint64_t table, uint64_t file_bytes);

// "<path>: offset <n>: "
std::string At(const std::string& path, uint64_t offset);

}  // namespace cairn::sstable
