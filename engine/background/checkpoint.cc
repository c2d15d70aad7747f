// SPDX-License-Identifier: Apache-2.0
#include "engine/background/checkpoint.h"

#include <memory>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/core/text.h"
#include "base/io/file_util.h"
#include "base/io/volume.h"
#include "engine/config/constants.h"
#include "sstable/table_files.h"
#include "wal/log_copy.h"
#include "wal/segment_files.h"

namespace cairn::engine {

namespace {

class CheckpointDirectory {
 public:
  CheckpointDirectory(io::World* world, const CopyPlan* plan, std::string target)
      : world_(*world), plan_(*plan), target_(std::move(target)) {}

  Result<CheckpointInfo> Make() {
    // Also without memory nothing may be left behind.
    Status status = CatchBadAlloc([this]() -> Status {
      CAIRN_RETURN_IF_ERROR(Begin());
      return Fill();
    });
    if (status.ok()) return info_;
    const Status removed = CatchBadAlloc([this] { return RemoveAll(); });
    if (removed.ok()) return status;
    return Status(status.code(), std::string(status.message()) +
                                     "; what was made of the checkpoint is left at " + target_ +
                                     ": " + removed.ToString());
  }

 private:
  // Leaves nothing behind if the target is refused.
  Status Begin() {
    made_.reserve(8);  // So that noting a file that was made cannot fail.
    const auto found = files().Info(target_);
    if (!found.ok() && found.status().code() != StatusCode::kNotFound) return found.status();
    if (found.ok() && !found->is_directory) {
      return Status(StatusCode::kInvalidState, target_ + " is a file, no empty directory");
    }
    if (!found.ok()) {
      made_.push_back(target_);
      if (Status made = files().CreateDirectory(target_); !made.ok()) return made_.clear(), made;
    }
    // All files go to one place, whatever becomes of the path or of the working directory.
    CAIRN_RETURN_IF_ERROR(io::HoldDirectory(&world_, target_));
    if (found.ok()) {
      if (ReadManifest(files(), target_).status().code() != StatusCode::kNotFound) {
        return Status(StatusCode::kAlreadyExists, target_ + ": a store is here already");
      }
      CAIRN_ASSIGN_OR_RETURN(std::vector<std::string> names, files().List(target_));
      std::erase_if(names, io::IsOfVolume);
      if (!names.empty()) {
        return Status(StatusCode::kInvalidState,
                      target_ + " is not empty (" + Quoted(names.front()) + ")");
      }
    }
    std::string path = At("LOCK");
    auto lock = files().Lock(path);
    if (!lock.ok()) return lock.status();
    lock_ = std::move(*lock);
    made_.push_back(std::move(path));
    return Status::Ok();
  }

  Status Fill() {
    std::vector<std::pair<std::string, uint64_t>> refused;  // Names in tables/, bytes.
    CAIRN_RETURN_IF_ERROR(MakeDirectory("tables"));
    for (const sstable::LiveTable& table : plan_.manifest.index) {
      CAIRN_RETURN_IF_ERROR(
          LinkFile(sstable::IndexTablePath(kTableDirectory, table.number), &refused));
    }
    for (const uint64_t number : plan_.snapshots) {
      CAIRN_RETURN_IF_ERROR(
          LinkFile(sstable::SnapshotTablePath(kTableDirectory, number), &refused));
    }
    for (const uint64_t number : plan_.derived) {
      const std::string name = sstable::SnapshotTablePath(kTableDirectory, number);
      if (files().Info(io::JoinPath(plan_.source, name)).ok()) {
        CAIRN_RETURN_IF_ERROR(LinkFile(name, &refused));
      }
    }
    CAIRN_RETURN_IF_ERROR(LinkNamed(&refused));
    CAIRN_RETURN_IF_ERROR(MakeDirectory(kLogDirectory));
    for (const wal::RestingSegment& segment : plan_.manifest.resting) {
      CAIRN_RETURN_IF_ERROR(LinkFile(wal::SegmentPath(kLogDirectory, segment.number), &refused));
    }
    CAIRN_ASSIGN_OR_RETURN(const wal::RecoveredLog log, FindLog());
    wal::LogCopy copy;
    copy.from = io::JoinPath(plan_.source, kLogDirectory);
    copy.to = At(kLogDirectory);
    copy.store = plan_.manifest.store;
    copy.segments = log.segments;
    copy.segment_bytes = plan_.manifest.segment_bytes;
    copy.allocator = plan_.allocator;
    copy.copied = [this](uint64_t bytes) { return Copied(bytes); };

    total_ = wal::BytesOf(copy);
    for (const auto& [name, bytes] : refused) total_ += bytes;
    for (const auto& [name, bytes] : refused) CAIRN_RETURN_IF_ERROR(CopyFile(name, bytes));
    if (CAIRN_KEPT(kSyncDirectoryTableCopy)) {
      CAIRN_RETURN_IF_ERROR(files().SyncDirectory(At(kTableDirectory)));
    }

    const uint64_t first = plan_.manifest.log_start_segment;
    for (uint64_t i = 0; i < std::max<size_t>(log.segments.size(), 1); ++i) {
      made_.push_back(wal::SegmentPath(copy.to, first + i));
    }
    CAIRN_RETURN_IF_ERROR(wal::CopyLog(world_, copy));

    made_.push_back(At("OPTIONS"));
    CAIRN_RETURN_IF_ERROR(WriteOptionsFile(files(), target_, plan_.options));
    CAIRN_RETURN_IF_ERROR(files().SyncDirectory(io::ParentPath(target_)));
    Manifest manifest = plan_.manifest;
    manifest.number = 1;
    manifest.named = named_;
    manifest.written = {};  // Another store's counter.
    manifest.last_sequence = plan_.last_sequence;
    committing_ = true;
    CAIRN_RETURN_IF_ERROR(WriteManifest(files(), target_, manifest));
    info_.sequence = plan_.last_sequence;
    return Status::Ok();
  }

