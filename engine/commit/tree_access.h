// SPDX-License-Identifier: Apache-2.0
//
// Access to the tree for reads and changes: loads what they need into memory
// (tree/records/tree_loader.h) within tree_memory_bytes; and listings, which read the index and
// leave memory as it is.
//
// Thread-safe. `lock` holds the commit lock; it may be released meanwhile, and a result is valid
// while it is held afterwards.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/options.h"
#include "engine/commit/committer.h"
#include "engine/tree/records/tree_loader.h"
#include "wal/log.h"

namespace cairn::engine {

// kPoisoned with the cause, or Ok.
Status PoisonStatusOf(const wal::Log& log);

class TreeAccess {
 public:
  using Lock = Committer::Lock;

  // Both outlive this. The options' tree_memory_bytes counts.
  TreeAccess(Committer* committer, const Options* options)
      : committer_(*committer), tree_(committer->tree()), options_(*options) {}
  TreeAccess(const TreeAccess&) = delete;
  TreeAccess& operator=(const TreeAccess&) = delete;

  // Before the first change.
  void SetLog(const wal::Log* log) { log_ = log; }

  Status Load(const TreeNeeds& needs, Lock* lock);
  // Loads nodes for a search; each is in memory then, or does not exist. With `memory_only` nothing
  // is read: kBusy if one is neither in memory nor known to be gone.
  Status LoadNodes(std::span<const uint64_t> nodes, bool memory_only, Lock* lock);
  // The branch and its path. kNotFound.
  Result<const Head*> LoadBranch(BranchId id, Lock* lock);
  // The same for a change. kPoisoned after a rollback: the caller decided on state that was undone.
  Result<const Head*> LoadToChange(BranchId id, Lock* lock);
  Status LoadToChange(const TreeNeeds& needs, Lock* lock);
  // As LoadBranch; null when there is none of that name.
  Result<const Head*> LoadNamed(std::string_view ns, std::string_view name, Lock* lock);
  // For each name of a namespace a copy of the branch that has it, or one of number 0. Asks the
  // index for all of them together, and leaves memory as it is. Takes the lock.
  Result<std::vector<Head>> ReadNamed(std::string_view ns, std::span<const std::string> names);
  // Up to `limit` branches of the namespace of `from`, in order from there on. Takes the lock.
  Result<std::vector<Head>> ReadInOrder(Tree::NameKey from, size_t limit);

 private:
  Committer& committer_;
  Tree& tree_;
  const Options& options_;
  const wal::Log* log_ = nullptr;
};

}  // namespace cairn::engine
