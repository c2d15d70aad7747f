// SPDX-License-Identifier: Apache-2.0
//
// The pool's opening: it takes over the files that it finds, and makes what is missing.
#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/io/file_util.h"
#include "wal/segment_pool.h"

namespace cairn::wal {

// How many bytes of blocks a file has that Open found and that is not part of the log. If its size
// is not that of a segment it is removed, and the result is nothing.
Result<std::optional<uint64_t>> SegmentPool::AllocatedOf(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const io::FileInfo info, world_.files->Info(path));
  if (info.bytes == options_.segment_bytes) return std::optional(info.allocated_bytes);
  CAIRN_RETURN_IF_ERROR(world_.files->Remove(path));
  return std::optional<uint64_t>();
}

Status SegmentPool::AdoptSpare(uint64_t id) {
  const std::string path = SparePath(options_.directory, id);
  CAIRN_ASSIGN_OR_RETURN(const std::optional<uint64_t> allocated, AllocatedOf(path));
  if (!allocated.has_value()) return Status::Ok();
  // A store that was opened above its limit keeps its ballast: dropping must work there.
  if (!Take().ok()) {
    if (ready() >= kBallastSegments) return world_.files->Remove(path);
    options_.grant->TakeAnyway(options_.segment_bytes);
  }
  Promise(Unallocated(*allocated));
  // Most were used before. For a new one that is taken for written, groups pay a little.
  AddSpare({.id = id, .allocated = *allocated, .written = true});
  return Status::Ok();
}

// Files that are not part of the log become spares, except the next segment. Those below the log
// rest, or a crash has left them: they are removed and never written to again, since a copy of the
// store may have them as hard links. The highest number first: a number above the next one must
// never exist without it, or recovery would report the next one as missing.
Status SegmentPool::AdoptSegments(const std::vector<uint64_t>& segments, uint64_t first_live,
                                  uint64_t next_segment) {
  io::FileSystem& files = *world_.files;
  const std::string& directory = options_.directory;
  bool moved = false;
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    if (*segment >= first_live && *segment < next_segment) continue;
    if (*segment == next_segment) continue;
    CAIRN_CHECK(*segment != 0);
    if (*segment < first_live) {
      const auto& rest = options_.resting;
      const bool rests =
          std::binary_search(rest.begin(), rest.end(), RestingSegment{*segment, 0},
                             [](const auto& a, const auto& b) { return a.number < b.number; });
      if (!rests) CAIRN_RETURN_IF_ERROR(files.Remove(SegmentPath(directory, *segment)));
      continue;
    }
    uint64_t id = 0;
    {
      MutexLock lock(&mutex_);
      id = NewSpareLocked();
    }
    CAIRN_RETURN_IF_ERROR(files.Rename(SegmentPath(directory, *segment), SparePath(directory, id)));
    CAIRN_RETURN_IF_ERROR(AdoptSpare(id));
    moved = true;
  }
  return moved ? files.SyncDirectory(directory) : Status::Ok();
}

// Takes over the next segment, whose file exists.
Status SegmentPool::AdoptNext(uint64_t next_segment) {
  io::FileSystem& files = *world_.files;
  const std::string path = SegmentPath(options_.directory, next_segment);
  CAIRN_ASSIGN_OR_RETURN(const std::optional<uint64_t> had, AllocatedOf(path));
  if (!had.has_value()) return Status::Ok();
  // The rename may be older than the last sync of the directory, or younger.
  CAIRN_RETURN_IF_ERROR(files.SyncDirectory(options_.directory));
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file,
                         files.Open(path, {.write = true, .direct = true}));
  // As it was made, not touched again: opening twice changes nothing the second time.
  uint64_t allocated = FirstBytes();
  if (*had < allocated) {
    CAIRN_ASSIGN_OR_RETURN(allocated, AllocateNext(*file, *had));
  }
  CAIRN_CHECK(allocated <= options_.segment_bytes);
  MutexLock lock(&mutex_);
  CAIRN_CHECK(next_.file == nullptr);
  CAIRN_CHECK(next_segment == next_segment_);
  next_ = {std::move(file), next_segment, allocated};
  if (options_.grant != nullptr) options_.grant->TakeAnyway(options_.segment_bytes);
  Promise(Unallocated(allocated));
  return Status::Ok();
}

Status SegmentPool::Open(uint64_t first_live, uint64_t next_segment, bool fill) {
  CAIRN_CHECK(first_live != 0);
  CAIRN_CHECK(first_live <= next_segment);
  {
    MutexLock lock(&mutex_);
    CAIRN_CHECK(next_segment_ == 0);  // It is opened once, before the thread starts.
    CAIRN_CHECK(thread_ == nullptr);
    next_segment_ = next_segment;
  }
  // Then syncing its names needs no descriptor.
  CAIRN_RETURN_IF_ERROR(io::HoldDirectory(&world_, options_.directory));
  io::FileSystem& files = *world_.files;
  CAIRN_ASSIGN_OR_RETURN(const LogDirectory found, ListLogDirectory(files, options_.directory));
  for (const std::string& name : found.unfinished) {
    CAIRN_RETURN_IF_ERROR(files.Remove(options_.directory + "/" + name));
  }
  CAIRN_RETURN_IF_ERROR(cushion_.Open());
  if (options_.grant != nullptr) options_.grant->TakeAnyway(cushion_.bytes());
  if (!found.spares.empty()) {
    MutexLock lock(&mutex_);
    next_spare_id_ = found.spares.back() + 1;
  }
  for (const uint64_t id : found.spares) CAIRN_RETURN_IF_ERROR(AdoptSpare(id));
  CAIRN_RETURN_IF_ERROR(AdoptSegments(found.segments, first_live, next_segment));
  if (std::binary_search(found.segments.begin(), found.segments.end(), next_segment)) {
    CAIRN_RETURN_IF_ERROR(AdoptNext(next_segment));
  }
  {
    MutexLock lock(&mutex_);
    CountReadyLocked();
  }

  Status status;
  while (status.ok()) {
    Task task;
    {
      MutexLock lock(&mutex_);
      task = NextTaskLocked(world_.scheduler->MonotonicNs());
    }
    if (task == Task::kNone || (task == Task::kMake && !fill)) break;
    status = RunTask(task);
    if (task != Task::kCushion || status.ok()) continue;
    // Without it the store is read, and data dropped, as without room for a segment.
    Report("log: no room to be sure of writes: ", status);
    status = Status::Ok();
  }
  if (!status.ok()) {
    SetRefusal(status, /*with_stock=*/false);
    // An existing store can be read, and its data dropped, without room for a new segment.
    MutexLock lock(&mutex_);
    if (broken_ || (fill && ready() == 0)) return status;
  }
  CAIRN_CHECK(!fill || ready() > 0);
  return Status::Ok();
}

}  // namespace cairn::wal
