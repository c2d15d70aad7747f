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
      prewriter_(world_),
      cushion_(world_, options_.directory, options_.segment_bytes) {
  CAIRN_CHECK(options_.segment_bytes % kBlock == 0);
  CAIRN_CHECK(options_.segment_bytes <= kMaxSegmentBytes);
  CAIRN_CHECK(options_.spare_segments_min >= kBallastSegments);
  CAIRN_CHECK(options_.spare_segments_min <= options_.spare_segments_max);
}

SegmentPool::~SegmentPool() { Stop(); }

// If nothing else is left the log must go on, or nothing could be given back.
Status SegmentPool::Take() {
  if (options_.grant == nullptr) return Status::Ok();
  const Purpose purpose = MayUseReserve() ? Purpose::kReclaim : Purpose::kData;
  return options_.grant->Take(options_.segment_bytes, purpose);
}

void SegmentPool::Return(uint64_t bytes) {
  if (options_.grant != nullptr) options_.grant->Return(bytes);
}

void SegmentPool::Promise(uint64_t bytes) {
  CAIRN_CHECK(bytes <= options_.segment_bytes);
  if (options_.grant != nullptr) options_.grant->Promise(static_cast<int64_t>(bytes));
}

void SegmentPool::Keep(uint64_t promised) {
  CAIRN_CHECK(promised <= options_.segment_bytes);
  if (options_.grant != nullptr) options_.grant->Promise(-static_cast<int64_t>(promised));
}

void SegmentPool::CountReadyLocked() {
  CAIRN_CHECK(next_.file == nullptr || !next_is_named_);  // It is the one or the other.
  ready_.store(static_cast<uint32_t>(spares_.size()) + (next_.file != nullptr ? 1 : 0),
               std::memory_order_release);
}

// The id of a spare that is about to be made. A spare may be made while another is recycled.
uint64_t SegmentPool::NewSpareLocked() {
  spares_.reserve(spares_.size() + 2);
  return next_spare_id_++;
}

void SegmentPool::AddSpare(const Spare& spare) {
  MutexLock lock(&mutex_);
  spares_.push_back(spare);
  CountReadyLocked();
}

bool SegmentPool::Start() {
  CAIRN_CHECK(thread_ == nullptr);
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

SegmentPool::Ready SegmentPool::TakeNext(uint64_t group_bytes, uint64_t wanted) {
  const uint64_t now = world_.scheduler->MonotonicNs();
  MutexLock lock(&mutex_);
  if (next_.allocated < std::min(wanted, options_.segment_bytes)) return Ready();
  Ready taken = std::exchange(next_, Ready());
  if (taken.file == nullptr) return taken;
  CAIRN_CHECK(taken.segment == next_segment_);
  CAIRN_CHECK(taken.segment > grown_segment_);
  CAIRN_CHECK(taken.allocated <= options_.segment_bytes);
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
    retry_at_ns_ = cushion_again_ns_ = 0;
  }
  disk_is_full_.store(false, std::memory_order_release);
  Wake();
}

void SegmentPool::TryOneMore() {
  {
    MutexLock lock(&mutex_);
    one_more_ = true;
  }
  Wake();
}

void SegmentPool::Wake() {
  {
    MutexLock lock(&mutex_);
    woken_ = true;
    word_.fetch_add(1);
  }
  world_.scheduler->WakeAll(word_);
}

SegmentPool::Task SegmentPool::NextTaskLocked(uint64_t now_ns) const {
  if (broken_) return Task::kNone;
  if (!cushion_.whole() && cushion_again_ns_ <= now_ns) return Task::kCushion;
  if (growth_.file != nullptr) return Task::kGrow;
  // With the prepared segment in hand, only spares count.
  if (next_.file == nullptr) return Task::kPrepare;
  if (one_more_ || spares_.size() < options_.spare_segments_min) return Task::kMake;
  if (spares_.size() > std::max(options_.spare_segments_min, options_.spare_segments_max)) {
    return Task::kTrim;
  }
  // Where every write goes to new blocks, zeros ahead serve nothing.
  const bool prewrites = cushion_.overwrites() != io::Overwrites::kCopy &&
                         placed_.load() >= kPrewriteStepBytes &&
                         SpareToWriteLocked(now_ns) != nullptr;
  return prewrites ? Task::kPrewrite : Task::kNone;
}

// Prefers a spare with written blocks, if there is one.
std::vector<SegmentPool::Spare>::iterator SegmentPool::NextSpareLocked() {
  const auto written =
      std::find_if(spares_.begin(), spares_.end(), [](const Spare& one) { return one.written; });
  return written != spares_.end() ? written : spares_.begin();
}

void SegmentPool::SetRefusal(const Status& status, bool with_stock) {
  CAIRN_CHECK(!status.ok());
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
  Report("log: no new segment: ", status);
}

// If there is no memory for the text nothing is reported: the thread must go on.
void SegmentPool::Report(const char* what, const Status& status) {
  try {
    callbacks_.on_event(status.ok() ? what : what + status.ToString());
  } catch (const std::bad_alloc&) {
  }
}

