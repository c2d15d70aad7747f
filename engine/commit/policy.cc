// SPDX-License-Identifier: Apache-2.0
//
// What branches and namespaces were told to keep (cairn/keep.h), as appends meet it.
#include "base/core/check.h"
#include "base/core/text.h"
#include "engine/store_core.h"
#include "engine/tree/decisions.h"

namespace cairn {

using engine::Op;
using engine::Tree;

Status StoreCore::SetKeep(BranchId id, const Keep& keep, Durability durability) {
  return Change(
             {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {}},
             [&](const Tree& tree) { return ResolveKeep(tree, static_cast<uint64_t>(id), keep); },
             durability, wal::Log::Purpose::kRelease)
      .status();
}

Status StoreCore::SetNamespace(const std::string& ns, const NamespacePolicy& policy,
                               Durability durability) {
  return Change(
             {}, [&](const Tree&) { return engine::ResolveNamespace(ns, policy); }, durability,
             wal::Log::Purpose::kRelease)
      .status();
}

// The branch was read. For whoever will have to choose; nobody does in most stores.
void StoreCore::NoteUsed(const engine::Head& head, uint64_t now_ns) {
  const bool matters = options_.evict != Evict::kNever || head.keep != Keep() ||
                       head.use->policy != NamespacePolicy();
  if (options_.read_only || !matters) return;
  if (head.reused && now_ns < head.used_at_ns + engine::kUsedGranularityNs) return;
  tree_.NoteUsed(head.id, now_ns);
  if (space_.flusher().BecomesDue(log_->last_reserved_sequence())) space_.Kick();
}

}  // namespace cairn
