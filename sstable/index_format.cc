// SPDX-License-Identifier: Apache-2.0
#include "sstable/index_format.h"

#include <algorithm>

#include "base/codec/fields.h"
#include "base/core/check.h"
#include "base/core/mutation.h"

namespace cairn::sstable {

// No padding: a hash covers every byte, and every byte is defined.
static_assert(std::has_unique_object_representations_v<BlockHeader>);
static_assert(std::has_unique_object_representations_v<IndexFooter>);
// HashBehindHash skips the first 8 bytes.
static_assert(offsetof(BlockHeader, hash) == 0);
static_assert(offsetof(IndexFooter, hash) == 0);
static_assert(kIndexBlockBytes <= kMaxBlockBytes);
static_assert(kMaxBlockBytes + kTableAlignment <= UINT32_MAX);
static_assert(kQuietWriteBytes <= kSnapshotWriteBytes);
static_assert(kSnapshotWriteBuffers >= 2, "one is filled while another is written");

namespace {

constexpr uint64_t kMaxUnits = uint64_t{1} << 40;  // Far beyond any file; products stay in range.
constexpr int kMaxVarintBytes = 10;

uint16_t Id(IndexField field) { return static_cast<uint16_t>(field); }

constexpr uint16_t kKnownFields[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

Status Bad(const std::string& why) {
  return Status(StatusCode::kCorruption, "index table footer: " + why);
}

uint64_t HashBehindHash(const void* block, size_t bytes, const StoreId& store, uint64_t table,
                        uint64_t offset) {
  CAIRN_CHECK(bytes > sizeof(uint64_t));
  const auto* data = static_cast<const std::byte*>(block);
  return SealHash(Hash({data + sizeof(uint64_t), bytes - sizeof(uint64_t)}),
                  PlaceSeed(store, table, kTableEpoch, offset));
}

// Conditions on the footer of every table, checked before it is written and after it is read.
bool IsPossible(const TableInfo& info, const BlockHandle& root) {
  return info.records > 0 && info.tombstones <= info.records && info.data_blocks > 0 &&
         info.data_blocks <= info.records && info.partitions > 0 &&
         info.partitions <= info.data_blocks && info.smallest.size() <= kMaxKeyBytes &&
         info.largest.size() <= kMaxKeyBytes && info.smallest <= info.largest &&
         (info.records > 1) == (info.smallest < info.largest) &&
         root.offset % kTableAlignment == 0 && root.bytes % kTableAlignment == 0 &&
         root.bytes > 0 && root.offset > 0 && root.offset < info.bytes &&
         root.offset + root.bytes + kTableAlignment == info.bytes;
}

}  // namespace

void PutVarint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

const char* GetVarint(const char* from, const char* end, uint64_t* value) {
  CAIRN_CHECK(from <= end);
  uint64_t result = 0;
  for (int i = 0; i < kMaxVarintBytes && from < end; ++i, ++from) {
    const uint64_t bits = static_cast<uint8_t>(*from) & 0x7f;
    if (i == kMaxVarintBytes - 1 && bits > 1) return nullptr;
    result |= bits << (7 * i);
    if ((static_cast<uint8_t>(*from) & 0x80) != 0) continue;
    if (bits == 0 && i > 0) return nullptr;
    *value = result;
    return from + 1;
  }
  return nullptr;
}

std::string EncodeHandle(const BlockHandle& handle) {
  CAIRN_CHECK(handle.offset % kTableAlignment == 0);
  CAIRN_CHECK(handle.offset / kTableAlignment <= kMaxUnits);  // As DecodeHandle takes it.
  CAIRN_CHECK(handle.bytes % kTableAlignment == 0);
  CAIRN_CHECK(handle.bytes > 0);
  std::string bytes;
  PutVarint(bytes, handle.offset / kTableAlignment);
  PutVarint(bytes, handle.bytes / kTableAlignment);
  return bytes;
}

bool DecodeHandle(std::string_view bytes, BlockHandle* handle) {
  const char* end = bytes.data() + bytes.size();
  uint64_t offset = 0;
  uint64_t length = 0;
  const char* at = GetVarint(bytes.data(), end, &offset);
  if (at != nullptr) at = GetVarint(at, end, &length);
  if (at != end || length == 0) return false;
  if (offset > kMaxUnits || length > UINT32_MAX / kTableAlignment) return false;
  handle->offset = offset * kTableAlignment;
  handle->bytes = static_cast<uint32_t>(length * kTableAlignment);
  return true;
}

void SealBlock(std::span<char> block, const StoreId& store, uint64_t table, uint64_t offset) {
  CAIRN_CHECK(offset % kTableAlignment == 0);
  CAIRN_CHECK(block.size() % kTableAlignment == 0);
  const uint64_t hash = HashBehindHash(block.data(), block.size(), store, table, offset);
  std::memcpy(block.data(), &hash, sizeof(hash));
}

bool CheckSeal(std::span<const std::byte> block, const StoreId& store, uint64_t table,
               uint64_t offset) {
  return !CAIRN_KEPT(kHashOfBlock) || HashBehindHash(block.data(), block.size(), store, table,
                                                     offset) == LoadAs<uint64_t>(block.data());
}

std::string EncodeFooter(const StoreId& store, const TableInfo& info, const BlockHandle& root) {
  CAIRN_CHECK(IsPossible(info, root));
  FieldWriter fields;
  fields.U64(Id(IndexField::kRecords), info.records);
  fields.U64(Id(IndexField::kTombstones), info.tombstones);
  fields.U64(Id(IndexField::kDataBlocks), info.data_blocks);
  fields.U64(Id(IndexField::kPartitions), info.partitions);
  fields.U64(Id(IndexField::kKeyBytes), info.key_bytes, /*critical=*/false);
  fields.U64(Id(IndexField::kValueBytes), info.value_bytes, /*critical=*/false);
  fields.Text(Id(IndexField::kSmallestKey), info.smallest);
  fields.Text(Id(IndexField::kLargestKey), info.largest);
  fields.U64(Id(IndexField::kProbes), kFilterProbes);

  IndexFooter footer{};
  footer.magic = kIndexMagic;
  footer.format_version = kIndexFormatVersion;
  footer.store = store;
  footer.table = info.number;
  footer.root_offset = root.offset;
  footer.root_bytes = root.bytes;
  footer.fields_bytes = static_cast<uint32_t>(fields.bytes().size());
  CAIRN_CHECK(sizeof(footer) + footer.fields_bytes <= kTableAlignment);

  std::string block(kTableAlignment, '\0');
  std::memcpy(block.data(), &footer, sizeof(footer));
  std::memcpy(block.data() + sizeof(footer), fields.bytes().data(), fields.bytes().size());
  SealBlock(block, store, info.number, info.bytes - kTableAlignment);
  return block;
}

Result<ParsedFooter> ParseFooter(std::span<const std::byte> block, const StoreId& store,
                                 uint64_t table, uint64_t file_bytes) {
  if (block.size() != kTableAlignment || file_bytes < kTableAlignment ||
      file_bytes % kTableAlignment != 0) {
    return Bad("the file has " + std::to_string(file_bytes) + " bytes, which no table has");
  }
  const auto footer = LoadAs<IndexFooter>(block.data());
  if (footer.magic != kIndexMagic) return Bad("no magic");
  if (!CheckSeal(block, store, table, file_bytes - kTableAlignment)) {
    return Bad("the hash does not fit its contents and place");
  }
  // Hash, magic and version stay where they are in every later version, so that a newer file is
  // distinguished from a damaged one.
  if (footer.format_version > kIndexFormatVersion) {
    return Status(StatusCode::kUnsupportedFormat,
                  "index table footer: format version " + std::to_string(footer.format_version) +
                      ", this library knows up to " + std::to_string(kIndexFormatVersion));
  }
  if (footer.format_version == 0 || footer.flags != 0) return Bad("unknown version or flags");
  if (footer.store != store || footer.table != table) return Bad("another store or table");
  if (footer.fields_bytes > kTableAlignment - sizeof(footer)) return Bad("impossible sizes");
  auto fields = FieldReader::Parse(block.subspan(sizeof(footer), footer.fields_bytes));
  if (!fields.ok()) return Bad(std::string(fields.status().message()));
  if (Status known = fields->CheckCritical(kKnownFields); !known.ok()) return known;

  ParsedFooter parsed;
  parsed.root = {footer.root_offset, footer.root_bytes};
  parsed.info = {.number = table,
                 .bytes = file_bytes,
                 .records = fields->U64Or(Id(IndexField::kRecords), 0),
                 .tombstones = fields->U64Or(Id(IndexField::kTombstones), 0),
                 .data_blocks = fields->U64Or(Id(IndexField::kDataBlocks), 0),
                 .partitions = fields->U64Or(Id(IndexField::kPartitions), 0),
                 .key_bytes = fields->U64Or(Id(IndexField::kKeyBytes), 0),
                 .value_bytes = fields->U64Or(Id(IndexField::kValueBytes), 0),
                 .smallest = std::string(fields->TextOr(Id(IndexField::kSmallestKey), "")),
                 .largest = std::string(fields->TextOr(Id(IndexField::kLargestKey), ""))};
  const uint64_t probes = fields->U64Or(Id(IndexField::kProbes), 0);
  if (!IsPossible(parsed.info, parsed.root) || probes == 0 || probes > 64) {
    return Bad("impossible properties");
  }
  parsed.filter_probes = static_cast<uint32_t>(probes);
  return parsed;
}

std::string At(const std::string& path, uint64_t offset) {
  return path + ": offset " + std::to_string(offset) + ": ";
}

}  // namespace cairn::sstable
