// SPDX-License-Identifier: Apache-2.0
//
// Reads the log back from the device and checks every byte that a restore could ask for.
#include "base/core/check.h"
#include "base/io/file_util.h"
#include "engine/store_core.h"

namespace cairn {

namespace {

// Where each record is; payloads are checked after the headers have been replayed.
struct Found {
  wal::Location location;
  uint64_t sequence;
};

}  // namespace

Result<VerifyReport> StoreCore::Verify(VerifyLevel level) {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (level > VerifyLevel::kAll) {
    return Status(StatusCode::kInvalidArgument, "level is neither kHeaders nor kAll");
  }
  if (!options_.read_only && log_->poisoned().ok()) CAIRN_RETURN_IF_ERROR(Flush());
  VerifyReport report;
  std::vector<uint64_t> tables;
  std::unique_ptr<engine::Pins::Pin> pin;
  uint64_t log_start = 0;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, use] : tree_.tables()) {
      if (use.live_bytes > 0) tables.push_back(number);
    }
    log_start = log_start_;
    pin = pins_.Take(log_start, tables);
  }
  std::vector<Found> records;
  wal::RecoveryOptions recovery;
  recovery.directory = io::JoinPath(path_, "log");
  recovery.store = store_id();
  recovery.first_segment = log_start;
  recovery.read_only = true;
  recovery.salvage = options_.salvage;
  recovery.stop_after = log_->written_sequence();
  const auto recovered = wal::Recover(world_, recovery, [&](const wal::RecordView& record) {
    ++report.records;
    records.push_back({record.location, record.sequence});
    return Status::Ok();
  });
  if (!recovered.ok()) {
    report.damages.push_back({path_, recovered.status().ToString(), 0});
    return report;
  }
  if (level == VerifyLevel::kHeaders) return report;
  AlignedBuffer buffer;
  for (const Found& found : records) {
    const wal::Location& at = found.location;
    const uint64_t begin = at.offset / io::kBlockBytes * io::kBlockBytes;
    const uint64_t end =
        (at.offset + at.bytes + io::kBlockBytes - 1) / io::kBlockBytes * io::kBlockBytes;
    if (buffer.size() < end - begin) buffer = TakeReadBuffer(end - begin);
    if (buffer.empty()) return Status(StatusCode::kOutOfMemory, "verify");
    const auto damage = [&](const Status& status) {
      report.damages.push_back(
          {"log segment " + std::to_string(at.segment) + ", offset " + std::to_string(at.offset),
           status.ToString(), found.sequence});
    };
    auto file = log_->OpenSegment(at.segment);
    if (!file.ok()) {
      damage(file.status());
      continue;
    }
    if (Status status = (*file)->Read(begin, buffer.span().first(end - begin)); !status.ok()) {
      damage(status);
      continue;
    }
    const std::span<const std::byte> bytes = buffer.span().subspan(at.offset - begin, at.bytes);
    const auto record = wal::ParseRecord(bytes, at, store_id());
    if (!record.ok()) {
      damage(record.status());
      continue;
    }
    for (size_t strip = 0; strip < record->strip_count(); ++strip) {
      ++report.strips;
      report.bytes += record->strip(strip).bytes;
      if (Status status = record->VerifyStrip(bytes, strip, store_id()); !status.ok()) {
        damage(status);
      }
    }
  }
  for (const uint64_t number : tables) {
    const auto table = tables_.Open(number);
    Status status = table.status();
    if (table.ok()) {
      report.bytes += (*table)->info().stored_bytes;
      status = (*table)->VerifyAll();
    }
    if (!status.ok()) {
      report.damages.push_back({sstable::SnapshotTablePath(engine::kTableDirectory, number),
                                status.ToString(), recovered->last_sequence});
    }
  }
  return report;
}

}  // namespace cairn
