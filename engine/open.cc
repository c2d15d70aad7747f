// SPDX-License-Identifier: Apache-2.0
//
// Opening and closing. Order matters twice: the lock comes before anything is read, and the log's
// first segment is durable before the manifest that names it, which is before the first record.
#include <cstring>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/core/text.h"
#include "base/io/descriptor_relief.h"
#include "base/io/file_util.h"
#include "engine/commit/replayer.h"
#include "engine/follow/followed_files.h"
#include "engine/store_core.h"
#include "wal/constants.h"
#include "wal/segment_files.h"

namespace cairn {

namespace {

using engine::kLockFile;

bool IsOurs(const std::string& name) {
  return name.starts_with("MANIFEST-") || name == "OPTIONS" || name == kLockFile ||
         name == engine::kHintFile || name == engine::kLogDirectory ||
         name == engine::kTableDirectory || name == "probe.tmp" || name == "OPTIONS.tmp";
}

Result<io::World> ChooseWorld(const std::string& path, const Options& options, std::string* why) {
  if (options.world != nullptr) return *options.world;
  if (path == ":memory:") return io::MakeMemoryWorld();
  const io::IoBackend backend = options.backend == Backend::kUring     ? io::IoBackend::kUring
                                : options.backend == Backend::kThreads ? io::IoBackend::kThreads
                                                                       : io::IoBackend::kAuto;
  return io::MakeRealWorld(backend, why, options.file_mode);
}

// The store's directory, made if it may be. From here on it is held: what is done later is done
// there, whatever becomes of its path.
Status EnterDirectory(io::World* world, const std::string& path, bool create) {
  const auto info = world->files->Info(path);
  if (!info.ok() && info.status().code() != StatusCode::kNotFound) return info.status();
  if (!info.ok()) {
    if (!create) {
      return Status(StatusCode::kNotFound, path + ": no store here (create_if_missing is off)");
    }
    CAIRN_RETURN_IF_ERROR(world->files->CreateDirectory(path));
  } else if (!info->is_directory) {
    return Status(StatusCode::kInvalidState, path + " is a file, not a store's directory");
  }
  return io::HoldDirectory(world, path);
}

}  // namespace

StoreCore::StoreCore(io::World world, std::string path, Options options)
    : world_{std::make_shared<io::DescriptorRelief>(
                 std::move(world.files), [this] { return reader_.open_files().CloseIdle(); }),
             std::move(world.scheduler)},
      path_(std::move(path)),
      options_(std::move(options)),
      memory_(engine::DivideMemory(options_)),
      budget_(options_.max_memory_bytes),
      manifest_(
          world_, path_, [this] { return NowNs(); }, &table_counters_),
      hints_(world_, path_, &manifest_, &open_, [this](const std::string& line) { OnEvent(line); }),
      ledger_(options_.max_bytes, [this] { return FreeOnDisk(); }),
      staging_(options_.allocator, memory_.staging, &budget_),
      space_(MakeSpaceMeans()),
      follower_(MakeFollowMeans()) {
  options_.tree_memory_bytes = memory_.tree;
  committer_.AddObserver(&commit_counters_, engine::ObserverOrder::kAny);
  budget_.Take(memory_.fixed());
}

StoreCore::~StoreCore() { static_cast<void>(Close()); }

Result<std::shared_ptr<StoreCore>> StoreCore::Open(const std::string& path,
                                                   const Options& options) {
  CAIRN_RETURN_IF_ERROR(options.Validate());
  CAIRN_RETURN_IF_ERROR(io::CheckPath(path));
  std::string why;
  CAIRN_ASSIGN_OR_RETURN(io::World world, ChooseWorld(path, options, &why));
  Options chosen = options;
  std::string directory = path;
  if (path == ":memory:") {
    if (options.world == nullptr) directory = "/store";
    chosen.create_if_missing = true;
  }
  CAIRN_RETURN_IF_ERROR(EnterDirectory(&world, directory, chosen.create_if_missing));
  std::shared_ptr<engine::FollowedFiles> followed;
  if (options.read_only) {
    followed = std::make_shared<engine::FollowedFiles>(world.files);
    world.files = followed;
  }
  const std::shared_ptr<StoreCore> core(new StoreCore(std::move(world), directory, chosen),
                                        Destroy);
  if (followed != nullptr) {
    followed->Confirm(directory,
                      [follower = core.get()] { return follower->follower_.ConfirmFile(); });
  }
  if (!why.empty()) core->OnEvent(why);
  CAIRN_RETURN_IF_ERROR(core->OpenFiles());
  core->open_.store(true, std::memory_order_release);
  if (!options.read_only) {
    if (!core->timer_->Start()) return Status(StatusCode::kIoError, "no thread for the timer");
    CAIRN_RETURN_IF_ERROR(core->space_.Start());
  }
  return core;
}

// A directory without a manifest may become a store if nothing of anybody else's is in it. Looked
// at before the lock file is put there.
Status StoreCore::CheckDirectoryIsFree() {
  const auto other = [&](const std::string& name) {
    return Status(StatusCode::kInvalidState,
                  path_ + " is no store and holds other files (" + Quoted(name) + ")");
  };
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, world_.files->List(path_));
  for (const std::string& name : names) {
    if (!IsOurs(name)) return other(name);
    if (name != engine::kLogDirectory) continue;
    const std::string log = io::JoinPath(path_, engine::kLogDirectory);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> inside, world_.files->List(log));
    for (const std::string& file : inside) {
      if (!wal::IsLogFileName(file)) return other(io::JoinPath(engine::kLogDirectory, file));
    }
  }
  return Status::Ok();
}

