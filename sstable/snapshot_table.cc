// SPDX-License-Identifier: Apache-2.0
#include "sstable/snapshot_table.h"

#include <algorithm>
#include <utility>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/mutation.h"

namespace cairn::sstable {

namespace {

Result<std::shared_ptr<io::File>> OpenBy(const TableContext& context, uint64_t number,
                                         const std::string& path, bool waits) {
  if (context.open_files != nullptr) {
    return context.open_files->Open(*context.files, number, path, waits);
  }
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file,
                         context.files->Open(path, {.direct = true}));
  return std::shared_ptr<io::File>(std::move(file));
}

}  // namespace

SnapshotTable::SnapshotTable(const TableContext& context, std::shared_ptr<io::File> file,
                             std::string path, const ParsedSnapshotFooter& footer)
    : context_(context), file_(std::move(file)), path_(std::move(path)), footer_(footer) {
  CAIRN_CHECK((file_ == nullptr) == (context_.open_files != nullptr));
}

Result<std::unique_ptr<SnapshotTable>> SnapshotTable::Open(const TableContext& context,
                                                           uint64_t number) {
  const std::string path = SnapshotTablePath(context.directory, number);
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<io::File> file,
                         OpenBy(context, number, path, /*waits=*/true));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, file->Size());
  if (bytes < 2 * kTableAlignment || bytes % kTableAlignment != 0) {
    return Status(StatusCode::kCorruption, path + ": a snapshot table of " + std::to_string(bytes) +
                                               " bytes, which none has");
  }
  const uint64_t tail_bytes = std::min<uint64_t>(bytes, kOpenReadBytes);
  const uint64_t tail_at = bytes - tail_bytes, footer_at = bytes - kTableAlignment;
  const AlignedBuffer tail =
      AlignedBuffer::TryAllocate(context.allocator, tail_bytes, kTableAlignment);
  if (tail.empty()) return Status(StatusCode::kOutOfMemory, "no memory to open " + path);
  CAIRN_RETURN_IF_ERROR(file->Read(tail_at, tail.span()));
  auto footer =
      ParseSnapshotFooter(tail.span().last(kTableAlignment), context.store, number, bytes);
  if (!footer.ok()) {
    return Status(footer.status().code(),
                  At(path, footer_at) + std::string(footer.status().message()));
  }
  if (context.open_files != nullptr) file = nullptr;
  std::unique_ptr<SnapshotTable> table(new SnapshotTable(context, std::move(file), path, *footer));
  if (footer->fragments_offset >= tail_at) {
    std::vector<FragmentEntry> fragments(footer->info.fragments);
    const auto into = std::as_writable_bytes(std::span(fragments));
    CAIRN_CHECK(footer->fragments_offset + into.size() <= footer_at);
    std::memcpy(into.data(), tail.data() + (footer->fragments_offset - tail_at), into.size());
    // Damage is reported when the list is needed.
    const bool whole = table->CheckFragments(fragments).ok();
    MutexLock lock(&table->mutex_);
    table->loaded_ = whole;
    table->fragments_ = std::move(fragments);
  }
  return table;
}

Result<std::shared_ptr<io::File>> SnapshotTable::OpenFile(bool waits) const {
  if (file_ != nullptr) return file_;
  return OpenBy(context_, footer_.info.number, path_, waits);
}

Status SnapshotTable::Damaged(uint64_t offset, const std::string& what) const {
  return Status(StatusCode::kCorruption, At(path_, offset) + what);
}

// Reads any stretch of the file through aligned memory.
Status SnapshotTable::ReadBytes(uint64_t offset, std::span<std::byte> into) const {
  CAIRN_CHECK(!into.empty());
  const uint64_t begin = offset / kTableAlignment * kTableAlignment;
  const uint64_t end = AlignUp(offset + into.size(), kTableAlignment);
  CAIRN_CHECK(end <= footer_.info.bytes);
  const AlignedBuffer memory =
      AlignedBuffer::TryAllocate(context_.allocator, end - begin, kTableAlignment);
  if (memory.empty()) return Status(StatusCode::kOutOfMemory, "no memory to read " + path_);
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> file, OpenFile());
  CAIRN_RETURN_IF_ERROR(file->Read(begin, memory.span()));
  context_.counters->block_reads.fetch_add(1, std::memory_order_relaxed);
  context_.counters->read_bytes.fetch_add(end - begin, std::memory_order_relaxed);
  std::memcpy(into.data(), memory.data() + (offset - begin), into.size());
  return Status::Ok();
}

