// SPDX-License-Identifier: Apache-2.0
#include "engine/store/recovery.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/core/mutation.h"
#include "base/core/text.h"
#include "base/io/file_util.h"
#include "engine/commit/replayer.h"
#include "engine/config/constants.h"
#include "engine/tree/records/tree_records.h"
#include "engine/tree/records/tree_rescue.h"
#include "wal/segment_files.h"

namespace cairn::engine {

namespace {

std::string DescribeRescue(const TreeRescueReport& report) {
  std::string text = std::to_string(report.kept);
  if (report.had != 0) text += " of " + std::to_string(report.had);
  text += report.kept == 1 ? " branch is kept" : " branches are kept";
  if (report.lost == 0) return text;
  return text + ", gone is " + (report.lost == 1 ? "" : "among others ") +
         (report.first_lost.empty() ? "one without a name" : Quoted(report.first_lost));
}

}  // namespace

std::string JoinNotes(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + "; " + second;
}

sstable::LsmOptions Recovery::IndexOptions() const {
  return {deps_.space->IndexContext(),
          {.table_bytes = kIndexTableBytes, .level1_bytes = kIndexLevel1Bytes}};
}

Status Recovery::OpenWholeTree(const Manifest& manifest, Tree* tree) const {
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<sstable::LsmIndex> index,
                         sstable::LsmIndex::Open(IndexOptions(), manifest.index));
  tree->SetIndex(std::move(index));
  return TreeRecords::LoadRoots(tree);
}

Status Recovery::OpenTree(Manifest* manifest, Tree* tree, IndexLoss* loss) const {
  tree->segment_usages().CountFrom(manifest->counted_from);
  Status opened = OpenWholeTree(*manifest, tree);
  const bool damaged = opened.code() == StatusCode::kCorruption ||
                       (opened.code() == StatusCode::kNotFound && !manifest->index.empty());
  if (damaged && deps_.options->recovery == cairn::Recovery::kSetAside) {
    *tree = Tree();
    tree->segment_usages().CountFrom(manifest->counted_from);
    opened = RescueIndex(manifest, tree, loss);
  }
  tree->seal_queue().SetLimits(deps_.options->snapshot_interval_tokens,
                               deps_.options->max_delta_chain,
                               kLargeDeltaBytes);
  return opened;
}

// Whether the log still has everything from there on that the index held.
Result<bool> Recovery::LogHas(const Manifest& manifest, const wal::LogPosition& from) const {
  if (manifest.log_start_segment > std::max<uint64_t>(from.segment, 1)) return false;
  wal::RecoveryOptions recovery;
  recovery.directory = io::JoinPath(deps_.directory, kLogDirectory);
  recovery.store = manifest.store;
  recovery.first_segment = manifest.log_start_segment;
  recovery.replay_from = from;
  recovery.read_only = true;
  recovery.stop_after = manifest.index_sequence;
  io::World world = deps_.world;
  const auto log =
      wal::Recover(world, recovery, [](const wal::RecordView&) { return Status::Ok(); });
  if (log.status().code() == StatusCode::kCorruption) return false;
  CAIRN_RETURN_IF_ERROR(log.status());
  return log->last_sequence >= manifest.index_sequence;
}

// The newest state of the index from which the log alone leads to the present one: its older
// tables, if all lost ones are of level 0, or none (table 0).
Result<std::optional<IndexStep>> Recovery::StepTheLogHas(const Manifest& manifest,
                                                         const sstable::IndexRescue& read) const {
  uint64_t first = UINT64_MAX;
  for (const sstable::IndexRescue::Lost& lost : read.lost()) {
    first = std::min(first, lost.table.level == 0 ? lost.table.number : 0);
  }
  const auto step = std::find_if(manifest.steps.begin(), manifest.steps.end(),
                                 [first](const IndexStep& one) { return one.table == first; });
  if (step != manifest.steps.end()) {
    CAIRN_ASSIGN_OR_RETURN(const bool has, LogHas(manifest, step->replay_from));
    if (has) return std::optional(*step);
  }
  CAIRN_ASSIGN_OR_RETURN(const bool has, LogHas(manifest, {}));
  return has ? std::optional(IndexStep()) : std::nullopt;
}