// Without a manifest there is no store; but a log that was written, or a table, says that there was
// one.
Status StoreCore::NoStoreHere(const std::string& why) {
  io::FileSystem& files = *world_.files;
  const std::string log = io::JoinPath(path_, engine::kLogDirectory);
  const auto names = files.List(log);
  for (size_t i = 0; names.ok() && i < names->size(); ++i) {
    const std::string& name = (*names)[i];
    if (!wal::IsLogFileName(name)) continue;
    CAIRN_ASSIGN_OR_RETURN(const bool written, wal::HoldsRecords(files, io::JoinPath(log, name)));
    if (!written) continue;
    return Status(
        StatusCode::kCorruption,
        path_ + ": the log of a store is here (" + name +
            "), but no MANIFEST: it was removed, is another directory's, or a checkpoint was not "
            "finished");
  }
  // Nor is there a table before the first manifest.
  const auto tables = files.List(io::JoinPath(path_, engine::kTableDirectory));
  for (size_t i = 0; tables.ok() && i < tables->size(); ++i) {
    if (!sstable::IsTableFileName((*tables)[i])) continue;
    return Status(StatusCode::kCorruption, path_ + ": tables of a store are here (" + (*tables)[i] +
                                               "), but no MANIFEST: it was removed, or a " +
                                               "checkpoint was not finished");
  }
  return why.empty() ? Status::Ok() : Status(StatusCode::kNotFound, path_ + why);
}

// The manifest comes last: it is what makes a directory a store. A crash before leaves none, and
// the next Open begins again.
Status StoreCore::CreateFiles() {
  io::FileSystem& files = *world_.files;
  if (options_.segment_bytes == 0) options_.segment_bytes = engine::kSegmentBytes;
  if (options_.max_bytes / engine::kSegmentsAtCapMin < options_.segment_bytes) {
    return Status(StatusCode::kInvalidArgument,
                  "options.max_bytes is " + std::to_string(options_.max_bytes) +
                      "; a store needs room for " + std::to_string(engine::kSegmentsAtCapMin) +
                      " segments (segment_bytes is " + std::to_string(options_.segment_bytes) +
                      ")");
  }
  const std::string log = io::JoinPath(path_, engine::kLogDirectory);
  CAIRN_RETURN_IF_ERROR(io::CreateDirectoryIfMissing(files, log));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> stale, files.List(log));
  for (const std::string& name : stale) {
    CAIRN_RETURN_IF_ERROR(files.Remove(io::JoinPath(log, name)));
  }
  CAIRN_RETURN_IF_ERROR(files.SyncDirectory(log));
  CAIRN_ASSIGN_OR_RETURN(options_file_, engine::ProbeSync(world_, path_));
  CAIRN_RETURN_IF_ERROR(engine::WriteOptionsFile(files, path_, options_file_));
  engine::Manifest manifest;
  for (size_t i = 0; i < manifest.store.bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t random = world_.scheduler->Random64();
    std::memcpy(manifest.store.bytes.data() + i, &random, sizeof random);
  }
  manifest.number = 1;
  manifest.history.id = engine::DrawHistory(*world_.scheduler);
  manifest.segment_bytes = options_.segment_bytes;
  manifest.created_at_ns = NowNs();
  manifest_.Begin(std::move(manifest));
  CAIRN_RETURN_IF_ERROR(StartLog({}));
  SetTableContext();
  CAIRN_RETURN_IF_ERROR(OpenTree(manifest_.at_opening(), &tree_));
  CAIRN_RETURN_IF_ERROR(ClaimTables());
  // First: whoever finds the manifest takes the store for made.
  if (CAIRN_KEPT(kSyncDirectoryCreate)) {
    CAIRN_RETURN_IF_ERROR(files.SyncDirectory(io::ParentPath(path_)));
  }
  CAIRN_RETURN_IF_ERROR(manifest_.WriteFirst());
  hints_.Publish();
  return Status::Ok();
}

