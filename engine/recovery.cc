// SPDX-License-Identifier: Apache-2.0
#include "engine/recovery.h"

#include <memory>
#include <utility>

#include "base/core/mutation.h"
#include "base/io/file_util.h"
#include "engine/commit/replayer.h"
#include "engine/constants.h"
#include "engine/tree/tree_records.h"
#include "wal/segment_files.h"

namespace cairn::engine {

Status Recovery::OpenTree(const Manifest& manifest, Tree* tree) const {
  const sstable::MergeShape shape{.table_bytes = kIndexTableBytes,
                                  .level1_bytes = kIndexLevel1Bytes};
  CAIRN_ASSIGN_OR_RETURN(
      std::shared_ptr<sstable::LsmIndex> index,
      sstable::LsmIndex::Open({means_.space->IndexContext(), shape}, manifest.index));
  tree->SetIndex(std::move(index));
  tree->seal_queue().SetLimits(means_.options->snapshot_interval_tokens,
                               means_.options->max_delta_chain);
  return TreeRecords::LoadRoots(tree);
}

Result<uint64_t> Recovery::Replay(const Manifest& manifest, wal::RecoveryOptions recovery,
                                  Tree* tree, wal::RecoveredLog* recovered) {
  recovery.directory = io::JoinPath(means_.directory, kLogDirectory);
  recovery.store = manifest.store;
  recovery.first_segment = manifest.log_start_segment;
  recovery.replay_from = manifest.replay_from;
  recovery.epoch_used = manifest.epoch;
  Replayer replayer(tree, means_.committer, manifest.index_sequence);
  // The log is intact if the index cannot say what a record changes. A salvage skips that record
  // and those that need it, and gets the same result each time.
  uint64_t left_out = 0;
  Status first_left_out;
  const auto on_record = [&](const wal::RecordView& record) -> Status {
    ++means_.counters->replayed_records;
    Status status = replayer.Apply(record);
    if (!status.ok()) status = status.WithContext(PlaceText(record.location));
    if (!recovery.salvage || status.code() != StatusCode::kCorruption) return status;
    if (++left_out == 1) first_left_out = std::move(status);
    return Status::Ok();
  };
  auto found = wal::Recover(means_.world, recovery, on_record);
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

Status Recovery::CheckLogIsWhole(const Manifest& manifest,
                                 const wal::RecoveredLog& recovered) const {
  const std::string log = io::JoinPath(means_.directory, kLogDirectory);
  const std::string first = wal::SegmentPath(log, manifest.log_start_segment);
  const auto info = means_.world.files->Info(first);
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

void Recovery::PrepareShow(const Manifest& manifest) {
  if (means_.indexer != nullptr) {
    means_.indexer->PrepareShow(means_.space->IndexContext(), manifest);
  }
}

void Recovery::OnShown(uint64_t log_start) {
  means_.space->log_reclaimer().SetLogStart(log_start);
  if (means_.indexer != nullptr) means_.indexer->Show();
}

}  // namespace cairn::engine
