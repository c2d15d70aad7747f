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
    : world_(std::move(world)),
      options_(options),
      callbacks_(std::move(callbacks)),
      prewriter_(world_) {}

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

void SegmentPool::Promise(uint64_t bytes) {
  if (options_.grant != nullptr) options_.grant->Promise(static_cast<int64_t>(bytes));
}

void SegmentPool::Keep(uint64_t promised) {
  if (options_.grant != nullptr) options_.grant->Promise(-static_cast<int64_t>(promised));
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

void SegmentPool::AddSpare(const Spare& spare) {
  MutexLock lock(&mutex_);
  spares_.push_back(spare);
  CountReadyLocked();
}

// Of a file found at Open that is not part of the log: how many bytes its blocks have. Nothing, and
// it is removed, where it has not the size of a segment.
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
  // Ballast stays in a store that was opened above its limit, too: dropping must work there.
  if (!Take().ok()) {
    if (ready() >= kBallastSegments) return world_.files->Remove(path);
    options_.grant->TakeAnyway(options_.segment_bytes);
  }
  Promise(Unallocated(*allocated));
  // Most were used before. A new one that is taken for written costs its groups a little.
  AddSpare({.id = id, .allocated = *allocated, .written = true});
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
  CAIRN_ASSIGN_OR_RETURN(const std::optional<uint64_t> had, AllocatedOf(path));
  if (!had.has_value()) return Status::Ok();
  // The rename may be older than the last sync of the directory, or younger.
  CAIRN_RETURN_IF_ERROR(files.SyncDirectory(options_.directory));
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file,
                         files.Open(path, {.write = true, .direct = true}));
  // Made so, and not touched again: what opens twice changes nothing the second time.
  uint64_t allocated = FirstBytes();
  if (*had < allocated) {
    CAIRN_ASSIGN_OR_RETURN(allocated, AllocateNext(*file, *had));
  }
  MutexLock lock(&mutex_);
  next_ = {std::move(file), next_segment, allocated};
  if (options_.grant != nullptr) options_.grant->TakeAnyway(options_.segment_bytes);
  Promise(Unallocated(allocated));
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
      task = NextTaskLocked(0);
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
  growth_.file = nullptr;
  prewriter_.Drop();
}

SegmentPool::Ready SegmentPool::TakeNext(uint64_t group_bytes) {
  const uint64_t now = world_.scheduler->MonotonicNs();
  MutexLock lock(&mutex_);
  Ready taken = std::exchange(next_, Ready());
  if (taken.file == nullptr) return taken;
  ++next_segment_;
  CountReadyLocked();
  if (grown_segment_ != 0) {
    Keep(Unallocated(grown_bytes_));
    history_.Filled(now, group_bytes);
  }
  grown_segment_ = taken.segment;
  grown_bytes_ = taken.allocated;
  growth_ = Growth();
  growth_is_refused_ = false;
  return taken;
}

bool SegmentPool::NextHasBlocks(uint64_t wanted, bool* refused) {
  std::shared_ptr<io::File> file;
  uint64_t segment = 0, allocated = 0;
  {
    MutexLock lock(&mutex_);
    if (next_.file == nullptr || next_.allocated >= std::min(wanted, options_.segment_bytes)) {
      return true;
    }
    file = next_.file;
    segment = next_.segment;
    allocated = next_.allocated;
  }
  *refused = !Grow(file, segment, allocated, wanted);
  return false;
}