// Of a store that is there.
Status StoreCore::CheckSegmentBytes() const {
  const uint64_t asked = options_.segment_bytes;
  const uint64_t has = manifest_.at_opening().segment_bytes;
  if (asked == 0 || asked == has) return Status::Ok();
  return Status(StatusCode::kInvalidArgument, "options.segment_bytes is " + std::to_string(asked) +
                                                  "; the store has segments of " +
                                                  std::to_string(has) + ", fixed when it was made");
}

Status StoreCore::OpenFiles() {
  io::FileSystem& files = *world_.files;
  if (options_.read_only) return OpenFollower();
  auto manifest_first = engine::ReadManifest(files, path_);
  // Nothing of ours is put into a directory that belongs to something else.
  if (!manifest_first.ok() && manifest_first.status().code() == StatusCode::kNotFound) {
    CAIRN_RETURN_IF_ERROR(CheckDirectoryIsFree());
    CAIRN_RETURN_IF_ERROR(NoStoreHere(
        options_.create_if_missing ? "" : ": no store here (create_if_missing is off)"));
  }
  CAIRN_ASSIGN_OR_RETURN(lock_, files.Lock(io::JoinPath(path_, kLockFile)));
  auto manifest = engine::ReadManifest(files, path_);
  if (manifest.status().code() == StatusCode::kNotFound) return CreateFiles();
  if (!manifest.ok()) return manifest.status();
  if (options_.error_if_exists) {
    return Status(StatusCode::kAlreadyExists, path_ + ": a store is here already");
  }
  manifest_.Begin(std::move(*manifest));
  CAIRN_RETURN_IF_ERROR(CheckSegmentBytes());
  // Whoever wrote the manifest may have ended before its name was durable.
  CAIRN_RETURN_IF_ERROR(files.SyncDirectory(path_));
  CAIRN_ASSIGN_OR_RETURN(options_file_, engine::ReadOptionsFile(files, path_));
  wal::RecoveryOptions recovery;
  recovery.salvage = options_.salvage;
  SetTableContext();
  wal::RecoveredLog recovered;
  const engine::Manifest& opened = manifest_.at_opening();
  CAIRN_RETURN_IF_ERROR(io::GoneIsDamage(OpenTree(opened, &tree_)));
  CAIRN_ASSIGN_OR_RETURN(left_out_, Replay(opened, recovery, &tree_, &recovered));
  left_out_upto_ = recovered.last_sequence;
  const Status whole = CheckLogIsWhole(opened, recovered);
  if (!whole.ok() && (!options_.salvage || whole.code() != StatusCode::kCorruption)) return whole;
  NoteRecovery(recovered, whole);
  CAIRN_RETURN_IF_ERROR(ClaimTables());  // First: what they leave is there for new segments.
  CAIRN_RETURN_IF_ERROR(BeginHistory(recovered));
  CAIRN_RETURN_IF_ERROR(StartLog(std::move(recovered)));
  // What was salvaged is all that later openings may ask for. What comes now takes the numbers of
  // what was lost; if the index has that, it must not be taken for it.
  if (const uint64_t last = log_->last_reserved_sequence(); last < opened.last_sequence) {
    CAIRN_RETURN_IF_ERROR(manifest_.Edit([&](engine::Manifest* next) {
      next->next_id = tree_.next_id();
      next->last_sequence = last;
      if (next->index_sequence <= last) return;
      next->index_sequence = last;
      next->replay_from = log_->written_end();
    }));
    space_.flusher().SetDumped(opened.index_sequence);
  }
  hints_.Publish();
  return Status::Ok();
}

