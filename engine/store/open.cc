// SPDX-License-Identifier: Apache-2.0
//
// Opening. Order matters twice: the lock is taken before anything is read; and the log's first
// segment is durable before the manifest that names it, and that before the first record.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/core/mutation.h"
#include "base/core/text.h"
#include "base/io/descriptor_relief.h"
#include "base/io/file_util.h"
#include "engine/follow/followed_files.h"
#include "engine/store/store_core.h"
#include "engine/store/store_directory.h"
#include "sstable/table_files.h"

namespace cairn {

namespace {

Result<io::World> ChooseWorld(const std::string& path, const Options& options, std::string* why) {
  if (options.world != nullptr) return *options.world;
  if (path == ":memory:") return io::MakeMemoryWorld();
  const io::IoBackend backend = options.backend == Backend::kUring     ? io::IoBackend::kUring
                                : options.backend == Backend::kThreads ? io::IoBackend::kThreads
                                                                       : io::IoBackend::kAuto;
  return io::MakeRealWorld(backend, why, options.file_mode);
}

// Call before any part reads the options.
Options With(Options options, const Allocator& allocator) {
  options.allocator = allocator;
  return options;
}

}  // namespace

StoreCore::StoreCore(io::World world, std::string path, Options options)
    : world_{std::make_shared<io::DescriptorRelief>(
                 std::move(world.files), [this] { return reader_.open_files().CloseIdle(); }),
             std::move(world.scheduler)},
      path_(std::move(path)),
      arena_(options.allocator, engine::DivideMemory(options).kept),
      options_(With(std::move(options), arena_.allocator())),
      memory_(engine::DivideMemory(options_)),
      budget_(options_.max_memory_bytes),
      manifest_(
          world_, path_, [this] { return lifecycle_.NowNs(); }, &table_counters_),
      hints_(world_, path_, &options_, &manifest_, &lifecycle_.open(),
             [this](const std::string& line) { OnEvent(line); }),
      ledger_(options_.max_bytes, [this] { return FreeOnDisk(); }),
      staging_(options_.allocator, memory_.staging, &budget_),
      space_(MakeSpaceDeps()),
      recovery_({.world = world_,
                 .directory = path_,
                 .options = &options_,
                 .committer = &committer_,
                 .space = &space_,
                 .indexer = indexer_.get(),
                 .counters = &call_counters_}),
      follower_(MakeFollowDeps()) {
  options_.tree_memory_bytes = memory_.tree;
  options_.reuse_memory_bytes = memory_.reuse;
  committer_.AddObserver(&commit_counters_, engine::ObserverOrder::kAny);
  if (indexer_ != nullptr) {
    committer_.AddObserver(indexer_.get(), engine::ObserverOrder::kSequence);
  }
  committer_.AddObserver(&space_.flusher(), engine::ObserverOrder::kSequence);
  committer_.AddObserver(&objects_.directory(), engine::ObserverOrder::kSequence);
  budget_.Take(memory_.fixed());
}

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
  CAIRN_RETURN_IF_ERROR(engine::EnterDirectory(&world, directory, chosen.create_if_missing));
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
  core->reader_.OpenPinned([&core](const std::string& line) { core->OnEvent(line); });
  core->lifecycle_.Open();
  if (!options.read_only) {
    if (!core->timer_->Start()) return Status(StatusCode::kIoError, "no thread for the timer");
    if (core->indexer_ != nullptr) core->indexer_->Start();
    core->SetAsideIndex();
    CAIRN_RETURN_IF_ERROR(core->space_.Start());
    const engine::Manifest& opened = core->manifest_.at_opening();
    core->objects_.Start(Hash(std::as_bytes(std::span(opened.store.bytes))));
  }
  return core;
}

// The manifest comes last: it makes a directory a store. After a crash before that there is none,
// and the next Open begins again.
Status StoreCore::CreateFiles() {
  io::FileSystem& files = *world_.files;
  if (options_.segment_bytes == 0) {
    options_.segment_bytes = engine::SegmentBytesFor(std::min(options_.max_bytes, FreeOnDisk()));
  }
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
  manifest.counted_from = 1;
  manifest.history.id = engine::DrawHistory(*world_.scheduler);
  manifest.segment_bytes = options_.segment_bytes;
  manifest.created_at_ns = lifecycle_.NowNs();
  manifest_.Begin(std::move(manifest));
  CAIRN_RETURN_IF_ERROR(StartLog({}));
  SetTableContext();
  engine::Manifest empty = manifest_.at_opening();
  CAIRN_RETURN_IF_ERROR(recovery_.OpenTree(&empty, &committer_.tree(), &index_loss_));
  if (indexer_ != nullptr) indexer_->Open(space_.IndexContext(), manifest_.at_opening());
  CAIRN_RETURN_IF_ERROR(AdoptTables());
  // First: an opening that finds the manifest takes the store for complete.
  if (CAIRN_KEPT(kSyncDirectoryCreate)) {
    CAIRN_RETURN_IF_ERROR(files.SyncDirectory(io::ParentPath(path_)));
  }
  CAIRN_RETURN_IF_ERROR(manifest_.WriteFirst());
  hints_.Publish();
  return Status::Ok();
}