bool SegmentPool::Grow(const std::shared_ptr<io::File>& file, uint64_t segment, uint64_t allocated,
                       uint64_t wanted) {
  MutexLock lock(&mutex_);
  growth_.wanted = std::max(growth_.segment == segment ? growth_.wanted : 0, wanted);
  growth_.segment = segment;
  growth_.allocated = allocated;
  growth_.file = file;
  return !growth_is_refused_;
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
    stock_is_refused_ = growth_is_refused_ = false;
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

SegmentPool::Task SegmentPool::NextTaskLocked(uint64_t now_ns) const {
  if (broken_) return Task::kNone;
  if (growth_.file != nullptr) return Task::kGrow;
  // With the prepared segment in hand, spares are counted alone.
  if (next_.file == nullptr) return Task::kPrepare;
  if (one_more_ || spares_.size() < options_.spare_segments_min) return Task::kMake;
  if (spares_.size() > std::max(options_.spare_segments_min, options_.spare_segments_max)) {
    return Task::kTrim;
  }
  const bool prewrites =
      placed_.load() >= kPrewriteStepBytes && SpareToWriteLocked(now_ns) != nullptr;
  return prewrites ? Task::kPrewrite : Task::kNone;
}

const SegmentPool::Spare* SegmentPool::SpareToWriteLocked(uint64_t now_ns) const {
  const size_t wanted = history_.segments_wanted(now_ns);
  size_t written = 0;
  const Spare* found = nullptr;
  for (const Spare& spare : spares_) {
    if (spare.written) {
      ++written;
    } else if (found == nullptr || spare.id == prewriter_.spare()) {
      found = &spare;
    }
  }
  return written < wanted ? found : nullptr;
}

// That which the log is to have next: written if there is one.
std::vector<SegmentPool::Spare>::iterator SegmentPool::NextSpareLocked() {
  const auto written =
      std::find_if(spares_.begin(), spares_.end(), [](const Spare& one) { return one.written; });
  return written != spares_.end() ? written : spares_.begin();
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
    const uint64_t now = world_.scheduler->MonotonicNs();
    const Task task = NextTaskLocked(now);
    const bool has_stock = !spares_.empty() || next_is_named_;
    const bool makes_file = task == Task::kMake || (task == Task::kPrepare && !has_stock);
    const bool with_stock = task == Task::kPrepare && !makes_file;
    const bool refused =
        !refusal_.ok() && (makes_file || task == Task::kTrim || (with_stock && stock_is_refused_));
    const uint64_t not_before = task == Task::kGrow && growth_is_refused_ ? grow_again_ns_ : 0;
    const bool later = not_before > now;
    const bool wanted = task != Task::kNone && !later && (!refused || kicked_);
    if (!wanted && !kicked_) {
      const uint32_t seen = word_.load();
      lock.Unlock();
      world_.scheduler->Wait(word_, seen, later ? not_before : io::kNoDeadline);
      lock.Lock();
      continue;
    }
    kicked_ = false;
    const uint64_t retry_at = refused ? retry_at_ns_ : 0;
    lock.Unlock();
    if (callbacks_.idle_work) callbacks_.idle_work();
    if (wanted) {
      if (retry_at > now) world_.scheduler->Sleep(retry_at - now);
      RunCounted(task, makes_file, with_stock, refused);
    }
    lock.Lock();
  }
}

void SegmentPool::RunCounted(Task task, bool makes_file, bool with_stock, bool refused) {
  if (task == Task::kPrepare && makes_file) {
    Tell("log: the pool of spare segments ran dry", Status::Ok());
  }
  making_.store(makes_file ? 1 : 0, std::memory_order_release);
  const Status status = RunTask(task);
  making_.store(0, std::memory_order_release);
  if (task == Task::kPrewrite) return;  // Nobody waits for that.
  if (task == Task::kMake) {
    MutexLock lock(&mutex_);
    one_more_ = false;
  }
  if (task == Task::kGrow) {
    if (!status.ok()) RefuseGrowth(status);
  } else if (!status.ok()) {
    SetRefusal(status, with_stock);
  } else if (refused) {
    MutexLock lock(&mutex_);
    refusal_ = Status::Ok();
    stock_is_refused_ = false;
  }
  callbacks_.on_ready();
}

Status SegmentPool::RunTask(Task task) {
  CAIRN_RETURN_IF_ERROR(callbacks_.check_lock());
  try {
    switch (task) {
      case Task::kGrow: return GrowSegment();
      case Task::kPrepare: return PrepareNext();
      case Task::kMake: return MakeSpare();
      case Task::kTrim: return TrimSpare();
      case Task::kPrewrite: return Prewrite();
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
    return MakeSegmentFile(*world_.files, SparePath(options_.directory, id), options_.segment_bytes,
                           FirstBytes());
  });
  disk_is_full_.store(made.code() == StatusCode::kNoSpace, std::memory_order_release);
  if (!made.ok()) {
    Return(options_.segment_bytes);
    return made;
  }
  Promise(Unallocated(FirstBytes()));
  AddSpare({.id = id, .allocated = FirstBytes()});
  MutexLock lock(&mutex_);
  ++made_;
  return Status::Ok();
}

// The blocks of the file that becomes the next segment, which had so many: all, once the log has
// filled another. How far they reach.
Result<uint64_t> SegmentPool::AllocateNext(io::File& file, uint64_t allocated) {
  bool whole = false;
  {
    MutexLock lock(&mutex_);
    whole = history_.any();
  }
  const uint64_t first = std::min(FirstBytes(), options_.segment_bytes);
  const uint64_t bytes = whole ? options_.segment_bytes : first;
  Status status;
  if (bytes > allocated && !HasDiskRoom(bytes - allocated)) {
    status = Status(StatusCode::kNoSpace, "");
  } else {
    status = file.Allocate(0, bytes);
  }
  if (status.ok()) return bytes;
  if (status.code() != StatusCode::kNoSpace || allocated < first) return status;
  disk_is_full_.store(true, std::memory_order_release);
  return first;  // These it has.
}

// What would be in part there after a refusal would be taken from those who give space back.
bool SegmentPool::HasDiskRoom(uint64_t bytes) {
  const Result<io::DiskSpace> space = world_.files->Space(options_.directory);
  return !space.ok() || space->free_bytes >= bytes;
}

uint64_t* SegmentPool::BytesOfLocked(uint64_t segment) {
  if (next_.file != nullptr && next_.segment == segment) return &next_.allocated;
  return grown_segment_ == segment ? &grown_bytes_ : nullptr;
}