Result<uint64_t> StoreCore::Replay(const engine::Manifest& manifest, wal::RecoveryOptions recovery,
                                   engine::Tree* tree, wal::RecoveredLog* recovered) {
  recovery.directory = io::JoinPath(path_, engine::kLogDirectory);
  recovery.store = manifest.store;
  recovery.first_segment = manifest.log_start_segment;
  recovery.replay_from = manifest.replay_from;
  recovery.epoch_used = manifest.epoch;
  engine::Replayer replayer(tree, &committer_, manifest.index_sequence);
  // The log is whole where the index cannot tell what a record changes. A salvage goes on without
  // it, and without those that need it, and comes to the same each time.
  uint64_t left_out = 0;
  Status first_left_out;
  const auto on_record = [&](const wal::RecordView& record) -> Status {
    ++counters_.replayed_records;
    Status status = replayer.Apply(record);
    if (!status.ok()) status = status.WithContext(engine::PlaceText(record.location));
    if (!recovery.salvage || status.code() != StatusCode::kCorruption) return status;
    if (++left_out == 1) first_left_out = std::move(status);
    return Status::Ok();
  };
  auto found = wal::Recover(world_, recovery, on_record);
  if (found.status().code() ==
      StatusCode::kInvalidArgument) {  // Another store's: no argument here.
    return Status(StatusCode::kCorruption, std::string(found.status().message()));
  }
  if (!found.ok()) return found.status();
  *recovered = std::move(*found);
  const Status decided = replayer.DecideAll();
  if (!decided.ok() && (!recovery.salvage || decided.code() != StatusCode::kCorruption)) {
    return decided;
  }
  if (left_out == 0) return 0;
  recovered->repaired_detail += (recovered->repaired ? "; " : "") + first_left_out.ToString() +
                                ": this record is left out, and all that need it";
  recovered->repaired = true;
  return left_out;
}

// What a log cannot know of itself: that its end was taken away, segments and all. Everything up to
// the checkpoint's last sequence was durable, and the first segment older than the checkpoint.
Status StoreCore::CheckLogIsWhole(const engine::Manifest& manifest,
                                  const wal::RecoveredLog& recovered) const {
  const std::string log = io::JoinPath(path_, engine::kLogDirectory);
  const std::string first = wal::SegmentPath(log, manifest.log_start_segment);
  const auto info = world_.files->Info(first);
  if (info.status().code() == StatusCode::kNotFound) {
    return Status(StatusCode::kCorruption, first + ": offset 0: the first segment is missing");
  }
  if (!info.ok()) return info.status();
  if (recovered.last_sequence >= manifest.last_sequence) return Status::Ok();
  if (!CAIRN_KEPT(kLengthOfLog)) return Status::Ok();
  const uint64_t last =
      recovered.segments.empty() ? manifest.log_start_segment : recovered.segments.back().number;
  const uint64_t offset = recovered.segments.empty() ? 0 : recovered.segments.back().end_offset;
  return Status(StatusCode::kCorruption,
                wal::SegmentPath(log, last) + ": offset " + std::to_string(offset) +
                    ": the log ends with sequence " + std::to_string(recovered.last_sequence) +
                    ", " + "MANIFEST-" + std::to_string(manifest.number) + " says that it held " +
                    std::to_string(manifest.last_sequence));
}