  // Derived tables may have been deleted meanwhile: the copy goes without them.
  Status LinkNamed(std::vector<std::pair<std::string, uint64_t>>* refused) {
    for (const NamedIndex& index : plan_.manifest.named) {
      for (const sstable::LiveTable& table : index.tables) {
        const std::string name = sstable::IndexTablePath(kTableDirectory, table.number);
        if (index.derived && !files().Info(io::JoinPath(plan_.source, name)).ok()) {
          return Status::Ok();
        }
        CAIRN_RETURN_IF_ERROR(LinkFile(name, refused));
      }
    }
    named_ = plan_.manifest.named;
    return Status::Ok();
  }

  // Finds where the segments end, from the files themselves: up to the last sequence and no
  // further.
  Result<wal::RecoveredLog> FindLog() {
    if (plan_.last_sequence == 0) return wal::RecoveredLog();  // Nothing was ever written.
    wal::RecoveryOptions options;
    options.directory = io::JoinPath(plan_.source, kLogDirectory);
    options.store = plan_.manifest.store;
    options.first_segment = plan_.manifest.log_start_segment;
    options.read_only = true;
    options.stop_after = plan_.last_sequence;
    CAIRN_ASSIGN_OR_RETURN(
        wal::RecoveredLog log,
        wal::Recover(world_, options, [](const wal::RecordView&) { return Status::Ok(); }));
    if (log.last_sequence == plan_.last_sequence) return log;
    return Status(StatusCode::kCorruption,
                  options.directory + ": the log can be read up to sequence " +
                      std::to_string(log.last_sequence) + ", but has been durable up to " +
                      std::to_string(plan_.last_sequence));
  }

  // `name` with its directory, relative to source and target.
  Status LinkFile(const std::string& name, std::vector<std::pair<std::string, uint64_t>>* refused) {
    CAIRN_RETURN_IF_ERROR(plan_.go_on());
    const std::string from = io::JoinPath(plan_.source, name);
    const Result<io::FileInfo> found = files().Info(from);
    if (found.status().code() == StatusCode::kNotFound) {  // That means the caller's path.
      return Status(StatusCode::kCorruption,
                    std::string(found.status().message()) + ": the file is gone");
    }
    CAIRN_RETURN_IF_ERROR(found.status());
    const io::FileInfo& info = *found;
    made_.push_back(At(name));
    CAIRN_ASSIGN_OR_RETURN(const bool linked, files().Link(from, At(name)));
    if (linked) {
      ++info_.linked_tables;
      info_.linked_bytes += info.bytes;
    } else {
      refused->emplace_back(name, info.bytes);
    }
    return Status::Ok();
  }

  Status CopyFile(const std::string& name, uint64_t bytes) {
    if (buffer_.empty()) {
      buffer_ = AlignedBuffer::TryAllocate(plan_.allocator, kReadWindowBytes, io::kBlockBytes);
      if (buffer_.empty()) return Status(StatusCode::kOutOfMemory, "no memory to copy " + name);
    }
    CAIRN_ASSIGN_OR_RETURN(const auto from,
                           files().Open(io::JoinPath(plan_.source, name), {.direct = true}));
    CAIRN_ASSIGN_OR_RETURN(const auto to,
                           files().Open(At(name), {.write = true, .create = true, .direct = true}));
    CAIRN_RETURN_IF_ERROR(to->Allocate(0, bytes));
    CAIRN_RETURN_IF_ERROR(io::CopyRange(*from, *to, 0, bytes, buffer_.span(),
                                        [this](uint64_t piece) { return Copied(piece); }));
    CAIRN_RETURN_IF_ERROR(to->Sync());
    ++info_.copied_tables;
    return Status::Ok();
  }

  Status Copied(uint64_t bytes) {
    info_.copied_bytes += bytes;
    if (plan_.progress) plan_.progress(info_.copied_bytes, std::max(total_, info_.copied_bytes));
    return plan_.go_on();
  }

  Status MakeDirectory(const std::string& name) {
    made_.push_back(At(name));
    return files().CreateDirectory(At(name));
  }

  // The manifest first, and durably: as long as a crash may bring it back, all that it names stays.
  Status RemoveAll() {
    if (committing_) {
      for (const char* name : {"MANIFEST-1", "MANIFEST-1.tmp"}) {
        CAIRN_RETURN_IF_ERROR(io::RemoveIfExists(files(), At(name)));
      }
      CAIRN_RETURN_IF_ERROR(files().SyncDirectory(target_));
    }
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) {
      if (*path == At("LOCK")) lock_.reset();
      CAIRN_RETURN_IF_ERROR(io::RemoveIfExists(files(), *path));
    }
    return Status::Ok();
  }

  io::FileSystem& files() { return *world_.files; }
  std::string At(const std::string& name) const { return io::JoinPath(target_, name); }

  io::World world_;  // Holds the target.
  const CopyPlan& plan_;
  std::vector<NamedIndex> named_;  // Indexes of the source that the copy has, too.
  const std::string target_;
  std::unique_ptr<io::FileLock> lock_;
  std::vector<std::string> made_;  // In order; the last may not exist.
  bool committing_ = false;
  AlignedBuffer buffer_;
  uint64_t total_ = 0;
  CheckpointInfo info_;
};

}  // namespace

Result<CheckpointInfo> WriteCheckpointDirectory(io::World& world, const CopyPlan& plan,
                                                const std::string& target) {
  return CheckpointDirectory(&world, &plan, target).Make();
}

}  // namespace cairn::engine
