// SPDX-License-Identifier: Apache-2.0
#include "wal/segment_pool.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "wal/constants.h"
#include "wal/format.h"

namespace cairn::wal {

SegmentPool::SegmentPool(io::World world, const LogOptions& options, Callbacks callbacks)
    : world_(std::move(world)), options_(options), callbacks_(std::move(callbacks)) {}

SegmentPool::~SegmentPool() { Stop(); }

// Where nothing else is left the log must go on, or nothing could be given back.
Status SegmentPool::Take() {
  if (options_.grant == nullptr) return Status::Ok();
  const Purpose purpose = MayUseReserve() ? Purpose::kReclaim : Purpose::kData;
  return options_.grant->Take(options_.segment_bytes, purpose);
}

void SegmentPool::Return(uint64_t bytes) {
  if (options_.grant != nullptr) options_.grant->Return(bytes);
}

void SegmentPool::CountReadyLocked() {
  ready_.store(static_cast<uint32_t>(spares_.size()) + (next_.file != nullptr ? 1 : 0),
               std::memory_order_release);
}

// The id of a spare that is about to be made. One may be made and one recycled at the same time.
uint64_t SegmentPool::NewSpareLocked() {
  spares_.reserve(spares_.size() + 2);
  return next_spare_id_++;
}

void SegmentPool::AddSpare(uint64_t id) {
  MutexLock lock(&mutex_);
  spares_.push_back(id);
  CountReadyLocked();
}

// Of a file found at Open that is not part of the log. Removes it if not.
Result<bool> SegmentPool::HasRightSize(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const io::FileInfo info, world_.files->Info(path));
  if (info.bytes == options_.segment_bytes) return true;
  CAIRN_RETURN_IF_ERROR(world_.files->Remove(path));
  return false;
}

Status SegmentPool::AdoptSpare(uint64_t id) {
  const std::string path = SparePath(options_.directory, id);
  CAIRN_ASSIGN_OR_RETURN(const bool fits, HasRightSize(path));
  if (!fits) return Status::Ok();
  // Ballast stays in a store that was opened above its limit, too: dropping must work there.
  if (!Take().ok()) {
    if (ready() >= kBallastSegments) return world_.files->Remove(path);
    options_.grant->TakeAnyway(options_.segment_bytes);
  }
  AddSpare(id);
  return Status::Ok();
}

// Those that are no part of the log become spares, but for the next one. From the highest down: a
// number above the next one must never be there without the next one, or recovery would miss it.
Status SegmentPool::AdoptSegments(const std::vector<uint64_t>& segments, uint64_t first_live,
                                  uint64_t next_segment) {
  io::FileSystem& files = *world_.files;
  const std::string& directory = options_.directory;
  bool moved = false;
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    if (*segment >= first_live && *segment < next_segment) continue;
    if (*segment == next_segment) continue;
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

// The next segment, whose file is there.
Status SegmentPool::AdoptNext(uint64_t next_segment) {
  io::FileSystem& files = *world_.files;
  const std::string path = SegmentPath(options_.directory, next_segment);
  CAIRN_ASSIGN_OR_RETURN(const bool fits, HasRightSize(path));
  if (!fits) return Status::Ok();
  // The rename may be older than the last sync of the directory, or younger.
  CAIRN_RETURN_IF_ERROR(files.SyncDirectory(options_.directory));
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file,
                         files.Open(path, {.write = true, .direct = true}));
  MutexLock lock(&mutex_);
  next_ = {std::move(file), next_segment};
  if (options_.grant != nullptr) options_.grant->TakeAnyway(options_.segment_bytes);
  return Status::Ok();
}

Status SegmentPool::Open(uint64_t first_live, uint64_t next_segment, bool fill) {
  {
    MutexLock lock(&mutex_);
    next_segment_ = next_segment;
  }
  // A sync of its names then needs no descriptor.
  CAIRN_RETURN_IF_ERROR(io::HoldDirectory(&world_, options_.directory));
  io::FileSystem& files = *world_.files;
  CAIRN_ASSIGN_OR_RETURN(const LogDirectory found, ListLogDirectory(files, options_.directory));
  for (const std::string& name : found.unfinished) {
    CAIRN_RETURN_IF_ERROR(files.Remove(options_.directory + "/" + name));
  }
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
      task = NextTaskLocked();
    }
    if (task == Task::kNone || (task == Task::kMake && !fill)) break;
    status = RunTask(task);
  }
  if (!status.ok()) {
    SetRefusal(status, /*with_stock=*/false);
    // A store that exists can be read, and its data dropped, without room for a new segment.
    MutexLock lock(&mutex_);
    if (broken_ || (fill && ready() == 0)) return status;
  }
  return Status::Ok();
}