Result<std::vector<FragmentEntry>> SnapshotTable::ReadFragments() const {
  std::vector<FragmentEntry> fragments(footer_.info.fragments);
  const auto bytes = std::as_writable_bytes(std::span(fragments));
  const uint64_t offset = footer_.fragments_offset;
  CAIRN_RETURN_IF_ERROR(ReadBytes(offset, bytes));
  CAIRN_RETURN_IF_ERROR(CheckFragments(fragments));
  return fragments;
}

Status SnapshotTable::CheckFragments(std::span<const FragmentEntry> fragments) const {
  const uint64_t offset = footer_.fragments_offset;
  if (CAIRN_KEPT(kHashOfFragments) &&
      PlacedHash(std::as_bytes(fragments), context_.store, footer_.info.number, offset) !=
          footer_.fragments_hash) {
    return Damaged(offset, "the list of fragments does not have its checksum");
  }
  // A right checksum over wrong contents is a bug of the writer; check all the same.
  uint64_t frames = 0, end = 0;
  for (size_t i = 0; i < fragments.size(); ++i) {
    const FragmentEntry& entry = fragments[i];
    const bool ordered = i == 0 || KeyOf(fragments[i - 1]) < KeyOf(entry);
    if (!ordered || entry.offset != end || !IsPossible(entry, offset)) {
      return Damaged(offset + i * sizeof(entry), "an impossible fragment");
    }
    frames += entry.frames();
    end = AlignUp(entry.entries_offset + entry.entries_bytes(), kFrameAlignment);
  }
  if (frames != footer_.info.frames || end != offset) {
    return Damaged(offset, "frames that belong to no fragment");
  }
  return Status::Ok();
}

Result<std::span<const FragmentEntry>> SnapshotTable::Fragments() {
  {
    MutexLock lock(&mutex_);
    if (loaded_) return std::span<const FragmentEntry>(fragments_);
  }
  CAIRN_ASSIGN_OR_RETURN(std::vector<FragmentEntry> fragments, ReadFragments());
  MutexLock lock(&mutex_);
  // Else another thread was faster, and callers may hold spans of its list.
  if (!std::exchange(loaded_, true)) fragments_ = std::move(fragments);
  return std::span<const FragmentEntry>(fragments_);
}

Result<std::optional<FragmentEntry>> SnapshotTable::Find(uint64_t node, uint32_t lane,
                                                         uint64_t position) {
  CAIRN_ASSIGN_OR_RETURN(const std::span<const FragmentEntry> fragments, Fragments());
  const FragmentKey wanted{node, lane, position};
  const auto found =
      std::partition_point(fragments.begin(), fragments.end(), [&](const FragmentEntry& entry) {
        return FragmentKey{entry.node, entry.lane, entry.end() - 1} < wanted;
      });
  if (found == fragments.end() || found->node != node || found->lane != lane) {
    return std::optional<FragmentEntry>();
  }
  CAIRN_CHECK(found->end() > position);
  return std::optional(*found);
}

Result<std::vector<FrameEntry>> SnapshotTable::Frames(const FragmentEntry& fragment) const {
  std::vector<std::byte> bytes(fragment.entries_bytes());
  CAIRN_RETURN_IF_ERROR(ReadBytes(fragment.entries_offset, bytes));
  return ParseFrames(fragment, bytes);
}

