// SPDX-License-Identifier: Apache-2.0
#include "engine/manifest/manifest_store.h"

#include <algorithm>
#include <utility>

#include "base/core/align.h"
#include "base/core/check.h"
#include "engine/config/constants.h"

namespace cairn::engine {

ManifestStore::ManifestStore(const io::World& world, std::string directory,
                             std::function<uint64_t()> now_ns, const sstable::TableCounters* tables)
    : world_(world),
      directory_(std::move(directory)),
      now_ns_(std::move(now_ns)),
      tables_(tables) {}

// ---------------------------------------------------------------- opening

void ManifestStore::Begin(Manifest manifest) {
  manifest_ = std::move(manifest);
  next_table_ = manifest_.next_file_number;
  const MutexLock lock(&written_mutex_);
  written_ = manifest_.written;
}

void ManifestStore::SetLog(wal::Log* log, uint64_t epoch) {
  log_ = log;
  epoch_ = epoch;
}

Status ManifestStore::WriteFirst() { return WriteManifest(*world_.files, directory_, manifest_); }

Status ManifestStore::BeginHistory(const HistoryId& id, uint64_t last_sequence,
                                   uint64_t truncated_epoch, uint64_t next_segment,
                                   Status* unwritten) {
  Manifest next = manifest_;
  ++next.number;
  next.history.GoOn(id, next.At(last_sequence));
  if (truncated_epoch != 0) next.epoch = truncated_epoch;
  if (next.counted_from == kCountsNone) next.counted_from = next_segment;
  Status status = WriteManifest(*world_.files, directory_, next);
  if (status.ok()) {
    manifest_ = std::move(next);
    return status;
  }
  // A full disk must not lock out a user who wants to free space. Until then the history stays the
  // same: copies still differ visibly once one of them has got further.
  if (truncated_epoch != 0 || status.code() != StatusCode::kNoSpace) return status;
  // Not if the file has its name already and only the name may be lost: a follower may have seen
  // it.
  const auto newest = ReadManifest(*world_.files, directory_);
  if (!newest.ok() || newest->number != manifest_.number) return status;
  *unwritten = std::move(status);
  return Status::Ok();
}

Status ManifestStore::RemoveOld() {
  return RemoveOldManifests(*world_.files, directory_, manifest_.number);
}

void ManifestStore::NameTable(uint64_t number) { next_table_ = std::max(next_table_, number + 1); }

// ---------------------------------------------------------------- writing

Result<uint64_t> ManifestStore::NewTableNumber() {
  CAIRN_RETURN_IF_ERROR(log_->CheckLock());
  const io::Turn::Holder turn(&turn_);
  if (next_table_ >= manifest_.next_file_number) {
    Manifest next = manifest_;
    next.next_file_number = next_table_ + kTableNumbersAtOnce;
    CAIRN_RETURN_IF_ERROR(Replace(std::move(next)));
  }
  return next_table_++;
}

Status ManifestStore::Edit(const std::function<void(Manifest*)>& edit) {
  CAIRN_RETURN_IF_ERROR(log_->CheckLock());  // Without the turn: its reports may need that.
  const io::Turn::Holder turn(&turn_);
  Manifest next = manifest_;
  edit(&next);
  return Replace(std::move(next));
}

// REQUIRES: the turn.
Status ManifestStore::Replace(Manifest next) {
  ++next.number;
  next.written = CountWritten();
  next.epoch = std::max(next.epoch, epoch_);
  CAIRN_RETURN_IF_ERROR(WriteManifest(*world_.files, directory_, next));
  {
    const MutexLock lock(&written_mutex_);
    manifest_bytes_ += AlignUp(EncodeManifest(next).size(), io::kBlockBytes);
  }
  const MutexLock lock(&mutex_);
  manifest_ = std::move(next);
  return Status::Ok();
}

HourlyWriteCounter ManifestStore::CountWritten() {
  const wal::Log::Counters log = log_->counters();
  const uint64_t now_ns = now_ns_();
  const MutexLock lock(&written_mutex_);
  const uint64_t bytes =
      log.bytes_written + log.bytes_prewritten + tables_->written_bytes.load() + manifest_bytes_;
  // A thread that read the counters later may have been here first.
  if (bytes > counted_bytes_) {
    written_.Add(now_ns, bytes - counted_bytes_);
    counted_bytes_ = bytes;
  }
  return written_;
}

// ---------------------------------------------------------------- reading

void ManifestStore::Show(Manifest manifest, uint64_t sequence) {
  const MutexLock lock(&mutex_);
  manifest_ = std::move(manifest);
  seen_ = manifest_.At(sequence);
}

bool ManifestStore::IsContinuedBy(const Manifest& other) const {
  const MutexLock lock(&mutex_);
  return other.history.Holds(seen_);
}

Manifest ManifestStore::Copy() const {
  const MutexLock lock(&mutex_);
  return manifest_;
}

uint64_t ManifestStore::number() const {
  const MutexLock lock(&mutex_);
  return manifest_.number;
}

HistoryId ManifestStore::history() const {
  const MutexLock lock(&mutex_);
  return manifest_.history.id;
}

StoreId ManifestStore::store() const {
  const MutexLock lock(&mutex_);
  return manifest_.store;
}

std::vector<wal::RestingSegment> ManifestStore::resting() const {
  const MutexLock lock(&mutex_);
  return manifest_.resting;
}

uint64_t ManifestStore::IndexBytes() const {
  const MutexLock lock(&mutex_);
  uint64_t bytes = 0;
  for (const sstable::LiveTable& table : manifest_.index) bytes += table.bytes;
  for (const NamedIndex& index : manifest_.named) {
    for (const sstable::LiveTable& table : index.tables) bytes += table.bytes;
  }
  return bytes;
}

}  // namespace cairn::engine
