// SPDX-License-Identifier: Apache-2.0
#include "engine/space/trim.h"

#include "base/core/check.h"
#include "engine/space/used_nodes.h"
#include "engine/tree/decisions.h"
#include "engine/tree/liveness.h"
#include "engine/tree/tree_loader.h"

namespace cairn::engine {

using Lock = Committer::Lock;

Status TrimNodes(const SpaceMeans& means, IndexFlusher* flusher) {
  Tree& tree = means.tree();
  while (true) {
    CAIRN_RETURN_IF_ERROR(flusher->FlushTreeIfDue());
    CAIRN_RETURN_IF_ERROR(means.rate_limiter->GoOn());
    UsedNodes used(means.committer);
    uint64_t node = 0;
    {
      Lock lock(means.mutex());
      CAIRN_RETURN_IF_ERROR(DecideAll(&tree, &lock));
      node = AnyUntrimmed(tree);
      if (node == 0) return Status::Ok();
      CAIRN_RETURN_IF_ERROR(
          means.access->Load({.branches = {}, .nodes = {node}, .names = {}}, &lock));
      if (tree.FindNode(node) != nullptr) {
        CAIRN_RETURN_IF_ERROR(LoadFarthest(&tree, &lock, node));
        if (!tree.KnowsNode(node)) continue;  // Forgotten meanwhile.
      }
      if (SettleUntrimmed(&tree, node)) continue;
      used.Add(node);  // If it were read again, memory might know less of it.
    }
    const auto trimmed = means.host->Change(
        {.branches = {}, .nodes = {node}, .names = {}, .decided = true},
        [node](const Tree& now) { return ResolveTrim(now, node); }, wal::Log::Purpose::kRelease);
    means.counters->cut_nodes.fetch_add(trimmed.ok() ? 1 : 0, std::memory_order_relaxed);
    const StatusCode code = trimmed.status().code();
    if (code == StatusCode::kNoSpace) return Status::Ok();
    if (!trimmed.ok() && code != StatusCode::kNotFound)
      return trimmed.status();  // Another thread trimmed it.
  }
}

}  // namespace cairn::engine