Result<std::vector<FrameEntry>> SnapshotTable::ParseFrames(
    const FragmentEntry& fragment, std::span<const std::byte> entries) const {
  CAIRN_CHECK(IsPossible(fragment, footer_.fragments_offset));
  CAIRN_CHECK(entries.size() == fragment.entries_bytes());
  const uint64_t offset = fragment.entries_offset;
  if (CAIRN_KEPT(kHashOfFrames) &&
      PlacedHash(entries, context_.store, footer_.info.number, offset) != fragment.frames_hash) {
    return Damaged(offset, "the frames of a fragment do not have their checksum");
  }
  std::vector<FrameEntry> frames(static_cast<size_t>(fragment.frames()));
  std::memcpy(frames.data(), entries.data(), entries.size());
  for (const FrameEntry& frame : frames) {
    if (!CAIRN_KEPT(kBoundOfFrame)) break;
    if (frame.offset % kFrameAlignment != 0 || frame.offset < fragment.offset ||
        frame.offset > offset || frame.stored_bytes == 0 || frame.raw_bytes == 0 ||
        frame.stored_bytes > offset - frame.offset) {
      return Damaged(offset, "a frame that cannot be where it is said to be");
    }
  }
  return frames;
}

Status SnapshotTable::Verify(const FrameEntry& frame, std::span<const std::byte> stored) const {
  CAIRN_CHECK(stored.size() == frame.stored_bytes);
  if (!CAIRN_KEPT(kHashOfFrame) ||
      PlacedHash(stored, context_.store, footer_.info.number, frame.offset) == frame.hash) {
    return Status::Ok();
  }
  return Damaged(frame.offset, "a frame of " + std::to_string(frame.stored_bytes) +
                                   " bytes does not have its checksum");
}

void SnapshotTable::VerifyEach(const CheckFrame& check_frame,
                               const std::function<void(const Status&)>& damaged) {
  const auto fragments = Fragments();
  if (!fragments.ok()) return damaged(fragments.status());
  const auto file = OpenFile();
  if (!file.ok()) return damaged(file.status());
  io::ForwardReader reader(context_.allocator);
  reader.Open(file->get(), footer_.fragments_offset);
  const uint64_t small_bytes = check_frame ? io::kForwardReadBytes : kEntriesWithFragmentBytes;
  for (const FragmentEntry& fragment : *fragments) {
    const auto frames = FramesOf(fragment, small_bytes, &reader);
    if (!frames.ok()) damaged(frames.status());
    if (!frames.ok() || !check_frame) continue;
    for (size_t i = 0; i < frames->size(); ++i) {
      const FrameEntry& frame = (*frames)[i];
      const auto stored = reader.Read(frame.offset, frame.stored_bytes);
      Status status = stored.ok() ? Verify(frame, *stored) : stored.status();
      if (status.ok()) {
        status = check_frame(fragment, static_cast<uint32_t>(i % fragment.pages), frame, *stored);
        if (!status.ok()) status = Damaged(frame.offset, std::string(status.message()));
      }
      if (!status.ok()) damaged(status);
    }
  }
  context_.counters->block_reads.fetch_add(reader.reads(), std::memory_order_relaxed);
  context_.counters->read_bytes.fetch_add(reader.read_bytes(), std::memory_order_relaxed);
}

// The entries lie behind the frames. Those of a small fragment are read with it; those of a larger
// one are read separately, so that the reader does not run ahead of its frames.
Result<std::vector<FrameEntry>> SnapshotTable::FramesOf(const FragmentEntry& fragment,
                                                        uint64_t small_bytes,
                                                        io::ForwardReader* reader) const {
  if (fragment.bytes() > small_bytes) return Frames(fragment);
  // If all of it cannot be read, a part may be.
  static_cast<void>(reader->Read(fragment.offset, fragment.bytes()));
  CAIRN_ASSIGN_OR_RETURN(const auto entries,
                         reader->Read(fragment.entries_offset, fragment.entries_bytes()));
  return ParseFrames(fragment, entries);
}

Status SnapshotTable::VerifyAll() {
  Status first;
  VerifyEach([](const FragmentEntry&, uint32_t, const FrameEntry&,
                std::span<const std::byte>) { return Status::Ok(); },
             [&](const Status& damage) {
               if (first.ok()) first = damage;
             });
  return first;
}

}  // namespace cairn::sstable
