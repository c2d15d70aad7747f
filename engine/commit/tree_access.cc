// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/tree_access.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/core/check.h"
#include "engine/config/constants.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

namespace {

Tree::NameKey KeyOf(const Head& head) { return {head.ns, head.name, head.id}; }

}  // namespace

Status PoisonStatusOf(const wal::Log& log) {
  const Status cause = log.poisoned();
  if (cause.ok()) return cause;
  return Status(StatusCode::kPoisoned,
                "the log failed; reopen the store to write again: " + std::string(cause.message()));
}

Status TreeAccess::Load(const TreeNeeds& needs, Lock* lock) {
  tree_.residency().Trim(options_.tree_memory_bytes, kTrimSteps);
  return LoadNeeds(&tree_, lock, needs);
}

Status TreeAccess::LoadNodes(std::span<const uint64_t> nodes, bool memory_only, Lock* lock) {
  if (!memory_only) {
    TreeNeeds needs;
    needs.nodes.assign(nodes.begin(), nodes.end());
    return Load(needs, lock);
  }
  for (const uint64_t node : nodes) {
    if (!tree_.KnowsNode(node)) return Status(StatusCode::kBusy, "a node is not in memory");
  }
  return Status::Ok();
}

Result<const Head*> TreeAccess::LoadBranch(BranchId id, Lock* lock) {
  const auto branch = static_cast<uint64_t>(id);
  const Head* head = tree_.FindHead(branch);
  if (head == nullptr && !tree_.KnowsHead(branch)) {
    CAIRN_RETURN_IF_ERROR(Load({.branches = {branch}, .nodes = {}, .names = {}}, lock));
    head = tree_.FindHead(branch);
  }
  if (head != nullptr) return head;
  return NoBranch(branch);
}

Result<const Head*> TreeAccess::LoadToChange(BranchId id, Lock* lock) {
  auto head = LoadBranch(id, lock);
  if (committer_.rolled_back()) return PoisonStatusOf(*log_);
  return head;
}

Status TreeAccess::LoadToChange(const TreeNeeds& needs, Lock* lock) {
  Status status = Load(needs, lock);
  return committer_.rolled_back() ? PoisonStatusOf(*log_) : status;
}

Result<const Head*> TreeAccess::LoadNamed(std::string_view ns, std::string_view name, Lock* lock) {
  const Head* head = tree_.FindHead(ns, name);
  if (head != nullptr) return head;
  CAIRN_RETURN_IF_ERROR(Load({.branches = {}, .nodes = {}, .names = {{ns, name}}}, lock));
  return tree_.FindHead(ns, name);
}

Result<std::vector<Head>> TreeAccess::ReadNamed(std::string_view ns,
                                                std::span<const std::string> names) {
  while (true) {
    std::vector<Head> heads(names.size());
    std::vector<size_t> unknown;
    std::vector<TreeRecords::Name> asked;
    std::shared_ptr<sstable::LsmIndex> index;
    uint64_t generation = 0;
    {
      std::lock_guard lock(committer_.mutex());
      index = tree_.index();
      generation = tree_.generation();
      for (size_t i = 0; i < names.size(); ++i) {
        if (const Head* const head = tree_.FindHead(ns, names[i]); head != nullptr) {
          heads[i] = *head;
        } else {
          unknown.push_back(i);
          asked.emplace_back(ns, names[i]);
        }
      }
    }
    if (index == nullptr || asked.empty()) return heads;
    CAIRN_ASSIGN_OR_RETURN(auto found, TreeRecords::ReadNamed(*index, asked));
    std::lock_guard lock(committer_.mutex());
    if (generation != tree_.generation()) continue;
    for (size_t i = 0; i < unknown.size(); ++i) {
      if (const Head* const head = tree_.FindHead(ns, names[unknown[i]]); head != nullptr) {
        heads[unknown[i]] = *head;
      } else if (found[i].has_value() && !tree_.KnowsHead(found[i]->id)) {
        heads[unknown[i]] = std::move(*found[i]);
      }
    }
    return heads;
  }
}

// Reads the index page by page and merges each with the heads that memory has of that stretch: for
// a branch that memory knows, memory is right.
Result<std::vector<Head>> TreeAccess::ReadInOrder(Tree::NameKey from, size_t limit) {
  std::vector<Head> heads;
  while (true) {
    const size_t wanted = std::min(limit - heads.size(), kNamesAtOnce);
    std::shared_ptr<sstable::LsmIndex> index;
    uint64_t generation = 0;
    {
      std::lock_guard lock(committer_.mutex());
      index = tree_.index();
      generation = tree_.generation();
    }
    std::vector<Head> page;
    if (index != nullptr) {
      CAIRN_ASSIGN_OR_RETURN(page, TreeRecords::ReadInOrder(*index, from, wanted));
    }
    bool last = page.size() < wanted;
    Tree::NameKey upto = last ? Tree::NameKey() : KeyOf(page.back());
    {
      std::lock_guard lock(committer_.mutex());
      if (generation != tree_.generation()) continue;
      std::erase_if(page, [&](const Head& head) { return tree_.KnowsHead(head.id); });
      const size_t of_index = page.size();
      bool more_in_memory = false;
      tree_.VisitNames(from, [&](const Tree::NameKey& key) {
        if (std::get<0>(key) != std::get<0>(from)) return false;
        more_in_memory = page.size() - of_index == wanted;
        if ((!last && upto < key) || more_in_memory) return false;
        page.push_back(*tree_.FindHead(std::get<2>(key)));
        return true;
      });
      // If so, the stretch ends where reading memory stopped.
      if (more_in_memory && (last || KeyOf(page.back()) < upto)) {
        upto = KeyOf(page.back());
        last = false;
        std::erase_if(page, [&](const Head& head) { return upto < KeyOf(head); });
      }
    }
    std::sort(page.begin(), page.end(),
              [](const Head& a, const Head& b) { return KeyOf(a) < KeyOf(b); });
    for (Head& head : page) {
      if (heads.size() < limit) heads.push_back(std::move(head));
    }
    if (last || heads.size() == limit) return heads;
    from = {std::get<0>(upto), std::get<1>(upto), std::get<2>(upto) + 1};
  }
}

}  // namespace cairn::engine