void SegmentPool::Run() {
  bool idles = false;        // There is more idle work...
  uint64_t idles_at_ns = 0;  // ...from this time on.
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
    const bool wanted = task != Task::kNone && !later && (!refused || woken_);
    const bool idle_now = (woken_ || idles) && idles_at_ns <= now;
    if (!wanted && !woken_ && !idle_now) {
      const uint32_t seen = word_.load();
      const uint64_t until_ns =
          std::min({later ? not_before : io::kNoDeadline, idles ? idles_at_ns : io::kNoDeadline,
                    cushion_.whole() ? io::kNoDeadline : cushion_again_ns_});
      lock.Unlock();
      world_.scheduler->Wait(word_, seen, until_ns);
      lock.Lock();
      continue;
    }
    idles |= woken_;
    woken_ = false;
    const uint64_t retry_at = refused ? retry_at_ns_ : 0;
    lock.Unlock();
    if (wanted) {
      if (retry_at > now) world_.scheduler->Sleep(retry_at - now);
      RunCounted(task, makes_file, with_stock, refused);
    }
    if (idle_now) {
      const uint64_t begun_ns = world_.scheduler->MonotonicNs();
      idles = callbacks_.idle_work && callbacks_.idle_work();
      const uint64_t ended_ns = world_.scheduler->MonotonicNs();
      idles_at_ns = ended_ns + kIdlePauses * (ended_ns - begun_ns);
    }
    lock.Lock();
  }
}

void SegmentPool::RunCounted(Task task, bool makes_file, bool with_stock, bool refused) {
  if (task == Task::kPrepare && makes_file) {
    Report("log: the pool of spare segments ran dry", Status::Ok());
  }
  CAIRN_CHECK(making_.load(std::memory_order_relaxed) == 0);  // By this thread alone.
  making_.store(makes_file ? 1 : 0, std::memory_order_release);
  const Status status = RunTask(task);
  making_.store(0, std::memory_order_release);
  if (task == Task::kPrewrite) return;  // It only serves speed.
  if (task == Task::kCushion) {
    if (!status.ok()) return;
    Report("log: the disk has room again", Status::Ok());
    return callbacks_.on_ready();
  }
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
  CAIRN_CHECK(task != Task::kNone);
  if (task == Task::kCushion) TryCushionLater();  // Also if nothing is tried.
  CAIRN_RETURN_IF_ERROR(callbacks_.check_lock());
  try {
    switch (task) {
      case Task::kCushion: return MakeCushion();
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
  const auto make = [&] {
    return MakeSegmentFile(*world_.files, SparePath(options_.directory, id), options_.segment_bytes,
                           FirstBytes());
  };
  Status made = CatchBadAlloc(make);
  // Without any segment nothing can be dropped. On a disk that copies on write the ends that closed
  // segments give back may be no room for a new one.
  while (made.code() == StatusCode::kNoSpace && ready() == 0 && GiveUpCushion()) {
    made = CatchBadAlloc(make);
  }
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

Status SegmentPool::PrepareNext() {
  Spare spare;
  bool named = false;
  bool have = false;
  uint64_t segment;
  {
    MutexLock lock(&mutex_);
    CAIRN_CHECK(next_.file == nullptr);
    segment = next_segment_;
    named = next_is_named_;
    have = !spares_.empty();
    if (named) spare = named_;
    if (have && !named) spare = *NextSpareLocked();
  }
  if (!named && !have) return MakeSpare();  // The next round prepares it.

  io::FileSystem& files = *world_.files;
  const std::string path = SegmentPath(options_.directory, segment);
  if (!named) {
    if (prewriter_.spare() == spare.id) prewriter_.Drop();
    CAIRN_RETURN_IF_ERROR(files.Rename(SparePath(options_.directory, spare.id), path));
    MutexLock lock(&mutex_);
    const size_t erased =
        std::erase_if(spares_, [&](const Spare& one) { return one.id == spare.id; });
    CAIRN_CHECK(erased > 0);
    CAIRN_CHECK(!next_is_named_);
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
    static_cast<void>(CatchBadAlloc([&] { cause = cause.WithContext("preparing a log segment"); }));
    callbacks_.on_fatal(cause);
    return synced;
  }
  Keep(Unallocated(spare.allocated));
  Promise(Unallocated(allocated));
  Ready next{std::move(file), segment, allocated};
  MutexLock lock(&mutex_);
  // Only this thread prepares one, and it is taken only once it is ready.
  CAIRN_CHECK(next_.file == nullptr);
  CAIRN_CHECK(next_segment_ == segment);
  next_ = std::move(next);
  next_is_named_ = false;
  CountReadyLocked();
  return Status::Ok();
}

Status SegmentPool::TrimSpare() {
  Spare spare;
  {
    MutexLock lock(&mutex_);
    CAIRN_CHECK(spares_.size() > options_.spare_segments_max);
    spare = spares_.back();
  }
  if (prewriter_.spare() == spare.id) prewriter_.Drop();
  // It stays in spares_ until it is gone: else its removal would not be tried again.
  CAIRN_RETURN_IF_ERROR(io::RemoveIfExists(*world_.files, SparePath(options_.directory, spare.id)));
  {
    MutexLock lock(&mutex_);
    const size_t erased =
        std::erase_if(spares_, [&](const Spare& one) { return one.id == spare.id; });
    CAIRN_CHECK(erased > 0);
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
    CAIRN_CHECK(segment != 0);
    CAIRN_CHECK(segment < next_segment_);
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
      Return(bytes);  // It was removed already.
    } else {
      return renamed;
    }
  }
  Wake();  // Also after a removal: the freed space may be what was missing.
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
