// SPDX-License-Identifier: Apache-2.0
//
// Appends and fills whose KV lies in the memory of a GPU.
#include <algorithm>
#include <utility>

#include "engine/commit/appender.h"
#include "engine/constants.h"

namespace cairn::engine {

// Of a part: at least a position.
uint64_t Appender::StagedBytes(const ModelSpec& model, const Delta& delta) const {
  DeltaWindow one;
  for (const GroupView& view : delta.kv->groups) {
    one.kv.push_back({view.position, std::min<uint64_t>(view.count, 1)});
  }
  return std::max(WindowKvBytes(model, delta, one),
                  std::min(means_.limits->PayloadBytesMax(), means_.staging->max_bytes()));
}

// What goes into a table comes there layer by layer. The rest comes through staging memory: whole,
// or one part after the other.
Result<LargeAppends::Source> Appender::OpenSource(const ModelSpec& model, const Delta& delta,
                                                  const AppendOptions& options) const {
  LargeAppends::Source source;
  if (!IsOnGpu(delta)) return source;
  CAIRN_ASSIGN_OR_RETURN(source.gpu, means_.gpus->Open(model, *delta.kv, options.gpu_ready));
  source.arrival.arrived = [gpu = source.gpu] { return gpu->ready().Reached(); };
  source.arrival.await = [gpu = source.gpu](uint64_t deadline_ns,
                                            const std::function<bool()>& wanted) {
    return gpu->ready().Await(deadline_ns, wanted);
  };
  if (means_.limits->IsIngested(model, delta)) return source;
  const uint64_t bytes = WindowKvBytes(model, delta, DeltaWindow::Whole(delta));
  CAIRN_ASSIGN_OR_RETURN(
      source.staged,
      StagedWindow::Make(means_.staging, std::min(bytes, StagedBytes(model, delta))));
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

// A window of positions after the other comes to the host, and is filled from there, whatever of it
// is there already.
Result<uint64_t> Appender::FillFromGpu(BranchId id, const Delta& delta, const ModelSpec& model,
                                       const AppendOptions& options, uint64_t deadline_ns) {
  CAIRN_ASSIGN_OR_RETURN(const auto gpu, means_.gpus->Open(model, *delta.kv, options.gpu_ready));
  CAIRN_RETURN_IF_ERROR(gpu->ready().Await(deadline_ns, nullptr));
  std::shared_ptr<StagedWindow> staged;
  uint64_t sequence = 0;
  for (size_t i = 0; i < delta.kv->groups.size(); ++i) {
    const GroupView& view = delta.kv->groups[i];
    const uint64_t position_bytes = KvLayoutBytes(model.groups[view.group], 1);
    const uint64_t positions =
        std::max<uint64_t>(1, means_.limits->PayloadBytesMax() / position_bytes);
    DeltaWindow window;
    window.kv.resize(delta.kv->groups.size());
    for (uint64_t at = view.position; at < view.position + view.count;) {
      window.kv[i] = {at, std::min(positions, view.position + view.count - at)};
      const uint64_t bytes = WindowKvBytes(model, delta, window);
      if (staged == nullptr || staged->bytes() < bytes) {
        staged = nullptr;
        CAIRN_ASSIGN_OR_RETURN(staged, StagedWindow::Make(means_.staging, bytes));
      }
      CAIRN_RETURN_IF_ERROR(staged->Gather(*gpu, model, delta, window));
      CAIRN_ASSIGN_OR_RETURN(sequence,
                             FillView(id, staged->delta(), i, model, options, deadline_ns));
      at += window.kv[i].count;
    }
  }
  return sequence;
}

}  // namespace cairn::engine
