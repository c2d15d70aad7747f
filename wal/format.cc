// SPDX-License-Identifier: Apache-2.0
#include "wal/format.h"

#include <cstdio>

#include "base/core/check.h"
#include "base/core/mutation.h"

namespace cairn::wal {

// No padding: a hash covers every byte, and every byte is defined.
static_assert(std::has_unique_object_representations_v<SegmentHeader>);
static_assert(std::has_unique_object_representations_v<GroupHeader>);
static_assert(std::has_unique_object_representations_v<RecordFrame>);
static_assert(std::has_unique_object_representations_v<RecordView::StripEntry>);
static_assert(std::has_unique_object_representations_v<FooterTrailer>);
static_assert(std::has_unique_object_representations_v<FooterGroup>);
static_assert(std::has_unique_object_representations_v<FooterRecord>);
// HashBehindHash skips the first 8 bytes.
static_assert(offsetof(SegmentHeader, hash) == 0);
static_assert(offsetof(GroupHeader, hash) == 0);
static_assert(offsetof(RecordFrame, header_hash) == 0);
static_assert(offsetof(FooterTrailer, hash) == 0);
static_assert(sizeof(SegmentHeader) <= kBlock);
static_assert(kBlock % kRecordAlignment == 0);
static_assert(kMinSegmentBytes % kBlock == 0);
static_assert(kMinClosedBytes < kMinSegmentBytes);
// Offsets have 32 bits, also that of the block behind a segment.
static_assert(kMaxSegmentBytes + kBlock <= UINT32_MAX);

void EncodeSegmentHeader(SegmentHeader header, std::byte* block) {
  header.magic = kSegmentMagic;
  header.format_version = kFormatVersion;
  std::memset(block, 0, kBlock);
  std::memcpy(block, &header, sizeof(header));
  const uint64_t hash =
      HashBehindHash(block, kBlock, PlaceSeed(header.store, header.segment, header.epoch, 0));
  std::memcpy(block, &hash, sizeof(hash));
}

Result<SegmentHeader> ParseSegmentHeader(std::span<const std::byte> block, uint64_t segment,
                                         const StoreId& store) {
  const auto bad = [](const char* why) {
    return Status(StatusCode::kCorruption, std::string("segment header: ") + why);
  };
  if (block.size() < kBlock) return bad("shorter than 4096 bytes");
  const auto header = LoadAs<SegmentHeader>(block.data());
  if (header.magic != kSegmentMagic) return bad("no magic");
  // The hash, magic and version stay where they are in every later version, so that a newer file is
  // distinguished from a damaged one.
  const uint64_t seed = PlaceSeed(store, segment, header.epoch, 0);
  if (CAIRN_KEPT(kHashOfSegmentHeader) &&
      HashBehindHash(block.data(), kBlock, seed) != header.hash) {
    return bad("the hash does not fit its contents and place");
  }
  if (header.format_version > kFormatVersion) {
    return Status(StatusCode::kUnsupportedFormat,
                  "segment header: format version " + std::to_string(header.format_version) +
                      ", this library knows up to " + std::to_string(kFormatVersion));
  }
  if (header.format_version == 0 || header.flags != 0) return bad("unknown version or flags");
  if (header.segment != segment || header.store != store) return bad("another segment or store");
  if (header.segment_bytes < kMinSegmentBytes || header.segment_bytes > kMaxSegmentBytes ||
      header.segment_bytes % kBlock != 0 || header.first_sequence == 0) {
    return bad("impossible sizes");
  }
  return header;
}

uint64_t EncodeGroupHeader(GroupHeader header, uint32_t offset, const StoreId& store,
                           std::byte* at) {
  CAIRN_CHECK(offset % kBlock == 0);
  header.magic = kGroupMagic;
  std::memcpy(at, &header, sizeof(header));
  header.hash =
      HashBehindHash(at, sizeof(header), PlaceSeed(store, header.segment, header.epoch, offset));
  std::memcpy(at, &header.hash, sizeof(header.hash));
  return header.hash;
}

std::optional<GroupHeader> ParseGroupHeader(std::span<const std::byte> bytes, uint64_t segment,
                                            uint32_t offset, const StoreId& store) {
  if (bytes.size() < sizeof(GroupHeader)) return std::nullopt;
  const auto header = LoadAs<GroupHeader>(bytes.data());
  if (header.magic != kGroupMagic || header.segment != segment) return std::nullopt;
  const uint64_t seed = PlaceSeed(store, segment, header.epoch, offset);
  if (CAIRN_KEPT(kHashOfGroup) &&
      HashBehindHash(bytes.data(), sizeof(header), seed) != header.hash) {
    return std::nullopt;
  }
  // Only a writer's bug could violate these, as the hash is right.
  const bool clean_end = header.flags == kGroupCleanEnd && header.record_count == 0 &&
                         header.length == sizeof(GroupHeader);
  const bool filled = header.flags == 0 && header.record_count > 0 &&
                      header.length >= sizeof(GroupHeader) + sizeof(RecordFrame);
  if (header.first_sequence == 0 || (!clean_end && !filled)) return std::nullopt;
  return header;
}

void EncodeFooterTrailer(FooterTrailer trailer, uint64_t segment_bytes, const StoreId& store,
                         std::byte* at) {
  std::memcpy(at, &trailer, sizeof(trailer));
  const uint64_t seed =
      PlaceSeed(store, trailer.segment, trailer.epoch, segment_bytes - sizeof(trailer));
  trailer.hash = HashBehindHash(at, sizeof(trailer), seed);
  std::memcpy(at, &trailer.hash, sizeof(trailer.hash));
}

std::optional<FooterTrailer> ParseFooterTrailer(std::span<const std::byte> bytes, uint64_t segment,
                                                uint64_t epoch, uint64_t segment_bytes,
                                                const StoreId& store) {
  if (bytes.size() < sizeof(FooterTrailer)) return std::nullopt;
  const auto trailer = LoadAs<FooterTrailer>(bytes.data());
  if (trailer.magic != kFooterMagic || trailer.segment != segment || trailer.epoch != epoch) {
    return std::nullopt;
  }
  const uint64_t seed = PlaceSeed(store, segment, epoch, segment_bytes - sizeof(trailer));
  if (CAIRN_KEPT(kHashOfFooter) &&
      HashBehindHash(bytes.data(), sizeof(trailer), seed) != trailer.hash) {
    return std::nullopt;
  }
  const uint64_t end = uint64_t{trailer.footer_offset} + trailer.entries_bytes;
  if (trailer.footer_offset < kFirstGroupOffset || trailer.footer_offset % kBlock != 0 ||
      end + sizeof(FooterTrailer) > segment_bytes || trailer.group_count == 0) {
    return std::nullopt;
  }
  return trailer;
}

std::string SegmentFileName(uint64_t segment) {
  char name[32];
  std::snprintf(name, sizeof(name), "%016llx.log", static_cast<unsigned long long>(segment));
  return name;
}

std::string At(const std::string& path, uint64_t offset) {
  return path + ": offset " + std::to_string(offset) + ": ";
}

}  // namespace cairn::wal
