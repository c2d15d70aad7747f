// SPDX-License-Identifier: Apache-2.0
#include "sstable/snapshot_format.h"

#include "base/core/check.h"

namespace cairn::sstable {

// No padding: a hash covers every byte, and every byte is defined.
static_assert(std::has_unique_object_representations_v<FrameEntry>);
static_assert(std::has_unique_object_representations_v<FragmentEntry>);
static_assert(std::has_unique_object_representations_v<SnapshotFooter>);
static_assert(offsetof(SnapshotFooter, hash) == 0);
static_assert(sizeof(SnapshotFooter) <= kTableAlignment);
static_assert(kTableAlignment % kFrameAlignment == 0);

namespace {

Status Bad(const std::string& why) {
  return Status(StatusCode::kCorruption, "snapshot table footer: " + why);
}

// Conditions on the footer of every table, checked before it is written and after it is read.
bool IsPossible(const ParsedSnapshotFooter& footer) {
  const SnapshotInfo& info = footer.info;
  // Bounds first, so that no product below can wrap.
  if (info.fragments == 0 || info.frames < info.fragments || info.bytes % kTableAlignment != 0 ||
      info.frames > info.bytes / sizeof(FrameEntry) ||
      info.fragments > info.bytes / sizeof(FragmentEntry) || info.stored_bytes > info.bytes ||
      footer.fragments_offset > info.bytes) {
    return false;
  }
  const uint64_t directory_end = footer.fragments_offset + info.fragments * sizeof(FragmentEntry);
  return (info.kind == SnapshotKind::kPages || info.kind == SnapshotKind::kDerived) &&
         footer.fragments_offset % kFrameAlignment == 0 &&
         info.stored_bytes + info.frames * sizeof(FrameEntry) <= footer.fragments_offset &&
         AlignUp(directory_end, kTableAlignment) + kTableAlignment == info.bytes;
}

}  // namespace

bool IsPossible(const FragmentEntry& entry, uint64_t fragments_offset) {
  return entry.node != 0 && entry.count > 0 && entry.page_rows > 0 && entry.slices > 0 &&
         entry.pages == (uint64_t{entry.count} + entry.page_rows - 1) / entry.page_rows &&
         (entry.flags & ~kApproximateFragment) == 0 && entry.begin <= UINT64_MAX - entry.count &&
         entry.offset % kFrameAlignment == 0 && entry.entries_offset % kFrameAlignment == 0 &&
         entry.offset < entry.entries_offset && entry.entries_offset <= fragments_offset &&
         entry.frames() <= (fragments_offset - entry.entries_offset) / sizeof(FrameEntry);
}

uint64_t PlacedHash(std::span<const std::byte> bytes, const StoreId& store, uint64_t table,
                    uint64_t offset) {
  return SealHash(Hash(bytes), PlaceSeed(store, table, kTableEpoch, offset));
}

std::string EncodeSnapshotFooter(const StoreId& store, const ParsedSnapshotFooter& footer) {
  CAIRN_CHECK(IsPossible(footer));
  SnapshotFooter block{};
  block.magic = kSnapshotMagic;
  block.format_version = kSnapshotFormatVersion;
  block.kind = static_cast<uint32_t>(footer.info.kind);
  block.store = store;
  block.table = footer.info.number;
  block.fragments_offset = footer.fragments_offset;
  block.fragment_count = footer.info.fragments;
  block.frame_count = footer.info.frames;
  block.fragments_hash = footer.fragments_hash;
  block.raw_bytes = footer.info.raw_bytes;
  block.stored_bytes = footer.info.stored_bytes;
  std::string bytes(kTableAlignment, '\0');
  std::memcpy(bytes.data(), &block, sizeof(block));
  SealBlock(bytes, store, footer.info.number, footer.info.bytes - kTableAlignment);
  return bytes;
}

Result<ParsedSnapshotFooter> ParseSnapshotFooter(std::span<const std::byte> block,
                                                 const StoreId& store, uint64_t table,
                                                 uint64_t file_bytes) {
  CAIRN_CHECK(block.size() == kTableAlignment);
  CAIRN_CHECK(file_bytes >= kTableAlignment);
  const auto footer = LoadAs<SnapshotFooter>(block.data());
  if (footer.magic != kSnapshotMagic) return Bad("no magic");
  if (!CheckSeal(block, store, table, file_bytes - kTableAlignment)) {
    return Bad("the hash does not fit its contents and place");
  }
  // Hash, magic and version stay where they are in every later version, so that a newer file is
  // distinguished from a damaged one.
  if (footer.format_version > kSnapshotFormatVersion) {
    return Status(StatusCode::kUnsupportedFormat,
                  "a snapshot table of format " + std::to_string(footer.format_version) +
                      "; this library knows up to " + std::to_string(kSnapshotFormatVersion));
  }
  ParsedSnapshotFooter parsed;
  parsed.info = {.number = footer.table,
                 .kind = static_cast<SnapshotKind>(footer.kind),
                 .bytes = file_bytes,
                 .fragments = footer.fragment_count,
                 .frames = footer.frame_count,
                 .raw_bytes = footer.raw_bytes,
                 .stored_bytes = footer.stored_bytes};
  parsed.fragments_offset = footer.fragments_offset;
  parsed.fragments_hash = footer.fragments_hash;
  if (footer.store != store || footer.table != table || !IsPossible(parsed)) {
    return Bad("impossible contents");
  }
  return parsed;
}

}  // namespace cairn::sstable
