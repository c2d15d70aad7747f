// SPDX-License-Identifier: Apache-2.0
//
// A small log for the targets that damage one, and changes of a segment's headers under hashes that
// fit, so that what lies behind the hashes is reached.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "fuzz/input.h"
#include "sim/world.h"
#include "wal/format.h"
#include "wal/log.h"
#include "wal/segment_files.h"

namespace cairn::fuzz {

inline constexpr StoreId kStore{{7, 7, 7}};
inline constexpr char kDirectory[] = "log";
inline constexpr uint64_t kSegmentBytes = 256 << 10;

// Three segments, the first full and with a footer, of two epochs. The fields of a record are its
// sequence.
inline std::unique_ptr<io::SimDisk> MakeLog() {
  const io::SimWorld machine = io::MakeSimWorld(1);
  CAIRN_CHECK(machine.disk->CreateDirectory(kDirectory).ok());
  io::World world = machine.world();
  wal::LogOptions options;
  options.directory = kDirectory;
  options.store = kStore;
  options.segment_bytes = kSegmentBytes;
  options.hot_tail_bytes = 1 << 20;
  options.chunk_bytes = 64 << 10;
  wal::RecoveryOptions recovery;
  recovery.directory = kDirectory;
  recovery.store = kStore;
  uint64_t number = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto recovered =
        wal::Recover(world, recovery, [](const wal::RecordView&) { return Status::Ok(); });
    CAIRN_CHECK(recovered.ok());
    auto log = wal::Log::Open(world, options, std::move(*recovered));
    CAIRN_CHECK(log.ok());
    for (int i = 0; i < 18 - 12 * epoch; ++i) {
      ++number;
      const uint64_t bytes = i % 6 == 0 && epoch == 0 ? 90'000 : 100 * i;
      std::vector<std::byte> fields(8);
      std::memcpy(fields.data(), &number, sizeof(number));
      const std::vector<wal::Strip> strips = {{0, static_cast<uint32_t>(bytes)}};
      auto slot = (*log)->Reserve({1, false, 0, fields, strips}, wal::Log::Purpose::kData);
      while (!slot.ok()) {
        CAIRN_CHECK(slot.status().code() == StatusCode::kBusy);
        CAIRN_CHECK((*log)->WaitForRoom(io::kNoDeadline).ok());
        slot = (*log)->Reserve({1, false, 0, fields, strips}, wal::Log::Purpose::kData);
      }
      const std::span<std::byte> payload(slot->payload, bytes);
      std::fill(payload.begin(), payload.end(), static_cast<std::byte>(number));
      const std::vector<uint64_t> hashes = {Hash(payload)};
      const uint64_t sequence = slot->sequence;
      (*log)->Publish(*slot, hashes);
      CAIRN_CHECK((*log)->Wait(sequence, i % 2 == 0, io::kNoDeadline).ok());
    }
  }
  return machine.disk->CrashClone(io::CrashChoice::KeepAll());
}

// The headers of one full segment: changed as an input says, and given hashes that fit.
class SegmentHeaders {
 public:
  SegmentHeaders(const io::SimDisk& disk, uint64_t segment)
      : whole_(*disk.ReadRaw(wal::SegmentPath(kDirectory, segment))), segment_(segment) {
    epoch_ = wal::LoadAs<wal::SegmentHeader>(whole_.data()).epoch;
    places_.push_back({0, sizeof(wal::SegmentHeader)});
    const auto trailer = wal::ParseFooterTrailer(std::span(whole_).last(sizeof(wal::FooterTrailer)),
                                                 segment, epoch_, whole_.size(), kStore);
    CAIRN_CHECK(trailer.has_value());
    footer_at_ = trailer->footer_offset;
    footer_bytes_ = trailer->entries_bytes;
    places_.push_back({footer_at_, footer_bytes_});
    places_.push_back({whole_.size() - sizeof(wal::FooterTrailer), sizeof(wal::FooterTrailer)});
    uint64_t entry_at = footer_at_;
    for (uint32_t g = 0; g < trailer->group_count; ++g) {
      const auto group = wal::LoadAs<wal::FooterGroup>(&whole_[entry_at]);
      groups_.push_back({group.offset, {}});
      places_.push_back({group.offset, sizeof(wal::GroupHeader)});
      entry_at += sizeof(wal::FooterGroup);
      for (uint32_t r = 0; r < group.header.record_count; ++r) {
        const auto record = wal::LoadAs<wal::FooterRecord>(&whole_[entry_at]);
        entry_at += sizeof(wal::FooterRecord);
        groups_.back().records.push_back(record.offset);
        places_.push_back({record.offset, record.header_bytes});
        footer_records_.push_back({entry_at, record.offset});
        entry_at += record.header_bytes;
      }
    }
    CAIRN_CHECK(entry_at == footer_at_ + footer_bytes_);
  }

