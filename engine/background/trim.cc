// SPDX-License-Identifier: Apache-2.0
#include "engine/background/trim.h"

#include "base/core/check.h"
#include "engine/background/used_nodes.h"
#include "engine/tree/memory/liveness.h"
#include "engine/tree/ops/decisions.h"
#include "engine/tree/records/tree_loader.h"

namespace cairn::engine {

using Lock = Committer::Lock;

Status TrimNodes(const SpaceDeps& deps, IndexFlusher* flusher) {
  Tree& tree = deps.tree();
  while (true) {
    CAIRN_RETURN_IF_ERROR(flusher->FlushTreeIfDue());
    CAIRN_RETURN_IF_ERROR(deps.rate_limiter->GoOn());
    UsedNodes used(deps.committer);
    uint64_t node = 0;
    {
      Lock lock(deps.mutex());
      CAIRN_RETURN_IF_ERROR(DecideAll(&tree, &lock));
      node = AnyUntrimmed(tree);
      if (node == 0) return Status::Ok();
      CAIRN_RETURN_IF_ERROR(
          deps.access->Load({.branches = {}, .nodes = {node}, .names = {}}, &lock));
      if (tree.FindNode(node) != nullptr) {
        CAIRN_RETURN_IF_ERROR(LoadFarthest(&tree, &lock, node));
        if (!tree.KnowsNode(node)) continue;  // Forgotten meanwhile.
      }
      if (SettleUntrimmed(&tree, node)) continue;
      used.Add(node);  // If it were read again, memory might know less of it.
    }
    const auto trimmed = deps.callbacks->Change(
        {.branches = {}, .nodes = {node}, .names = {}, .decided = true},
        [node](const Tree& now) { return ResolveTrim(now, node); }, wal::Log::Purpose::kRelease);
    deps.counters->cut_nodes.fetch_add(trimmed.ok() ? 1 : 0, std::memory_order_relaxed);
    const StatusCode code = trimmed.status().code();
    if (code == StatusCode::kNoSpace) return Status::Ok();
    if (!trimmed.ok() && code != StatusCode::kNotFound)
      return trimmed.status();  // Another thread trimmed it.
  }
}

}  // namespace cairn::engine
