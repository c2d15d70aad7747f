// SPDX-License-Identifier: Apache-2.0
#include "wal/record.h"

#include <algorithm>
#include <atomic>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "wal/format.h"
#include "wal/strips.h"

namespace cairn::wal {
namespace {

// Names the file by its path below the store's directory, since the directory is unknown here.
Status Damaged(const Location& location, uint64_t offset, const std::string& what) {
  return Status(StatusCode::kCorruption,
                At("log/" + SegmentFileName(location.segment), offset) + what);
}

uint32_t PayloadOffset(uint64_t fields_bytes, uint64_t strip_count) {
  return static_cast<uint32_t>(
      AlignUp(RecordHeaderBytes(fields_bytes, strip_count), kRecordAlignment));
}

}  // namespace

Strip RecordView::strip(size_t index) const {
  CAIRN_CHECK(index < strips_.size());
  return {strips_[index].tag, strips_[index].bytes};
}

uint32_t RecordView::strip_offset(size_t index) const {
  CAIRN_CHECK(index < strips_.size());
  uint64_t offset = payload_offset_;
  for (size_t i = 0; i < index; ++i) offset += AlignUp(strips_[i].bytes, kRecordAlignment);
  return static_cast<uint32_t>(offset);
}

Status RecordView::VerifyStrip(std::span<const std::byte> record, size_t index,
                               const StoreId& store) const {
  const StripPlace strip{strip_offset(index), strips_[index].bytes, strips_[index].hash};
  CAIRN_CHECK(record.size() >= uint64_t{strip.offset} + strip.bytes);
  return wal::VerifyStrip({location, sequence, index}, strip,
                          record.subspan(strip.offset, strip.bytes), store);
}

std::vector<StripPlace> PlacesOfStrips(const RecordView& record) {
  std::vector<StripPlace> places;
  places.reserve(record.strips_.size());
  uint32_t offset = record.payload_offset_;
  for (const RecordView::StripEntry& entry : record.strips_) {
    places.push_back({offset, entry.bytes, entry.hash});
    offset += static_cast<uint32_t>(AlignUp(entry.bytes, kRecordAlignment));
  }
  return places;
}

Status VerifyStrip(const StripName& name, const StripPlace& strip, std::span<const std::byte> bytes,
                   const StoreId& store) {
  CAIRN_CHECK(bytes.size() == strip.bytes);
  const Location& location = name.location;
  const uint64_t place = uint64_t{location.offset} + strip.offset;
  const uint64_t seed = PlaceSeed(store, location.segment, location.epoch, place);
  if (CAIRN_KEPT(kHashOfStrip) && SealHash(Hash(bytes), seed) != strip.hash) {
    return Damaged(location, place,
                   "strip " + std::to_string(name.index) + " of record " +
                       std::to_string(name.sequence) + " (" + std::to_string(strip.bytes) +
                       " bytes) does not fit its hash");
  }
  return Status::Ok();
}

uint64_t RecordBytes(size_t fields_bytes, std::span<const Strip> strips) {
  uint64_t bytes = AlignUp(RecordHeaderBytes(fields_bytes, strips.size()), kRecordAlignment);
  for (const Strip& strip : strips) bytes += AlignUp(strip.bytes, kRecordAlignment);
  return bytes;
}

Result<RecordView> ParseRecord(std::span<const std::byte> bytes, const Location& location,
                               const StoreId& store) {
  // Records lie at multiples of 64 in buffers for direct I/O; the strip table is used in place.
  CAIRN_CHECK(reinterpret_cast<uintptr_t>(bytes.data()) % alignof(RecordView::StripEntry) == 0);
  if (bytes.size() < sizeof(RecordFrame)) {
    return Damaged(location, location.offset, "no room for a record frame");
  }
  const auto frame = LoadAs<RecordFrame>(bytes.data());
  if (frame.magic != kRecordMagic) return Damaged(location, location.offset, "no record magic");
  const uint64_t header_bytes = RecordHeaderBytes(frame.fields_bytes, frame.strip_count);
  if (CAIRN_KEPT(kBoundOfRecord) && header_bytes > bytes.size()) {
    return Damaged(location, location.offset,
                   "a record header of " + std::to_string(header_bytes) + " bytes passes the end");
  }
  const uint64_t seed = PlaceSeed(store, location.segment, location.epoch, location.offset);
  if (CAIRN_KEPT(kHashOfRecord) &&
      HashBehindHash(bytes.data(), header_bytes, seed) != frame.header_hash) {
    return Damaged(location, location.offset, "the record header does not fit its hash");
  }
  // The rest holds for everything that this version wrote.
  RecordView view;
  const std::byte* fields = bytes.data() + sizeof(RecordFrame);
  view.fields = {fields, frame.fields_bytes};
  view.strips_ = {
      reinterpret_cast<const RecordView::StripEntry*>(fields + AlignUp(frame.fields_bytes, 8)),
      frame.strip_count};
  uint64_t end = PayloadOffset(frame.fields_bytes, frame.strip_count);
  const bool offset_fits = end == frame.payload_offset;
  for (const RecordView::StripEntry& strip : view.strips_) {
    end += AlignUp(strip.bytes, kRecordAlignment);
  }
  if (frame.version != kRecordVersion || (frame.flags & ~kRecordMore) != 0 || frame.kind == 0 ||
      frame.sequence == 0 || frame.unit == 0 || frame.unit > frame.sequence || !offset_fits ||
      end != frame.record_bytes || (location.bytes != 0 && location.bytes != end)) {
    return Damaged(location, location.offset, "a record header with impossible values");
  }
  view.kind = frame.kind;
  view.more = (frame.flags & kRecordMore) != 0;
  view.sequence = frame.sequence;
  view.unit = frame.unit;
  view.location = location;
  view.location.bytes = frame.record_bytes;
  view.payload_offset_ = frame.payload_offset;
  return view;
}

void EncodeRecord(const RecordSpec& spec, uint64_t sequence, std::byte* record) {
  const uint64_t record_bytes = RecordBytes(spec.fields.size(), spec.strips);
  CAIRN_CHECK(spec.kind != 0 && CAIRN_KEPT(kCanary));
  CAIRN_CHECK(record_bytes <= UINT32_MAX);
  CAIRN_CHECK(sequence != 0);
  CAIRN_CHECK(spec.unit <= sequence);
  RecordFrame frame{};
  frame.magic = kRecordMagic;
  frame.kind = spec.kind;
  frame.version = kRecordVersion;
  frame.flags = spec.more ? kRecordMore : uint8_t{0};
  frame.fields_bytes = static_cast<uint32_t>(spec.fields.size());
  frame.strip_count = static_cast<uint32_t>(spec.strips.size());
  frame.payload_offset = PayloadOffset(spec.fields.size(), spec.strips.size());
  frame.record_bytes = static_cast<uint32_t>(record_bytes);
  frame.sequence = sequence;
  frame.unit = spec.unit == 0 ? sequence : spec.unit;
  std::memcpy(record, &frame, sizeof(frame));

  std::byte* at = record + sizeof(frame);
  const auto put = [&at](const void* from, size_t bytes, size_t padded) {
    if (bytes > 0) std::memcpy(at, from, bytes);
    std::memset(at + bytes, 0, padded - bytes);
    at += padded;
  };
  put(spec.fields.data(), spec.fields.size(), AlignUp(spec.fields.size(), 8));
  for (const Strip& strip : spec.strips) {
    const RecordView::StripEntry entry{strip.tag, strip.bytes, 0};
    put(&entry, sizeof(entry), sizeof(entry));
  }
  put(nullptr, 0, static_cast<size_t>(record + frame.payload_offset - at));
  for (const Strip& strip : spec.strips) {
    at += strip.bytes;
    put(nullptr, 0, AlignUp(strip.bytes, kRecordAlignment) - strip.bytes);
  }
  CAIRN_CHECK(at == record + record_bytes);
}

void SealRecord(const Location& location, const StoreId& store,
                std::span<const uint64_t> strip_hashes, std::byte* record) {
  const auto frame = LoadAs<RecordFrame>(record);
  CAIRN_CHECK(frame.magic == kRecordMagic);
  CAIRN_CHECK(frame.header_hash == 0);  // Sealed once.
  CAIRN_CHECK(frame.strip_count == strip_hashes.size());
  CAIRN_CHECK(frame.record_bytes == location.bytes);
  CAIRN_CHECK(location.offset % kRecordAlignment == 0);
  CAIRN_CHECK(reinterpret_cast<uintptr_t>(record) % alignof(uint64_t) == 0);
  std::byte* entry = record + sizeof(frame) + AlignUp(frame.fields_bytes, 8);
  uint64_t offset = uint64_t{location.offset} + frame.payload_offset;
  for (const uint64_t strip_hash : strip_hashes) {
    const auto strip = LoadAs<RecordView::StripEntry>(entry);
    const uint64_t sealed =
        SealHash(strip_hash, PlaceSeed(store, location.segment, location.epoch, offset));
    std::memcpy(entry + offsetof(RecordView::StripEntry, hash), &sealed, sizeof(sealed));
    entry += sizeof(strip);
    offset += AlignUp(strip.bytes, kRecordAlignment);
  }
  const uint64_t seed = PlaceSeed(store, location.segment, location.epoch, location.offset);
  const uint64_t hash =
      HashBehindHash(record, RecordHeaderBytes(frame.fields_bytes, frame.strip_count), seed);
  // Last: a reader that sees it sees all of the record. Sequentially consistent with the count of
  // waiting readers (LogImpl::AwaitSealed): either a reader sees the hash, or the writer sees the
  // reader.
  std::atomic_ref(*reinterpret_cast<uint64_t*>(record)).store(hash, std::memory_order_seq_cst);
}

bool IsSealed(std::span<const std::byte> record) {
  CAIRN_CHECK(record.size() >= sizeof(uint64_t));
  CAIRN_CHECK(reinterpret_cast<uintptr_t>(record.data()) % alignof(uint64_t) == 0);
  // atomic_ref takes no const object before C++26; this only loads.
  auto* hash = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(record.data()));
  return std::atomic_ref(*hash).load(std::memory_order_seq_cst) != 0;
}

}  // namespace cairn::wal