// What comes from here on is another history than that of a copy, which goes on from here, too. The
// name is durable before anything is written.
Status StoreCore::BeginHistory(const wal::RecoveredLog& recovered) {
  // The log is about to take what was cut for other segments, headers and all. A crash then must
  // not leave a log that shows fewer epochs than were used.
  const uint64_t used = recovered.next_epoch - 1;
  const uint64_t kept = recovered.segments.empty() ? 0 : recovered.segments.back().epoch;
  const bool cut = options_.salvage && CAIRN_KEPT(kEpochBeforeCut) &&
                   used > std::max(kept, manifest_.at_opening().epoch);
  Status unwritten;
  CAIRN_RETURN_IF_ERROR(manifest_.BeginHistory(
      engine::DrawHistory(*world_.scheduler), recovered.last_sequence, cut ? used : 0, &unwritten));
  if (!unwritten.ok()) {
    OnEvent("no room to write MANIFEST at the opening: " + unwritten.ToString());
  }
  return Status::Ok();
}

void StoreCore::NoteRecovery(const wal::RecoveredLog& recovered, const Status& whole) {
  if (recovered.torn_tail) recovery_note_ = recovered.torn_detail;
  if (recovered.repaired) recovery_note_ = recovered.repaired_detail;
  if (whole.ok()) return;
  if (!recovery_note_.empty()) recovery_note_ += "; ";
  recovery_note_ += whole.message();
}

// A disk that does not tell what it has refuses when it is full.
uint64_t StoreCore::FreeOnDisk() const {
  const auto space = world_.files->Space(path_);
  return space.ok() ? space->free_bytes : UINT64_MAX;
}

Status StoreCore::StartLog(wal::RecoveredLog recovered) {
  // What is others' of the disk this store will not have.
  const uint64_t free_bytes = FreeOnDisk();
  uint64_t has_bytes = ledger_.used_bytes();
  for (const wal::SegmentInfo& segment : recovered.segments) has_bytes += segment.file_bytes;
  const uint64_t disk_bytes =
      free_bytes < UINT64_MAX - has_bytes ? has_bytes + free_bytes : UINT64_MAX;
  const engine::Manifest& opened = manifest_.at_opening();
  ledger_.Keep(
      engine::ReserveBytes(std::min(options_.max_bytes, disk_bytes), opened.segment_bytes));
  ledger_.LookAtDisk();
  ledger_.TakeAnyway(engine::kSmallFilesBytes);
  wal::LogOptions log;
  log.directory = io::JoinPath(path_, engine::kLogDirectory);
  log.store = opened.store;
  log.segment_bytes = opened.segment_bytes;
  log.spare_segments_min = options_.spare_segments_min;
  log.spare_segments_max = static_cast<uint32_t>(std::clamp<uint64_t>(
      ledger_.data_bytes_max() / engine::kSpareShareAtCap / opened.segment_bytes,
      options_.spare_segments_min, options_.spare_segments_max));
  log.hot_tail_bytes = options_.hot_tail_bytes;
  log.sync_method = options_file_.sync_method;
  log.allocator = options_.allocator;
  log.lock = lock_.get();
  log.grant = options_.read_only ? nullptr : &ledger_;
  log.observer = this;
  log.read_only = options_.read_only;
  const uint64_t epoch = recovered.next_epoch;
  CAIRN_ASSIGN_OR_RETURN(log_, wal::Log::Open(world_, log, std::move(recovered)));
  committer_.SetLog(log_.get());
  manifest_.SetLog(log_.get(), epoch);
  access_.SetLog(log_.get());
  limits_.SetLog(log_.get());
  if (!options_.read_only && ledger_.IsShort()) {
    const bool by_cap = options_.max_bytes != UINT64_MAX;
    OnEvent((by_cap ? "max_bytes is " + std::to_string(options_.max_bytes)
                    : "the disk has " + std::to_string(FreeOnDisk()) + " bytes free") +
            ", " + std::to_string(ledger_.reserve_bytes()) + " of it for giving space back, and " +
            std::to_string(ledger_.used_bytes()) + " are used: nothing is appended before some is");
  }
  if (!options_.read_only) space_.gate().SetLimit(space_.gauge().LogBytesHeld());
  timer_ = std::make_unique<engine::Timer>(world_);
  tickets_.Start(log_.get(), timer_.get());
  const uint32_t cores = world_.scheduler->Cores();
  executor_threads_ =
      options_.executor_threads != 0 ? options_.executor_threads : (cores > 1 ? cores - 1 : 1);
  executor_ = std::make_unique<io::Executor>(*world_.scheduler, "cairn-job", executor_threads_);
  background_executor_ = std::make_unique<io::Executor>(
      *world_.scheduler, "cairn-seal", executor_threads_, io::ThreadPriority::kBackground);
  prefetch_executor_ = std::make_unique<io::Executor>(*world_.scheduler, "cairn-prefetch", 1,
                                                      io::ThreadPriority::kBackground);
  parallel_for_ = std::make_unique<io::ParallelFor>(*world_.scheduler, background_executor_.get(),
                                                    executor_threads_);
  space_.SetLog(log_.get(), parallel_for_.get());
  hints_.Start(log_.get(), timer_.get(), executor_.get());
  follower_.SetLog(log_.get());
  StartReader();
  return Status::Ok();
}