Status SegmentPool::GrowSegment() {
  Growth growth;
  uint64_t from = 0;
  {
    MutexLock lock(&mutex_);
    std::swap(growth, growth_);
    const uint64_t* has = BytesOfLocked(growth.segment);
    if (growth.file == nullptr || has == nullptr) return Status::Ok();
    from = *has;
  }
  const uint64_t bytes = std::min(
      options_.segment_bytes, AlignUp(std::max(kGrowth * growth.allocated, growth.wanted), kBlock));
  if (bytes <= from) return Status::Ok();
  if (!HasDiskRoom(bytes - from)) {
    return Status(StatusCode::kNoSpace, "the disk has no blocks for more of the segment");
  }
  CAIRN_RETURN_IF_ERROR(growth.file->Allocate(from, bytes));
  {
    MutexLock lock(&mutex_);
    growth_is_refused_ = false;
    uint64_t* has = BytesOfLocked(growth.segment);
    if (has == nullptr) return Status::Ok();  // The log has left it meanwhile.
    *has = bytes;
  }
  Keep(bytes - from);
  callbacks_.on_grown(growth.segment, bytes);
  return Status::Ok();
}

void SegmentPool::RefuseGrowth(const Status& status) {
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = !growth_is_refused_;
    growth_is_refused_ = true;
    growth_ = Growth();
    grow_again_ns_ = world_.scheduler->MonotonicNs() + kSpaceRetryNs;
  }
  if (first) Tell("log: the segment cannot grow: ", status);
}

Status SegmentPool::Prewrite() {
  uint64_t spare = 0;
  {
    MutexLock lock(&mutex_);
    const Spare* found = SpareToWriteLocked(world_.scheduler->MonotonicNs());
    if (found == nullptr) return Status::Ok();
    spare = found->id;
  }
  placed_ = 0;
  const Result<uint64_t> written =
      prewriter_.Step(spare, SparePath(options_.directory, spare), options_.segment_bytes);
  if (!written.ok()) {
    prewriter_.Drop();
    Tell("log: a segment is not written ahead: ", written.status());
  }
  MutexLock lock(&mutex_);
  if (written.ok()) bytes_prewritten_ += *written;
  if (written.ok() && !prewriter_.done()) return Status::Ok();
  for (Spare& one : spares_) {
    if (one.id != spare) continue;
    one.written = true;  // Where it failed, too: it is not tried again.
    if (written.ok()) {
      Keep(Unallocated(one.allocated));
      one.allocated = options_.segment_bytes;
    }
  }
  return Status::Ok();
}

Status SegmentPool::PrepareNext() {
  Spare spare;
  bool named = false;
  bool have = false;
  uint64_t segment;
  {
    MutexLock lock(&mutex_);
    segment = next_segment_;
    named = next_is_named_;
    have = !spares_.empty();
    if (named) spare = named_;
    if (have && !named) spare = *NextSpareLocked();
  }
  if (!named && !have) return MakeSpare();  // And the next round prepares it.

  io::FileSystem& files = *world_.files;
  const std::string path = SegmentPath(options_.directory, segment);
  if (!named) {
    if (prewriter_.spare() == spare.id) prewriter_.Drop();
    CAIRN_RETURN_IF_ERROR(files.Rename(SparePath(options_.directory, spare.id), path));
    MutexLock lock(&mutex_);
    std::erase_if(spares_, [&](const Spare& one) { return one.id == spare.id; });
    next_is_named_ = true;
    named_ = spare;
    CountReadyLocked();
  }
  // Opening it can be tried again (when there are descriptors again), a sync cannot.
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file,
                         files.Open(path, {.write = true, .direct = true}));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t allocated, AllocateNext(*file, spare.allocated));
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
  Keep(Unallocated(spare.allocated));
  Promise(Unallocated(allocated));
  Ready next{std::move(file), segment, allocated};
  MutexLock lock(&mutex_);
  next_ = std::move(next);
  next_is_named_ = false;
  CountReadyLocked();
  return Status::Ok();
}

Status SegmentPool::TrimSpare() {
  Spare spare;
  {
    MutexLock lock(&mutex_);
    spare = spares_.back();
  }
  if (prewriter_.spare() == spare.id) prewriter_.Drop();
  // It stays one of them until it is gone: else nobody would try again.
  CAIRN_RETURN_IF_ERROR(io::RemoveIfExists(*world_.files, SparePath(options_.directory, spare.id)));
  {
    MutexLock lock(&mutex_);
    std::erase_if(spares_, [&](const Spare& one) { return one.id == spare.id; });
    CountReadyLocked();
  }
  Keep(Unallocated(spare.allocated));
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
      AddSpare({.id = id, .allocated = options_.segment_bytes, .written = true});
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
          .made = made_,
          .bytes_prewritten = bytes_prewritten_,
          .times_refused = times_refused_};
}

}  // namespace cairn::wal