// For an existing store.
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
  // Nothing is put into a directory that belongs to something else.
  if (!manifest_first.ok() && manifest_first.status().code() == StatusCode::kNotFound) {
    CAIRN_RETURN_IF_ERROR(engine::CheckDirectoryIsFree(files, path_));
    CAIRN_RETURN_IF_ERROR(engine::NoStoreHere(
        files, path_,
        options_.create_if_missing ? "" : ": no store here (create_if_missing is off)"));
  }
  CAIRN_ASSIGN_OR_RETURN(lock_, files.Lock(io::JoinPath(path_, engine::kLockFile)));
  auto manifest = engine::ReadManifest(files, path_);
  if (manifest.status().code() == StatusCode::kNotFound) return CreateFiles();
  if (!manifest.ok()) return manifest.status();
  if (options_.error_if_exists) {
    return Status(StatusCode::kAlreadyExists, path_ + ": a store is here already");
  }
  const bool named = !manifest->named.empty();
  if (indexer_ == nullptr) manifest->named.clear();  // They would miss later commits.
  manifest_.Begin(std::move(*manifest));
  CAIRN_RETURN_IF_ERROR(CheckSegmentBytes());
  // The writer of the manifest may have ended before its name was durable.
  CAIRN_RETURN_IF_ERROR(files.SyncDirectory(path_));
  CAIRN_ASSIGN_OR_RETURN(options_file_, engine::ReadOptionsFile(files, path_));
  wal::RecoveryOptions recovery;
  recovery.salvage = options_.recovery == Recovery::kSetAside;
  SetTableContext();
  wal::RecoveredLog recovered;
  const engine::Manifest& opened = manifest_.at_opening();
  engine::Manifest from = opened;
  CAIRN_RETURN_IF_ERROR(
      io::MissingIsCorruption(recovery_.OpenTree(&from, &committer_.tree(), &index_loss_)));
  CAIRN_ASSIGN_OR_RETURN(const engine::Recovery::LeftOut left_out,
                         recovery_.Replay(from, recovery, &committer_.tree(), &recovered));
  left_out_ = left_out.records;
  left_out_upto_ = recovered.last_sequence;
  const Status whole = recovery_.CheckLogIsWhole(opened, recovered);
  if (!whole.ok() &&
      (options_.recovery == Recovery::kRefuse || whole.code() != StatusCode::kCorruption))
    return whole;
  RecordRecovery(recovered, whole, engine::JoinNotes(index_loss_.note, left_out.note));
  const bool cut = recovered.repaired || !whole.ok();
  // Nothing was set aside: from here on it is a store like any other. What a crash left of objects
  // is swept, which writes.
  if (!cut && left_out_ == 0 && index_loss_.tables.empty()) options_.recovery = Recovery::kRefuse;
  if (indexer_ != nullptr) indexer_->Open(space_.IndexContext(), from);
  CAIRN_RETURN_IF_ERROR(AdoptTables());  // First: the space they free is for new segments.
  CAIRN_RETURN_IF_ERROR(BeginHistory(recovered));
  if (cut) CAIRN_RETURN_IF_ERROR(SetAsideLog(recovered));
  CAIRN_RETURN_IF_ERROR(CountLost());
  CAIRN_RETURN_IF_ERROR(StartLog(std::move(recovered)));
  // Later openings may only ask for what was salvaged. New records reuse the sequences of lost
  // ones; the index must not take them for those.
  if (const uint64_t last = log_->last_reserved_sequence(); last < opened.last_sequence) {
    CAIRN_RETURN_IF_ERROR(manifest_.Edit([&](engine::Manifest* next) {
      next->next_id = committer_.tree().next_id();
      next->last_sequence = last;
      next->steps.clear();  // The log goes on differently from there.
      if (next->index_sequence <= last) return;
      next->index_sequence = last;
      next->replay_from = log_->written_end();
    }));
    space_.flusher().SetFlushed(opened.index_sequence);
  }
  // Hints that were given up have no tables any more.
  const bool kept = indexer_ != nullptr && indexer_->ForManifest(opened.index_sequence).has_value();
  if (named && !kept) {
    CAIRN_RETURN_IF_ERROR(manifest_.Edit([](engine::Manifest* next) { next->named.clear(); }));
  }
  hints_.Publish();
  return Status::Ok();
}

