// SPDX-License-Identifier: Apache-2.0
#include "engine/space/cut.h"

#include "base/core/check.h"
#include "engine/space/used_nodes.h"
#include "engine/tree/decisions.h"
#include "engine/tree/liveness.h"
#include "engine/tree/tree_loader.h"

namespace cairn::engine {

using Lock = Committer::Lock;

Status CutLoose(const SpaceMeans& means, IndexFlusher* flusher) {
  Tree& tree = means.tree();
  while (true) {
    CAIRN_RETURN_IF_ERROR(flusher->DumpIfDue());
    CAIRN_RETURN_IF_ERROR(means.pacer->GoOn());
    UsedNodes used(means.committer);
    uint64_t node = 0;
    {
      Lock lock(means.mutex());
      CAIRN_RETURN_IF_ERROR(DecideAll(&tree, &lock));
      node = AnyLoose(tree);
      if (node == 0) return Status::Ok();
      CAIRN_RETURN_IF_ERROR(
          means.access->Load({.branches = {}, .nodes = {node}, .names = {}}, &lock));
      if (tree.FindNode(node) != nullptr) {
        CAIRN_RETURN_IF_ERROR(LoadFarthest(&tree, &lock, node));
        if (!tree.KnowsNode(node)) continue;  // Forgotten meanwhile.
      }
      if (SettleLoose(&tree, node)) continue;
      used.Add(node);  // If it were read again, memory might know less of it.
    }
    const auto cut = means.host->Change(
        {.branches = {}, .nodes = {node}, .names = {}, .decided = true},
        [node](const Tree& now) { return ResolveCut(now, node); }, wal::Log::Purpose::kRelease);
    means.counters->cut_nodes.fetch_add(cut.ok() ? 1 : 0, std::memory_order_relaxed);
    const StatusCode code = cut.status().code();
    if (code == StatusCode::kNoSpace) return Status::Ok();
    if (!cut.ok() && code != StatusCode::kNotFound) return cut.status();  // Another thread cut it.
  }
}

}  // namespace cairn::engine