Status Recovery::RescueIndex(Manifest* manifest, Tree* tree, IndexLoss* loss) const {
  const sstable::LsmOptions options = IndexOptions();
  CAIRN_ASSIGN_OR_RETURN(const sstable::IndexRescue read,
                         sstable::IndexRescue::Look(options.tables, manifest->index));
  // All tables are whole: what they hold was never a tree.
  if (read.lost().empty()) return OpenWholeTree(*manifest, tree);
  const size_t more = read.lost().size() - 1;
  const std::string damage =
      std::string(read.first_damage().message()) +
      (more == 0 ? "" : " (and " + std::to_string(more) + " more tables of the index)");
  CAIRN_ASSIGN_OR_RETURN(const auto step, StepTheLogHas(*manifest, read));
  std::vector<sstable::LiveTable> kept = read.whole();
  if (step.has_value()) {
    std::erase_if(kept, [&](const sstable::LiveTable& table) {
      return step->table == 0 || (table.level == 0 && table.number >= step->table);
    });
  }
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<sstable::LsmIndex> index,
                         sstable::LsmIndex::Open(options, kept));
  loss->tables = read.lost();
  manifest->named.clear();
  if (step.has_value()) {
    manifest->index_sequence = step->index_sequence;
    manifest->replay_from = step->replay_from;
    loss->note = damage + ": the log has what it held; nothing is gone";
  } else {
    CAIRN_ASSIGN_OR_RETURN(
        const TreeRescueReport report,
        RescueTree(read, options.tables, manifest->next_id, manifest->counted_from, index.get()));
    loss->note = damage + ": " + DescribeRescue(report);
  }
  tree->SetIndex(std::move(index));
  CAIRN_RETURN_IF_ERROR(TreeRecords::LoadRoots(tree));
  tree->SetNextId(std::max(tree->next_id(), manifest->next_id));  // Lost ids are not given again.
  return Status::Ok();
}

Result<Recovery::LeftOut> Recovery::Replay(const Manifest& manifest, wal::RecoveryOptions recovery,
                                           Tree* tree, wal::RecoveredLog* recovered) {
  recovery.directory = io::JoinPath(deps_.directory, kLogDirectory);
  recovery.store = manifest.store;
  recovery.first_segment = manifest.log_start_segment;
  recovery.replay_from = manifest.replay_from;
  recovery.epoch_used = manifest.epoch;
  Replayer replayer(tree, deps_.committer, manifest.index_sequence, recovery.salvage);
  // The log is intact if the index cannot say what a record changes. A salvage skips that record
  // and those that need it, and gets the same result each time.
  LeftOut left_out;
  const auto on_record = [&](const wal::RecordView& record) -> Status {
    ++deps_.counters->replayed_records;
    Status status = replayer.Apply(record);
    if (!status.ok()) status = status.WithContext(PlaceText(record.location));
    if (!recovery.salvage || status.code() != StatusCode::kCorruption) return status;
    if (left_out.records++ == 0) left_out.note = status.ToString();
    return Status::Ok();
  };
  auto found = wal::Recover(deps_.world, recovery, on_record);
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
  if (left_out.records != 0) left_out.note += ": this record is left out, and all that need it";
  return left_out;
}

Status Recovery::ReadTree(Manifest* manifest, const wal::RecoveryOptions& recovery, Tree* tree,
                          wal::RecoveredLog* log, std::string* note) {
  Manifest from = *manifest;
  IndexLoss loss;
  CAIRN_RETURN_IF_ERROR(OpenTree(&from, tree, &loss));
  manifest->named = from.named;
  CAIRN_ASSIGN_OR_RETURN(const LeftOut left_out, Replay(from, recovery, tree, log));
  *note = JoinNotes(loss.note, left_out.note);
  return Status::Ok();
}

Status Recovery::CheckLogIsWhole(const Manifest& manifest,
                                 const wal::RecoveredLog& recovered) const {
  const std::string log = io::JoinPath(deps_.directory, kLogDirectory);
  const std::string first = wal::SegmentPath(log, manifest.log_start_segment);
  const auto info = deps_.world.files->Info(first);
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

void Recovery::PrepareShow(const Manifest& manifest, const std::optional<Hint>& hint) {
  if (deps_.indexer == nullptr) return;
  const bool unindexed = hint.has_value() && hint->indexing == Indexing::kOff;
  deps_.indexer->PrepareShow(deps_.space->IndexContext(), manifest, unindexed);
}

void Recovery::OnShown(uint64_t log_start) {
  deps_.space->log_reclaimer().SetLogStart(log_start);
  if (deps_.indexer != nullptr) deps_.indexer->Show();
}

}  // namespace cairn::engine
