// SPDX-License-Identifier: Apache-2.0
//
// One segment file, read front to back with large direct reads. Used by recovery alone.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/io/world.h"
#include "wal/format.h"
#include "wal/record.h"

namespace cairn::wal {

class SegmentReader {
 public:
  // A group whose header and records fit together. The views point into the reader's buffer and are
  // valid until its next call.
  struct Group {
    GroupHeader header{};
    uint32_t offset = 0;
    std::vector<RecordView> records;
    Status payload;  // Why the first bad strip fails its hash, if payload was verified.
  };

  // kNotFound when there is no such file; kCorruption when no segment can have its length: files
  // get their number only when they are complete.
  static Result<std::unique_ptr<SegmentReader>> Open(io::World& world, const std::string& directory,
                                                     uint64_t segment, const StoreId& store);

  const std::string& path() const { return path_; }
  uint64_t segment() const { return segment_; }
  uint64_t bytes() const { return bytes_; }
  io::File& file() { return *file_; }

  // kCorruption when there is no valid header, or the file is longer than it says. A shorter file
  // was closed, if it ends in a clean end. kUnsupportedFormat. kInvalidArgument when it is an
  // intact header of another store, which must not be overwritten.
  Result<SegmentHeader> ReadHeader();
  // True when the header block holds only zeros or the intact header of an older use of the file:
  // then no write of this use reached it, or all of it was lost.
  Result<bool> HeaderLooksUnwritten();
  // The number in an intact header of this store, whatever the file's name; 0 without one.
  Result<uint64_t> NumberInHeader();

  // The group at `offset`, of this epoch and beginning with this sequence; kCorruption says what
  // was found instead. `verify_payload` also checks the strips and reports in Group::payload.
  Result<const Group*> ReadGroup(uint32_t offset, uint64_t epoch, uint64_t first_sequence,
                                 bool verify_payload);

  // [offset, offset + bytes) of the file, valid until the next call; aligned in memory for direct
  // writes if `offset` is that of a block. kCorruption beyond the end. If it is not in memory, at
  // least `ahead` bytes are read.
  Result<std::span<const std::byte>> Read(uint64_t offset, uint64_t bytes,
                                          uint64_t ahead = kReadBytes);

  // All valid group headers of epoch `min_epoch` or newer in [begin, end), in order.
  Result<std::vector<GroupHeader>> FindGroups(uint64_t begin, uint64_t end, uint64_t min_epoch);

  // Later calls read the file as it is now, not a buffered older state.
  void Forget() { window_begin_ = window_end_ = 0; }

  // The footer's trailer, and its entries. Nothing when there is none or it is damaged.
  Result<std::optional<FooterTrailer>> ReadFooterTrailer(uint64_t epoch);
  Result<std::span<const std::byte>> ReadFooterEntries(const FooterTrailer& trailer);

 private:
  SegmentReader(std::string path, uint64_t segment, const StoreId& store)
      : path_(std::move(path)), segment_(segment), store_(store) {}

  Status Bad(uint64_t offset, const std::string& what) const;
  Result<bool> BecameShorter();

  const std::string path_;
  const uint64_t segment_;
  const StoreId store_;
  std::unique_ptr<io::File> file_;
  uint64_t bytes_ = 0;
  AlignedBuffer window_;
  uint64_t window_begin_ = 0, window_end_ = 0;
  Group group_;
};

}  // namespace cairn::wal
