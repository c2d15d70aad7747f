// SPDX-License-Identifier: Apache-2.0
#include "engine/space/seal_reader.h"

#include <cstring>

#include "base/core/check.h"
#include "base/io/file_util.h"
#include "engine/restore/pipeline.h"

namespace cairn {

using engine::Tree;

namespace {

// The records of the log that a source is read from, and how much of each.
template <typename Visit>
void ForEachRecord(const Tree::SealSource& source, const Visit& visit) {
  const auto place = [&](const engine::Place& at, uint32_t bytes) {
    if (at.table == 0) visit(at.log, bytes);
  };
  for (const engine::Extent& extent : source.extents) {
    place(extent.place,
          source.lane == engine::kTokenLane ? extent.prefix_bytes : extent.place.log.bytes);
  }
  if (source.extents.empty()) place(source.mark.place, source.mark.place.log.bytes);
}

}  // namespace

// What a pipeline needs to know to fill a stage.
class StageRun final : public engine::PipelineHost {
 public:
  StageRun(StoreCore* core, engine::RecordStage* stage,
           std::span<const engine::RecordStage::Entry> entries)
      : core_(core), stage_(stage), entries_(entries) {}

  std::vector<engine::ReadJob> Jobs() const {
    std::vector<engine::ReadJob> jobs;
    jobs.reserve(entries_.size());
    for (size_t i = 0; i < entries_.size(); ++i) {
      const wal::Location& at = entries_[i].location;
      jobs.push_back(
          {at.segment, engine::ReadJob::Kind::kRecord, at.offset, entries_[i].bytes, 0, i});
    }
    return jobs;
  }

  Result<std::shared_ptr<io::File>> OpenFor(const engine::ReadJob& job, bool /*waits*/) override {
    return core_->log_->OpenSegment(job.file);
  }
  Status Work(const engine::ReadJob& job, std::span<const std::byte> bytes,
              uint64_t* /*first_position*/) override {
    std::memcpy(stage_->RoomOf(entries_[job.index]).data(), bytes.data(), bytes.size());
    return Status::Ok();
  }
  Status BeforeRead(uint64_t bytes) override { return core_->pacer_.Take(bytes, 0); }
  engine::ReadLimits Limits() const override {
    return {engine::kSpacePieceBytes, engine::kSpaceInFlightBytes};
  }

 private:
  StoreCore* const core_;
  engine::RecordStage* const stage_;
  const std::span<const engine::RecordStage::Entry> entries_;
};

Status StoreSealReader::ReadTokens(const Tree::SealSource& source, std::span<TokenId> into) {
  RestoreRequest request;
  request.tokens = into;
  return Read(source, request);
}

Status StoreSealReader::ReadKv(const Tree::SealSource& source, const GroupView& into) {
  const KvView view{.groups = {&into, 1}};
  RestoreRequest request;
  request.into = &view;
  return Read(source, request);
}

Result<std::vector<std::byte>> StoreSealReader::ReadState(const Tree::SealSource& source) {
  CAIRN_RETURN_IF_ERROR(LookAhead(source));
  auto state =
      core_->ReadState(source.node, source.lane == engine::kSamplerLane, source.mark, &stage_);
  if (!state.ok()) return io::GoneIsDamage(state.status());
  return state;
}

Status StoreSealReader::Take(uint64_t read_bytes, uint64_t written_bytes) {
  CAIRN_RETURN_IF_ERROR(core_->pacer_.Take(read_bytes, written_bytes));
  CAIRN_RETURN_IF_ERROR(core_->log_->poisoned());
  return core_->DumpIfDue();
}

Status StoreSealReader::Read(const Tree::SealSource& source, const RestoreRequest& request) {
  CAIRN_RETURN_IF_ERROR(LookAhead(source));
  engine::RestorePlan plan;
  plan.model = source.model;
  plan.begin = source.begin;
  plan.end = source.begin + source.count;
  for (const engine::Extent& extent : source.extents) {
    engine::AddExtent(source.node, source.lane, extent, extent.begin, extent.begin + extent.count,
                      &plan);
  }
  StoreCore::Hits hits;
  const auto read = core_->RunPlan(std::move(plan), request, StoreCore::Reader::kSpace, &stage_,
                                   nullptr, nullptr, &hits);
  return io::GoneIsDamage(read.status());  // Nobody else takes a file away.
}

// Fills the stage from this source on, when it was not looked at yet.
Status StoreSealReader::LookAhead(const Tree::SealSource& source) {
  const size_t index = static_cast<size_t>(&source - expected_.data());
  if (index < looked_ahead_) return Status::Ok();
  stage_.Clear();
  uint64_t bytes = 0;
  for (looked_ahead_ = index; looked_ahead_ < expected_.size() && bytes < engine::kStageBytes;
       ++looked_ahead_) {
    uint64_t of_source = 0;
    ForEachRecord(expected_[looked_ahead_],
                  [&](const wal::Location&, uint32_t wanted) { of_source += wanted; });
    if (of_source > engine::kStagedSourceBytesMax) continue;
    bytes += of_source;
    ForEachRecord(expected_[looked_ahead_], [&](const wal::Location& at, uint32_t wanted) {
      // Else it may not have reached the device.
      if (core_->FindHot(at, wanted).owner == nullptr) stage_.Add(at, wanted);
    });
  }
  return FillStage();
}

// What cannot be read is not staged: whoever wants it reads it alone, and says what is wrong.
Status StoreSealReader::FillStage() {
  const auto entries = stage_.Arrange(core_->options_.allocator);
  if (entries.size() < 2) {
    stage_.Clear();
    return Status::Ok();
  }
  StageRun run(core_, &stage_, entries);
  const auto pipeline = std::make_shared<engine::ReadPipeline>(
      core_->world_, core_->background_executor_.get(), core_->executor_threads_,
      &core_->read_pool_, &run, nullptr, io::kNoDeadline);
  if (pipeline->Run(run.Jobs()).ok()) {
    stage_.Filled();
  } else {
    stage_.Clear();
  }
  return Take(0, 0);
}

}  // namespace cairn
