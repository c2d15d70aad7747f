// SPDX-License-Identifier: Apache-2.0
//
// Appends and fills whose KV lies in the memory of a GPU.
#include <algorithm>
#include <utility>

#include "engine/commit/appender.h"
#include "engine/config/constants.h"

namespace cairn::engine {

// Staging memory for a window of at least one position and at most `bytes`.
Result<std::shared_ptr<StagedWindow>> Appender::TakeStaging(uint64_t bytes,
                                                            uint64_t position_bytes) const {
  const uint64_t most = deps_.staging->max_bytes();
  if (position_bytes > most) {
    return Status(StatusCode::kInvalidArgument,
                  "kv: one position takes " + std::to_string(position_bytes) +
                      " bytes; from a GPU at most " + std::to_string(most) +
                      ", all staging memory (a share of max_memory_bytes)");
  }
  const uint64_t window = std::min(deps_.limits->PayloadBytesMax(), most);
  return StagedWindow::Make(deps_.staging, std::min(bytes, std::max(window, position_bytes)));
}

// KV comes through staging memory: whole, or one part after the other.
Result<LargeAppends::Source> Appender::OpenSource(const ModelSpec& model, const Delta& delta,
                                                  const AppendOptions& options) const {
  LargeAppends::Source source;
  if (!IsOnGpu(delta)) return source;
  CAIRN_ASSIGN_OR_RETURN(source.gpu, deps_.gpus->Open(model, *delta.kv, options.gpu_ready));
  source.arrival.arrived = [gpu = source.gpu] { return gpu->ready().Reached(); };
  source.arrival.await = [gpu = source.gpu](uint64_t deadline_ns,
                                            const std::function<bool()>& wanted) {
    return gpu->ready().Await(deadline_ns, wanted);
  };
  uint64_t position_bytes = 0;  // The largest of a group: groups may follow each other.
  for (const GroupView& view : delta.kv->groups) {
    if (view.count == 0) continue;
    position_bytes = std::max(position_bytes, KvLayoutBytes(model.groups[view.group], 1));
  }
  CAIRN_ASSIGN_OR_RETURN(
      source.staged,
      TakeStaging(WindowKvBytes(model, delta, DeltaWindow::Whole(delta)), position_bytes));
  return source;
}

Result<Ticket> Appender::PostFromGpu(BranchId id, const Delta& delta, const AppendOptions& options,
                                     const Expected& expected,
                                     const std::shared_ptr<const ModelSpec>& model, bool kv_shed) {
  const auto post = [&]() -> Result<Ticket> {
    if (options.overload == Overload::kShedKv) {
      CAIRN_ASSIGN_OR_RETURN(const bool gap, HasGap(id, delta));
      if (gap) return Status(StatusCode::kBusy, "KV before this was shed");
    }
    CAIRN_ASSIGN_OR_RETURN(LargeAppends::Source source, OpenSource(*model, delta, options));
    return large_.Post({.branch = id,
                        .delta = delta,
                        .expected = expected,
                        .model = model,
                        .kv_shed = kv_shed,
                        .source = std::move(source)},
                       options);
  };
  Result<Ticket> posted = post();
  if (posted.ok() || options.overload != Overload::kShedKv) return posted;
  return AppendShedding(id, delta, options, expected, posted.status());
}

// Windows of positions come to the host one after the other and are filled from there. Positions
// that have KV already are copied in vain.
Result<uint64_t> Appender::FillFromGpu(BranchId id, const Delta& delta, const ModelSpec& model,
                                       const AppendOptions& options, uint64_t deadline_ns) {
  CAIRN_ASSIGN_OR_RETURN(const auto gpu, deps_.gpus->Open(model, *delta.kv, options.gpu_ready));
  CAIRN_RETURN_IF_ERROR(gpu->ready().Await(deadline_ns, nullptr));
  CAIRN_RETURN_IF_ERROR(gpu->Prepare());
  std::shared_ptr<StagedWindow> staged;
  uint64_t sequence = 0;
  for (size_t i = 0; i < delta.kv->groups.size(); ++i) {
    const GroupView& view = delta.kv->groups[i];
    const uint64_t position_bytes = KvLayoutBytes(model.groups[view.group], 1);
    staged = nullptr;
    CAIRN_ASSIGN_OR_RETURN(
        staged, TakeStaging(KvLayoutBytes(model.groups[view.group], view.count), position_bytes));
    const uint64_t positions = std::max<uint64_t>(1, staged->bytes() / position_bytes);
    DeltaWindow window;
    window.kv.resize(delta.kv->groups.size());
    for (uint64_t at = view.position; at < view.position + view.count;) {
      window.kv[i] = {at, std::min(positions, view.position + view.count - at)};
      CAIRN_RETURN_IF_ERROR(staged->Gather(*gpu, model, delta, window));
      CAIRN_ASSIGN_OR_RETURN(sequence,
                             FillView(id, staged->delta(), i, model, options, deadline_ns));
      at += window.kv[i].count;
    }
  }
  return sequence;
}

}  // namespace cairn::engine