bool SegmentPool::Start() {
  thread_ = world_.scheduler->StartThread("cairn-log-pool", [this] { Run(); });
  return thread_ != nullptr;
}

void SegmentPool::Stop() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    word_.fetch_add(1);
  }
  world_.scheduler->WakeAll(word_);
  thread_.reset();
  MutexLock lock(&mutex_);
  next_.file = nullptr;
}

SegmentPool::Ready SegmentPool::TakeNext() {
  MutexLock lock(&mutex_);
  Ready taken = std::exchange(next_, Ready());
  if (taken.file != nullptr) {
    ++next_segment_;
    CountReadyLocked();
  }
  return taken;
}

Status SegmentPool::refusal() {
  MutexLock lock(&mutex_);
  return refusal_;
}

bool SegmentPool::stock_is_refused() {
  MutexLock lock(&mutex_);
  return stock_is_refused_;
}

void SegmentPool::TryAgain() {
  {
    MutexLock lock(&mutex_);
    refusal_ = Status::Ok();
    stock_is_refused_ = false;
    retry_at_ns_ = 0;
  }
  Kick();
}

void SegmentPool::TryOneMore() {
  {
    MutexLock lock(&mutex_);
    one_more_ = true;
  }
  Kick();
}

void SegmentPool::Kick() {
  {
    MutexLock lock(&mutex_);
    kicked_ = true;
    word_.fetch_add(1);
  }
  world_.scheduler->WakeAll(word_);
}

SegmentPool::Task SegmentPool::NextTaskLocked() const {
  if (broken_) return Task::kNone;
  // With the prepared segment in hand, spares are counted alone.
  if (next_.file == nullptr) return Task::kPrepare;
  if (one_more_ || spares_.size() < options_.spare_segments_min) return Task::kMake;
  if (spares_.size() > std::max(options_.spare_segments_min, options_.spare_segments_max)) {
    return Task::kTrim;
  }
  return Task::kNone;
}

void SegmentPool::SetRefusal(const Status& status, bool with_stock) {
  const uint64_t now = world_.scheduler->MonotonicNs();
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = refusal_.ok();
    refusal_ = status;
    stock_is_refused_ = with_stock;
    retry_at_ns_ = now + kSpaceRetryNs;
  }
  if (!first) return;
  ++times_refused_;
  Tell("log: no new segment: ", status);
}

// Without memory for the words nothing is told: the thread must go on.
void SegmentPool::Tell(const char* what, const Status& status) {
  try {
    callbacks_.on_event(status.ok() ? what : what + status.ToString());
  } catch (const std::bad_alloc&) {
  }
}

void SegmentPool::Run() {
  MutexLock lock(&mutex_);
  while (!stop_) {
    const Task task = NextTaskLocked();
    const bool has_stock = !spares_.empty() || next_is_named_;
    const bool makes_file = task == Task::kMake || (task == Task::kPrepare && !has_stock);
    const bool with_stock = task == Task::kPrepare && !makes_file;
    const bool refused =
        !refusal_.ok() && (makes_file || task == Task::kTrim || (with_stock && stock_is_refused_));
    const bool wanted = task != Task::kNone && (!refused || kicked_);
    if (!wanted && !kicked_) {
      const uint32_t seen = word_.load();
      lock.Unlock();
      world_.scheduler->Wait(word_, seen, io::kNoDeadline);
      lock.Lock();
      continue;
    }
    kicked_ = false;
    const uint64_t retry_at = refused ? retry_at_ns_ : 0;
    lock.Unlock();
    if (callbacks_.idle_work) callbacks_.idle_work();
    if (wanted) {
      const uint64_t now = world_.scheduler->MonotonicNs();
      if (retry_at > now) world_.scheduler->Sleep(retry_at - now);
      if (task == Task::kPrepare && makes_file) {
        Tell("log: the pool of spare segments ran dry", Status::Ok());
      }
      making_.store(makes_file ? 1 : 0, std::memory_order_release);
      const Status status = RunTask(task);
      making_.store(0, std::memory_order_release);
      if (task == Task::kMake) {
        MutexLock relock(&mutex_);
        one_more_ = false;
      }
      if (!status.ok()) {
        SetRefusal(status, with_stock);
      } else if (refused) {
        MutexLock relock(&mutex_);
        refusal_ = Status::Ok();
        stock_is_refused_ = false;
      }
      callbacks_.on_ready();
    }
    lock.Lock();
  }
}

