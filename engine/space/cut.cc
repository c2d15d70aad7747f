// SPDX-License-Identifier: Apache-2.0
//
// Nodes whose farthest branch went are cut to what the others reach (tree/cut.cc). What they lose
// is dead and comes back as all dead bytes do.
#include "engine/space/used_nodes.h"
#include "engine/store_core.h"

namespace cairn {

using engine::Tree;

// Which nodes are loose is in the index, too: what there is no room for now is cut in a later
// round, or after another opening.
Status StoreCore::CutLoose() {
  while (true) {
    CAIRN_RETURN_IF_ERROR(flusher_.DumpIfDue());
    CAIRN_RETURN_IF_ERROR(pacer_.GoOn());
    engine::UsedNodes used(&committer_);
    uint64_t node = 0;
    {
      Lock lock(mutex_);
      CAIRN_RETURN_IF_ERROR(engine::DecideAll(&tree_, &lock));
      node = tree_.AnyLoose();
      if (node == 0) return Status::Ok();
      CAIRN_RETURN_IF_ERROR(access_.Load({.branches = {}, .nodes = {node}, .names = {}}, &lock));
      if (tree_.FindNode(node) != nullptr) {
        CAIRN_RETURN_IF_ERROR(engine::LoadFarthest(&tree_, &lock, node));
        if (!tree_.KnowsNode(node)) continue;  // Forgotten meanwhile.
      }
      if (tree_.SettleLoose(node)) continue;
      used.Add(node);  // Read again it might know less.
    }
    const auto cut = Change(
        {.branches = {}, .nodes = {node}, .names = {}, .decided = true},
        [node](const Tree& tree) { return tree.ResolveCut(node); }, Durability::kMemory,
        wal::Log::Purpose::kRelease, /*waits_for_room=*/false);
    space_counters_.cut_nodes.fetch_add(cut.ok() ? 1 : 0, std::memory_order_relaxed);
    const StatusCode code = cut.status().code();
    if (code == StatusCode::kNoSpace) return Status::Ok();
    if (!cut.ok() && code != StatusCode::kNotFound) return cut.status();  // Somebody was first.
  }
}

}  // namespace cairn