// Puts nothing into the directory.
Status StoreCore::OpenFollower() {
  auto manifest = engine::ReadManifest(*world_.files, path_);
  if (manifest.status().code() == StatusCode::kNotFound)
    return engine::NoStoreHere(*world_.files, path_, ": no store here");
  if (!manifest.ok()) return manifest.status();
  manifest_.Show(std::move(*manifest), 0);
  CAIRN_RETURN_IF_ERROR(CheckSegmentBytes());
  CAIRN_ASSIGN_OR_RETURN(options_file_, engine::ReadOptionsFile(*world_.files, path_));
  SetTableContext();
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<engine::RefreshedState> state,
                         follower_.ReadFirst());
  RecordRecovery(state->log, state->whole, state->lost);
  space_.log_reclaimer().SetLogStart(state->manifest.log_start_segment);
  manifest_.Show(std::move(state->manifest), state->log.last_sequence);
  committer_.tree() = std::move(state->tree);
  recovery_.PrepareShow(manifest_.at_opening(), state->hint);
  if (indexer_ != nullptr) indexer_->Show();
  return StartLog(std::move(state->log));
}

void StoreCore::SetTableContext() {
  sstable::TableContext context;
  context.files = world_.files.get();
  context.directory = io::JoinPath(path_, engine::kTableDirectory);
  context.store = manifest_.at_opening().store;
  context.allocator = options_.allocator;
  context.cache = &block_cache_;
  context.open_files = &reader_.open_files();
  context.callbacks = space_.reclaim_callbacks();
  context.counters = &table_counters_;
  reader_.tables().SetContext(context);
  options_.segment_bytes = manifest_.at_opening().segment_bytes;
  space_.log_reclaimer().SetLogStart(manifest_.at_opening().log_start_segment);
}

// For a store that writes, after replay: counts existing tables and removes those that nothing
// names. The number of a named table is never given again, whatever the manifest says.
Status StoreCore::AdoptTables() {
  const sstable::TableContext& context = reader_.tables().context();
  CAIRN_RETURN_IF_ERROR(io::CreateDirectoryIfMissing(*world_.files, context.directory));
  CAIRN_RETURN_IF_ERROR(manifest_.RemoveOld());
  space_.SetIndex(committer_.tree().index(), manifest_.at_opening().index_sequence);
  std::vector<uint64_t> live;
  std::vector<sstable::LiveTable> of_indexes = manifest_.at_opening().index;
  if (indexer_ != nullptr && indexer_->hints() != nullptr) {
    const std::vector<sstable::LiveTable> hints = indexer_->hints()->index().live();
    of_indexes.insert(of_indexes.end(), hints.begin(), hints.end());
  }
  for (const sstable::LiveTable& table : of_indexes) {
    live.push_back(table.number);
    manifest_.NameTable(table.number);
    ledger_.TakeAnyway(table.bytes);
  }
  std::vector<uint64_t> deleted;  // Tables that were dead, before the index knew.
  for (const auto& [number, use] : committer_.tree().tables()) {
    manifest_.NameTable(number);
    const std::string path = sstable::SnapshotTablePath(context.directory, number);
    if (use.live_bytes == 0 && world_.files->Info(path).status().code() == StatusCode::kNotFound) {
      deleted.push_back(number);
      continue;
    }
    live.push_back(number);
    ledger_.TakeAnyway(use.bytes);
  }
  for (const uint64_t number : deleted) committer_.tree().ForgetTable(number);
  if (!CAIRN_KEPT(kLiveOrphans)) return Status::Ok();
  return sstable::RemoveTableOrphans(*world_.files, context.directory, live);
}

