// SPDX-License-Identifier: Apache-2.0
//
// Reads one snapshot table. Its file need not stay open (TableContext::open_files). Open reads the
// end of the file: the footer and, if it is short, the list of fragments (64 bytes each). A longer
// list is read by the first call that needs it, and kept. The frames' entries (24 bytes each) and
// the frames are read by the caller, coalesced and in flight as it likes, through OpenFile(), and
// are checked here.
//
// Thread-safe. kCorruption names file and offset.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/forward_reader.h"
#include "sstable/snapshot_format.h"
#include "sstable/table_files.h"

namespace cairn::sstable {

class SnapshotTable {
 public:
  // kNotFound, kCorruption, kUnsupportedFormat, kIoError, kOutOfMemory.
  static Result<std::unique_ptr<SnapshotTable>> Open(const TableContext& context, uint64_t number);

  const SnapshotInfo& info() const { return footer_.info; }
  const std::string& path() const { return path_; }
  // Stays open as long as it is held. `waits`: see io::FileCache. kNotFound if the file was deleted
  // meanwhile.
  Result<std::shared_ptr<io::File>> OpenFile(bool waits = true) const;

  // The fragment that holds `position`, or the next one behind it on this lane, or none.
  Result<std::optional<FragmentEntry>> Find(uint64_t node, uint32_t lane, uint64_t position);
  // All of them, in order; valid as long as the table.
  Result<std::span<const FragmentEntry>> Fragments();
  // `bytes` were read at fragment.entries_offset. Slice by slice, in each page by page.
  Result<std::vector<FrameEntry>> ParseFrames(const FragmentEntry& fragment,
                                              std::span<const std::byte> entries) const;
  // Reads them from the file.
  Result<std::vector<FrameEntry>> Frames(const FragmentEntry& fragment) const;

  // Whether `stored` is what was written as this frame.
  Status Verify(const FrameEntry& frame, std::span<const std::byte> stored) const;
  // Reads the list of fragments and the frames' entries, and with `check_frame` every frame: it is
  // called for each frame whose checksum holds, to check its content. Reports each damage and
  // continues with whatever that does not hide.
  using CheckFrame = std::function<Status(const FragmentEntry& fragment, uint32_t page,
                                          const FrameEntry& frame, std::span<const std::byte>)>;
  void VerifyEach(const CheckFrame& check_frame, const std::function<void(const Status&)>& damaged);
  // Reads and verifies every byte that means something. Returns the first damage.
  Status VerifyAll();

 private:
  SnapshotTable(const TableContext& context, std::shared_ptr<io::File> file, std::string path,
                const ParsedSnapshotFooter& footer);
  Status Damaged(uint64_t offset, const std::string& what) const;
  Status ReadBytes(uint64_t offset, std::span<std::byte> into) const;
  Result<std::vector<FragmentEntry>> ReadFragments() const;
  Result<std::vector<FrameEntry>> FramesOf(const FragmentEntry& fragment, uint64_t small_bytes,
                                           io::ForwardReader* reader) const;
  Status CheckFragments(std::span<const FragmentEntry> fragments) const;

  const TableContext context_;
  const std::shared_ptr<io::File> file_;  // Null where the context keeps files.
  const std::string path_;
  const ParsedSnapshotFooter footer_;

  Mutex mutex_;  // Not held while these are read.
  bool loaded_ CAIRN_GUARDED_BY(mutex_) = false;
  std::vector<FragmentEntry> fragments_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::sstable
