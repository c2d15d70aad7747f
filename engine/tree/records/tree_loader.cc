// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/records/tree_loader.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/tree/memory/liveness.h"
#include "engine/tree/records/tree_intake.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

namespace {

class Loader {
 public:
  Loader(Tree* tree, std::unique_lock<std::mutex>* lock) : tree_(tree), lock_(lock) {}

  // Goes over everything that is needed until one pass finds all of it: while the lock was
  // released, entries found earlier may have been trimmed again.
  Status Run(const TreeNeeds& needs) {
    do {
      missed_ = false;
      for (const uint64_t branch : needs.branches) {
        while (IsUnknown(branch, &Tree::KnowsHead)) CAIRN_RETURN_IF_ERROR(LoadBranch(branch));
      }
      for (const uint64_t node : needs.nodes) {
        while (IsUnknown(node, &Tree::KnowsNode)) CAIRN_RETURN_IF_ERROR(LoadPath(node).status());
      }
      CAIRN_RETURN_IF_ERROR(LoadNames(needs.names));
      for (const Name& name : needs.names) {
        while (IsUnknownNamespace(name.first)) {
          CAIRN_RETURN_IF_ERROR(LoadNamespace(name.first).status());
        }
        while (IsUnknown(name)) CAIRN_RETURN_IF_ERROR(LoadName(name.first, name.second));
      }
    } while (missed_);
    return Status::Ok();
  }

 private:
  using Name = std::pair<std::string_view, std::string_view>;

  // Ids are never reused, so an id that the index lacks will never exist.
  bool IsUnknown(uint64_t id, bool (Tree::*knows)(uint64_t) const) {
    if (id == 0 || (tree_->*knows)(id) || absent_.contains(id)) return false;
    return Miss();
  }

  bool IsUnknown(const Name& name) {
    if (name.second.empty() || tree_->FindHead(name.first, name.second) != nullptr) return false;
    ForgetOutdated();
    return !free_names_.contains(name) && Miss();
  }

  bool IsUnknownNamespace(std::string_view ns) {
    if (tree_->sums().unloaded() == 0 || tree_->FindNamespace(ns) != nullptr) return false;
    ForgetOutdated();
    return !new_namespaces_.contains(ns) && Miss();
  }

  void ForgetOutdated() {
    if (!Outdated()) return;
    free_names_.clear();
    new_namespaces_.clear();
  }

  // The index must be asked, if there is one.
  bool Miss() {
    ForgetOutdated();
    generation_ = tree_->generation();
    if (tree_->index() == nullptr) return false;
    missed_ = true;
    return true;
  }

  // Runs `read` without the lock.
  template <typename Read>
  auto Unlocked(const Read& read) {
    const std::shared_ptr<sstable::LsmIndex> index = tree_->index();
    lock_->unlock();
    struct Relock {
      std::unique_lock<std::mutex>* lock;
      ~Relock() { lock->lock(); }
    } relock{lock_};
    return read(*index);
  }
  bool Outdated() const { return generation_ != tree_->generation(); }

  Status LoadBranch(uint64_t id) {
    CAIRN_ASSIGN_OR_RETURN(auto head, Unlocked([id](sstable::LsmIndex& index) {
                             return TreeRecords::ReadHead(index, id);
                           }));
    if (Outdated() || tree_->KnowsHead(id)) return Status::Ok();
    if (!head.has_value()) {
      absent_.insert(id);
      return Status::Ok();
    }
    return InsertBranch(std::move(*head));
  }

  Status LoadName(std::string_view ns, std::string_view name) {
    CAIRN_ASSIGN_OR_RETURN(auto head, Unlocked([&](sstable::LsmIndex& index) {
                             return TreeRecords::ReadNamed(index, ns, name);
                           }));
    if (Outdated()) return Status::Ok();
    return InsertNamed({ns, name}, std::move(head));
  }