// From here on the store's history differs from that of a copy, which continues from here, too. The
// new history's name is durable before anything else is written.
Status StoreCore::BeginHistory(const wal::RecoveredLog& recovered) {
  // The log is about to reuse the segments that were truncated, headers and all. After a crash then
  // the log must not show fewer epochs than were used.
  const uint64_t used = recovered.next_epoch - 1;
  const uint64_t kept = recovered.segments.empty() ? 0 : recovered.segments.back().epoch;
  const bool truncates = options_.recovery == Recovery::kSetAside && CAIRN_KEPT(kEpochBeforeCut) &&
                         used > std::max(kept, manifest_.at_opening().epoch);
  Status unwritten;
  const uint64_t next_segment = recovered.segments.empty()
                                    ? manifest_.at_opening().log_start_segment
                                    : recovered.segments.back().number + 1;
  CAIRN_RETURN_IF_ERROR(manifest_.BeginHistory(engine::DrawHistory(*world_.scheduler),
                                               recovered.last_sequence, truncates ? used : 0,
                                               next_segment, &unwritten));
  committer_.tree().segment_usages().CountFrom(manifest_.at_opening().counted_from);
  if (!unwritten.ok()) {
    OnEvent("no room to write MANIFEST at the opening: " + unwritten.ToString());
  }
  return Status::Ok();
}

void StoreCore::RecordRecovery(const wal::RecoveredLog& recovered, const Status& whole,
                               const std::string& lost) {
  if (recovered.torn_tail) recovery_note_ = recovered.torn_detail;
  if (recovered.repaired) recovery_note_ = recovered.repaired_detail;
  recovery_note_ = engine::JoinNotes(recovery_note_, lost);
  if (!whole.ok()) recovery_note_ = engine::JoinNotes(recovery_note_, std::string(whole.message()));
  const bool gone = recovered.repaired || !whole.ok() || !lost.empty();
  if (gone) OnEvent("set aside what is damaged: " + recovery_note_);
}

// Disk space that others use is not available to this store.
void StoreCore::TakeRoom(const wal::RecoveredLog& recovered) {
  const uint64_t free_bytes = FreeOnDisk();
  uint64_t has_bytes = ledger_.used_bytes();
  for (const wal::SegmentInfo& segment : recovered.segments) has_bytes += segment.file_bytes;
  has_bytes += manifest_.at_opening().resting.size() * manifest_.at_opening().segment_bytes;
  const uint64_t disk_bytes =
      free_bytes < UINT64_MAX - has_bytes ? has_bytes + free_bytes : UINT64_MAX;
  ledger_.Keep(engine::ReserveBytes(std::min(options_.max_bytes, disk_bytes),
                                    manifest_.at_opening().segment_bytes));
  ledger_.LookAtDisk();
  ledger_.TakeAnyway(engine::kSmallFilesBytes);
}

Status StoreCore::StartLog(wal::RecoveredLog recovered) {
  TakeRoom(recovered);
  const engine::Manifest& opened = manifest_.at_opening();
  wal::LogOptions log;
  log.directory = io::JoinPath(path_, engine::kLogDirectory);
  log.store = opened.store;
  log.segment_bytes = opened.segment_bytes;
  log.first_segment = opened.log_start_segment;
  log.resting = opened.resting;
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
  manifest_.SetLog(log_.get(), epoch);
  if (!options_.read_only && ledger_.IsShort()) {
    const bool by_cap = options_.max_bytes != UINT64_MAX;
    OnEvent((by_cap ? "max_bytes is " + BytesText(options_.max_bytes)
                    : "the disk has " + BytesText(FreeOnDisk()) + " available") +
            ", " + BytesText(ledger_.reserve_bytes()) + " of it for giving space back, and " +
            BytesText(ledger_.used_bytes()) + " are used: nothing is appended before some is");
  }
  if (!options_.read_only) space_.gate().SetLimit(space_.gauge().LogBytesHeld());
  MakeThreads();
  StartParts();
  return Status::Ok();
}

// Threads of the executors start with the first job.
void StoreCore::MakeThreads() {
  io::Scheduler& scheduler = *world_.scheduler;
  const uint32_t cores = scheduler.Cores();
  const uint32_t threads =
      options_.executor_threads != 0 ? options_.executor_threads : (cores > 1 ? cores - 1 : 1);
  timer_ = std::make_unique<engine::Timer>(world_);
  executor_ = std::make_unique<io::Executor>(scheduler, "cairn-job", threads);
  background_executor_ = std::make_unique<io::Executor>(scheduler, "cairn-seal", threads,
                                                        io::ThreadPriority::kBackground);
  parallel_for_ = std::make_unique<io::ParallelFor>(scheduler, background_executor_.get(), threads);
  write_means_.executor_threads = threads;
}

}  // namespace cairn