Status SegmentPool::RunTask(Task task) {
  CAIRN_RETURN_IF_ERROR(callbacks_.check_lock());
  try {
    switch (task) {
      case Task::kPrepare: return PrepareNext();
      case Task::kMake: return MakeSpare();
      case Task::kTrim: return TrimSpare();
      case Task::kNone: break;
    }
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
  return Status::Ok();
}

Status SegmentPool::MakeSpare() {
  uint64_t id;
  {
    MutexLock lock(&mutex_);
    id = NewSpareLocked();
  }
  CAIRN_RETURN_IF_ERROR(Take());
  const Status made = Guarded([&] {
    return MakeZeroedFile(*world_.files, SparePath(options_.directory, id), options_.segment_bytes,
                          options_.allocator);
  });
  disk_is_full_.store(made.code() == StatusCode::kNoSpace, std::memory_order_release);
  if (!made.ok()) {
    Return(options_.segment_bytes);
    return made;
  }
  MutexLock lock(&mutex_);
  bytes_prewritten_ += options_.segment_bytes;
  spares_.push_back(id);
  CountReadyLocked();
  return Status::Ok();
}

Status SegmentPool::PrepareNext() {
  uint64_t spare = 0;
  bool named = false;
  bool have = false;
  uint64_t segment;
  {
    MutexLock lock(&mutex_);
    segment = next_segment_;
    named = next_is_named_;
    have = !spares_.empty();
    if (have) spare = spares_.front();
  }
  if (!named && !have) return MakeSpare();  // And the next round prepares it.

  io::FileSystem& files = *world_.files;
  const std::string path = SegmentPath(options_.directory, segment);
  if (!named) {
    CAIRN_RETURN_IF_ERROR(files.Rename(SparePath(options_.directory, spare), path));
    MutexLock lock(&mutex_);
    spares_.erase(spares_.begin());
    next_is_named_ = true;
    CountReadyLocked();
  }
  // Opening it can be tried again (when there are descriptors again), a sync cannot.
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file,
                         files.Open(path, {.write = true, .direct = true}));
  Status synced;
  if (CAIRN_KEPT(kSyncDirectorySegment)) synced = files.SyncDirectory(options_.directory);
  if (!synced.ok()) {
    {
      MutexLock lock(&mutex_);
      broken_ = true;
    }
    Status cause = synced;
    static_cast<void>(Guarded([&] { cause = cause.WithContext("preparing a log segment"); }));
    callbacks_.on_fatal(cause);
    return synced;
  }
  Ready next{std::move(file), segment};
  MutexLock lock(&mutex_);
  next_ = std::move(next);
  next_is_named_ = false;
  CountReadyLocked();
  return Status::Ok();
}

Status SegmentPool::TrimSpare() {
  uint64_t spare = 0;
  {
    MutexLock lock(&mutex_);
    spare = spares_.back();
  }
  // It stays one of them until it is gone: else nobody would try again.
  CAIRN_RETURN_IF_ERROR(io::RemoveIfExists(*world_.files, SparePath(options_.directory, spare)));
  {
    MutexLock lock(&mutex_);
    std::erase(spares_, spare);
    CountReadyLocked();
  }
  Return(options_.segment_bytes);
  return Status::Ok();
}

Status SegmentPool::Recycle(uint64_t segment, uint64_t bytes) {
  const std::string path = SegmentPath(options_.directory, segment);
  uint64_t id = 0;
  bool keep;
  {
    MutexLock lock(&mutex_);
    keep = bytes == options_.segment_bytes && spares_.size() < options_.spare_segments_max &&
           (MayUseReserve() || !IsShort());
    if (keep) id = NewSpareLocked();
  }
  if (!keep) {
    CAIRN_RETURN_IF_ERROR(io::RemoveIfExists(*world_.files, path));
    Return(bytes);
  } else {
    const Status renamed = world_.files->Rename(path, SparePath(options_.directory, id));
    if (renamed.ok()) {
      AddSpare(id);
    } else if (renamed.code() == StatusCode::kNotFound) {
      Return(bytes);  // Somebody removed it.
    } else {
      return renamed;
    }
  }
  Kick();  // Also after a removal: the space that it gave back may be what was missing.
  return Status::Ok();
}

SegmentPool::Stock SegmentPool::stock() {
  MutexLock lock(&mutex_);
  return {.spares = spares_.size() + (next_.file != nullptr ? 1 : 0),
          .bytes_prewritten = bytes_prewritten_,
          .times_refused = times_refused_};
}

}  // namespace cairn::wal