  // Reads many names at once, and the heads behind them. LoadName asks again for those that changed
  // meanwhile.
  Status LoadNames(const std::vector<Name>& names) {
    std::vector<Name> unknown;
    for (const Name& name : names) {
      if (IsUnknown(name)) unknown.push_back(name);
    }
    if (unknown.size() < 2) return Status::Ok();
    CAIRN_ASSIGN_OR_RETURN(
        auto heads,
        Unlocked([&](sstable::LsmIndex& index) -> Result<std::vector<std::optional<Head>>> {
          CAIRN_ASSIGN_OR_RETURN(auto found, TreeRecords::ReadNamed(index, unknown));
          TreeRecords::WarmNodes(index, found);
          return found;
        }));
    for (size_t i = 0; i < unknown.size() && !Outdated(); ++i) {
      CAIRN_RETURN_IF_ERROR(InsertNamed(unknown[i], std::move(heads[i])));
    }
    return Status::Ok();
  }

  // Takes in the index's answer for a name, at this generation.
  Status InsertNamed(const Name& name, std::optional<Head> head) {
    // Memory knows better where that branch is now: it was renamed or dropped, or another thread
    // loaded it meanwhile; then it has the name, even if it was trimmed again.
    if (!head.has_value() || tree_->KnowsHead(head->id)) {
      if (tree_->FindHead(name.first, name.second) == nullptr) free_names_.insert(name);
      return Status::Ok();
    }
    return InsertBranch(std::move(*head));
  }

  Status InsertBranch(Head head) {
    CAIRN_ASSIGN_OR_RETURN(bool whole, LoadNamespace(head.ns));
    if (whole) {
      CAIRN_ASSIGN_OR_RETURN(whole, LoadPath(head.node));
    }
    return whole ? InsertHead(tree_, std::move(head)) : Status::Ok();
  }

  // Afterwards it is in memory, if the index has it, until the generation changes. False: look
  // again.
  Result<bool> LoadNamespace(std::string_view ns) {
    if (tree_->sums().unloaded() == 0 || tree_->FindNamespace(ns) != nullptr) return true;
    CAIRN_ASSIGN_OR_RETURN(const auto use, Unlocked([ns](sstable::LsmIndex& index) {
                             return TreeRecords::ReadNamespace(index, ns);
                           }));
    if (Outdated()) return false;
    if (tree_->FindNamespace(ns) != nullptr) return true;  // Another thread was faster.
    if (use.has_value()) {
      tree_->sums().Load(std::string(ns), *use);
    } else {
      new_namespaces_.insert(std::string(ns));
    }
    return true;
  }

  // Loads a node and those above it, up to one in memory. False: look again.
  Result<bool> LoadPath(uint64_t id) {
    std::vector<std::unique_ptr<Node>> path;
    uint64_t marked = 0;
    size_t mark_at = 1;
    for (uint64_t next = id; next != 0 && !tree_->KnowsNode(next);) {
      CAIRN_ASSIGN_OR_RETURN(auto node, Unlocked([next](sstable::LsmIndex& index) {
                               return TreeRecords::ReadNode(index, next);
                             }));
      if (Outdated()) return false;
      if (node == nullptr && !path.empty()) {
        return Status(StatusCode::kCorruption,
                      "the index: node " + std::to_string(next) + ", the parent of node " +
                          std::to_string(path.back()->id) + ", is missing");
      }
      if (node == nullptr) {
        absent_.insert(next);
        return true;
      }
      CAIRN_ASSIGN_OR_RETURN(const bool has_namespace, LoadNamespace(node->ns));
      if (!has_namespace) return false;
      next = node->parent;
      path.push_back(std::move(node));
      // Detects a cycle: within three times its length it comes back to a marked node (R. P. Brent,
      // BIT 20, 1980).
      if (next != 0 && next == marked) {
        return Status(StatusCode::kCorruption,
                      "the index: node " + std::to_string(next) + " is above itself");
      }
      if (path.size() == mark_at) {
        marked = path.back()->id;
        mark_at *= 2;
      }
    }
    while (!path.empty()) {
      CAIRN_RETURN_IF_ERROR(InsertNode(tree_, std::move(path.back())));
      path.pop_back();
    }
    return true;
  }