// Nothing depends on it but the time that the next opening takes.
void StoreCore::DumpAtClose() {
  {
    std::lock_guard lock(mutex_);
    const uint64_t records_max = options_.replay_records_max / engine::kReplayShareAtClose;
    const uint64_t last = log_->last_reserved_sequence();
    // Who writes behind what a salvage left out has given that up; else no opening but a salvage
    // would pass it. Until then another opening may have it, with the file that was damaged.
    const bool gives_up = left_out_ != 0 && last > left_out_upto_;
    if (left_out_ != 0 && !gives_up) return;
    // The last dump may have been stopped behind its first step.
    if (!gives_up && !space_.flusher().IsDue(last, records_max) &&
        last - manifest_.Copy().index_sequence < records_max) {
      return;
    }
  }
  const Status dumped = Guarded([this] { return space_.flusher().Dump(); });
  if (!dumped.ok()) OnEventOf("closing: the index was not brought up to date: ", dumped);
}

Status StoreCore::WriteCheckpoint() {
  return manifest_.Edit([this](engine::Manifest* next) {
    std::lock_guard lock(mutex_);
    next->next_id = tree_.next_id();
    next->last_sequence = log_->durable_sequence();
  });
}

Status StoreCore::CloseLog() {
  if (options_.read_only) return PoisonStatus();
  CAIRN_RETURN_IF_ERROR(log_->Close());
  CAIRN_RETURN_IF_ERROR(PoisonStatus());
  CAIRN_RETURN_IF_ERROR(WriteCheckpoint());
  hints_.Publish();
  return Status::Ok();
}

// Each step is taken whatever became of those before it, also without memory.
Status StoreCore::Close() {
  const io::Turn::Holder turn(&close_turn_);
  // Never opened: what Open started is taken down with the members. Or closed before.
  if (!open_.load()) return closed_;
  static_cast<void>(Guarded([this] { return space_.GiveBackAtClose(), Status::Ok(); }));
  open_.store(false);
  space_.Stop();
  background_executor_.reset();
  if (!options_.read_only && log_->poisoned().ok()) DumpAtClose();
  timer_->Stop();
  // AppendJoined looks under the lock whether the store is open. Once it was free, whoever found
  // that it is has put what it accepted where it is flushed now.
  mutex_.lock();
  mutex_.unlock();
  Status status = EndAllJoined();
  for (uint32_t uses = uses_.load(); uses != 0; uses = uses_.load()) {
    world_.scheduler->Wait(uses_, uses, io::kNoDeadline);
  }
  executor_->Stop();  // Finishes what was posted. Its jobs look for it here.
  prefetch_executor_->Stop();
  const Status log_closed = Guarded([this] { return CloseLog(); });
  if (!log_closed.ok()) status = log_closed;
  // Whatever is still pending has been decided by now.
  tickets_.CutByClose();
  hints_.Close();
  reader_.LetGo();  // Handles may outlive this by far.
  lock_.reset();    // The log stays for calls that are under way; it refuses everything now.
  return closed_ = status;
}

std::string StoreCore::sync_method() const {
  return options_file_.sync_method == wal::SyncMethod::kDurableWrite ? "dsync" : "fdatasync";
}

}  // namespace cairn
