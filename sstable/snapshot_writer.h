// SPDX-License-Identifier: Apache-2.0
//
// Writes one snapshot table, front to back. The content of frames, and how they are packed
// (base/codec/kv_frame.h), is up to the caller.
//
//   writer->BeginFragment({.node = 7, .lane = 1, .begin = 0, .count = 1024, .page_rows = 256,
//                          .slices = 512});
//   for each slice, for each page: writer->AddFrame(packed, raw_bytes);
//   ... further fragments, ascending by (node, lane, begin) ...
//   writer->Finish();
//
// The file is called *.tmp until all of it is synced; then it is renamed and the directory
// synced. A crash before that leaves an unfinished file that is never taken for a table, or a
// finished one that no log record names: an orphan. Finish returns when the table survives every
// crash.
//
// The device writes one buffer while the next is filled. Memory: kSnapshotWriteBuffers buffers of
// `write_bytes`, 64 bytes for each fragment and 24 for each frame of the one being written.
//
// One thread at a time. Errors stick: after a failure every call returns the same status. Errors
// are kNoSpace (from the callbacks or the disk), kIoError, kOutOfMemory, and those of the
// callbacks. The destructor of a writer that did not finish removes its file and returns the space.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "sstable/snapshot_format.h"
#include "sstable/table_files.h"

namespace cairn::sstable {

struct FragmentSpec {
  uint64_t node = 0;
  uint32_t lane = 0;
  uint64_t begin = 0;
  uint32_t count = 0;
  uint32_t page_rows = 0;
  uint32_t slices = 0;
  uint32_t flags = 0;  // As FragmentEntry.
};

class SnapshotWriter {
 public:
  static Result<std::unique_ptr<SnapshotWriter>> Create(const TableContext& context,
                                                        SnapshotKind kind, uint64_t number,
                                                        size_t write_bytes = kSnapshotWriteBytes);
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  // From the next buffer on writes are of this size, at most that of Create.
  void SetWriteBytes(size_t bytes);
  // REQUIRES: the fragment before has all its frames and comes before this one; only lane and begin
  // may be 0.
  void BeginFragment(const FragmentSpec& spec);
  // The next frame of the fragment; copied. REQUIRES: 1 to kMaxStoredBytes stored bytes.
  Status AddFrame(std::span<const std::byte> stored, uint32_t raw_bytes);
  // REQUIRES: at least one fragment, the last one whole. Nothing may be added afterwards.
  Result<SnapshotInfo> Finish();

 private:
  struct Buffer {
    AlignedBuffer memory;
    io::Request request;
    bool in_flight = false;
  };

  SnapshotWriter(const TableContext& context, SnapshotKind kind, uint64_t number,
                 size_t write_bytes);
  Status Keep(Status status);
  Status AppendBytes(std::span<const std::byte> bytes);
  Status Pad(uint32_t alignment);
  Status EndFragment();
  Status SubmitBuffer();
  Status Reap();
  Status WriteRest();
  Status Publish();

  const TableContext context_;
  const size_t buffer_bytes_;
  size_t write_bytes_, next_write_bytes_;  // Sizes of the buffer being filled, and of the next.
  const std::string path_;
  const std::string temporary_path_;
  ParsedSnapshotFooter footer_;
  Status status_;
  std::unique_ptr<io::File> file_;
  bool created_ = false;
  bool finished_ = false;

  std::array<Buffer, kSnapshotWriteBuffers> buffers_;
  size_t filling_ = 0;    // Index of the buffer that takes bytes.
  size_t buffered_ = 0;   // Bytes in it.
  uint64_t written_ = 0;  // Bytes of the file that were submitted.
  uint64_t end_ = 0;      // written_ and what is buffered.
  uint64_t taken_ = 0;    // From the callbacks.

  std::vector<FragmentEntry> fragments_;
  std::vector<FrameEntry> frames_;    // The last fragment's.
  std::unique_ptr<io::Queue> queue_;  // Last: waits for requests that use file and buffers.
};

}  // namespace cairn::sstable