  Tree* const tree_;
  std::unique_lock<std::mutex>* const lock_;
  uint64_t generation_ = UINT64_MAX;
  std::set<uint64_t> absent_;
  std::set<Name> free_names_;                          // At this generation.
  std::set<std::string, std::less<>> new_namespaces_;  // As above.
  bool missed_ = false;                                // Something, in this pass.
};

}  // namespace

Status LoadNeeds(Tree* tree, std::unique_lock<std::mutex>* lock, const TreeNeeds& needs) {
  while (true) {
    CAIRN_RETURN_IF_ERROR(Loader(tree, lock).Run(needs));
    if (!CAIRN_KEPT(kLiveDecided) || !needs.decided || tree->leftovers().undecided().empty()) {
      return Status::Ok();
    }
    CAIRN_RETURN_IF_ERROR(DecideAll(tree, lock));  // Releases the lock at times.
  }
}

TreeNeeds NeedsOf(const Op& op) {
  TreeNeeds needs;
  const bool names_namespace =
      op.kind == OpKind::kCreate || op.kind == OpKind::kFork || op.kind == OpKind::kNamespace;
  if (names_namespace) needs.names = {{op.ns, ""}};
  switch (op.kind) {
    case OpKind::kFork:
      if (op.source_node != 0) {
        needs.nodes = {op.source_node};
      } else {
        needs.branches = {op.other};
      }
      break;
    case OpKind::kAppend:
    case OpKind::kRewind:
    case OpKind::kRename:
    case OpKind::kEvict:
    case OpKind::kFill:
    case OpKind::kKeep:
    case OpKind::kDrop: needs.branches = {op.branch}; break;
    case OpKind::kSeal:
      for (const SealedRange& range : op.sealed) needs.nodes.push_back(range.node);
      break;
    case OpKind::kJoin:
    case OpKind::kDerive:
    case OpKind::kTrim: needs.nodes = {op.node}; break;
    case OpKind::kModel:
    case OpKind::kCreate:
    case OpKind::kNamespace:
    case OpKind::kPart:
    case OpKind::kBatch: break;
  }
  return needs;
}

Status LoadFarthest(Tree* tree, std::unique_lock<std::mutex>* lock, uint64_t id) {
  while (true) {
    const Node* const node = tree->FindNode(id);
    if (node == nullptr || node->farthest() != nullptr || node->knows_all_refs()) {
      return Status::Ok();
    }
    const uint64_t generation = tree->generation();
    const Ref below = node->refs_from;
    const std::shared_ptr<sstable::LsmIndex> index = tree->index();
    std::vector<Ref> refs;
    lock->unlock();
    const auto from = TreeRecords::ReadRefs(*index, id, below, &refs);
    lock->lock();
    if (!from.ok()) return from.status();
    if (generation == tree->generation()) InsertRefs(tree, id, refs, *from);
  }
}

namespace {

// A node that is still needed, while a join in the log took its parent away: the join is corrupt.
Status CheckPath(const Tree& tree, uint64_t id) {
  const Node* node = tree.FindNode(id);
  if (node == nullptr || node->unneeded()) return Status::Ok();
  while (node != nullptr && node->parent != 0) node = tree.FindNode(node->parent);
  return node != nullptr
             ? Status::Ok()
             : Status(StatusCode::kCorruption, "the log: node " + std::to_string(id) +
                                                   " is needed, but what is above it was joined");
}

}  // namespace

Status DecideAll(Tree* tree, std::unique_lock<std::mutex>* lock) {
  while (!tree->leftovers().undecided().empty()) {
    const uint64_t id = tree->leftovers().undecided().front();
    const Node* const node = tree->FindNode(id);
    CAIRN_CHECK(node != nullptr);  // Kept in memory until it is decided.
    if (node->unneeded() && !node->knows_all_refs()) {
      CAIRN_RETURN_IF_ERROR(LoadFarthest(tree, lock, id));
      CAIRN_RETURN_IF_ERROR(CheckPath(*tree, id));
      continue;  // The first may have changed by now.
    }
    DecideFirst(tree);
  }
  return Status::Ok();
}

}  // namespace cairn::engine