  // Each four bytes of the input change one byte. `disk` has the segment, as it was or as it was
  // changed before.
  void Change(io::SimDisk& disk, Input& input) {
    constexpr size_t kStepsMax = 32;
    for (const Place& place : places_) {
      std::memcpy(&changed_[place.offset], &whole_[place.offset], place.bytes);
    }
    for (size_t step = 0; step < kStepsMax && !input.empty(); ++step) {
      const Place& place = places_[input.Take<uint8_t>() % places_.size()];
      changed_[place.offset + input.Take<uint16_t>() % place.bytes] ^= input.Take<std::byte>();
    }
    Seal(changed_);
    const std::string path = wal::SegmentPath(kDirectory, segment_);
    for (const Place& place : places_) {
      const auto bytes = std::span(changed_).subspan(place.offset, place.bytes);
      CAIRN_CHECK(disk.WriteRaw(path, place.offset, bytes).ok());
    }
  }

 private:
  struct Place {
    uint64_t offset = 0, bytes = 0;
  };
  struct GroupAt {
    uint64_t offset = 0;
    std::vector<uint64_t> records;
  };
  struct FooterRecordAt {
    uint64_t entry = 0, record = 0;  // Where the copy of its header lies, and where it claims to.
  };

  static void Put(std::vector<std::byte>& bytes, uint64_t offset, uint64_t hash) {
    std::memcpy(bytes.data() + offset, &hash, sizeof(hash));
  }
  // The hash of the record header at `at` for one that lies at `place`, put there; as far as what
  // the header says of its length lets it.
  uint64_t SealRecordHeader(std::vector<std::byte>& bytes, uint64_t at, uint64_t place) const {
    const auto frame = wal::LoadAs<wal::RecordFrame>(&bytes[at]);
    const uint64_t length = wal::RecordHeaderBytes(frame.fields_bytes, frame.strip_count);
    if (length > bytes.size() - at) return frame.header_hash;
    const uint64_t hash =
        wal::HashBehindHash(&bytes[at], length, PlaceSeed(kStore, segment_, epoch_, place));
    Put(bytes, at, hash);
    return hash;
  }
  void SealFixed(std::vector<std::byte>& bytes, uint64_t at, uint64_t length,
                 uint64_t epoch) const {
    Put(bytes, at, wal::HashBehindHash(&bytes[at], length, PlaceSeed(kStore, segment_, epoch, at)));
  }
  void Seal(std::vector<std::byte>& bytes) const {
    uint64_t first_group_hash = 0;
    for (const GroupAt& group : groups_) {
      uint64_t folded = 0;
      for (const uint64_t record : group.records) {
        folded = wal::FoldRecordHash(folded, SealRecordHeader(bytes, record, record));
      }
      Put(bytes, group.offset + offsetof(wal::GroupHeader, records_hash), folded);
      SealFixed(bytes, group.offset, sizeof(wal::GroupHeader),
                wal::LoadAs<wal::GroupHeader>(&bytes[group.offset]).epoch);
      if (&group == groups_.data()) first_group_hash = wal::LoadAs<uint64_t>(&bytes[group.offset]);
    }
    Put(bytes, offsetof(wal::SegmentHeader, first_group_hash), first_group_hash);
    SealFixed(bytes, 0, wal::kBlock, wal::LoadAs<wal::SegmentHeader>(bytes.data()).epoch);
    for (const FooterRecordAt& record : footer_records_) {
      static_cast<void>(SealRecordHeader(bytes, record.entry, record.record));
    }
    const uint64_t trailer_at = bytes.size() - sizeof(wal::FooterTrailer);
    const auto trailer = wal::LoadAs<wal::FooterTrailer>(&bytes[trailer_at]);
    if (uint64_t{trailer.footer_offset} + trailer.entries_bytes <= bytes.size()) {
      Put(bytes, trailer_at + offsetof(wal::FooterTrailer, entries_hash),
          Hash(std::span(bytes).subspan(trailer.footer_offset, trailer.entries_bytes)));
    }
    SealFixed(bytes, trailer_at, sizeof(wal::FooterTrailer), trailer.epoch);
  }

  const std::vector<std::byte> whole_;
  std::vector<std::byte> changed_ = whole_;
  const uint64_t segment_;
  uint64_t epoch_ = 0;
  uint64_t footer_at_ = 0, footer_bytes_ = 0;
  std::vector<Place> places_;
  std::vector<GroupAt> groups_;
  std::vector<FooterRecordAt> footer_records_;
};

}  // namespace cairn::fuzz
