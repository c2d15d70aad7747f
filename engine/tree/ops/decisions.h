// SPDX-License-Identifier: Apache-2.0
//
// Decides what an operation does: its arguments are checked against the tree, and open choices
// (which node, in place or not) are made. The result is an Op, which TreeChanges applies, now and
// in every replay. Nothing here changes the tree.
//
// The caller holds the commit lock until the op is applied. Whatever the operation names is in
// memory if it exists (tree_loader.h). Every failure is an operating error of the caller: kNotFound
// for a missing branch, model or node, kAlreadyExists for a name, kInvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tree/memory/tree.h"

namespace cairn::engine {

// kInvalidArgument if longer than `bytes_max`, or with a NUL. `what`: "name", "namespace".
Status CheckNameBytes(std::string_view name, uint64_t bytes_max, const char* what);

// --- Models, branches, policies (decisions.cc)
Result<Op> ResolveModel(const Tree& tree, const ModelSpec& spec);
// The op that adds to a known model the settings which `spec` has and the model leaves unset.
// `spec` agrees with it otherwise. kModelMismatch: together they make no valid model.
Result<Op> ResolveKnownModel(const Tree& tree, uint64_t model, const ModelSpec& spec);
// A branch without a ttl gets that of its namespace.
Result<Op> ResolveCreate(const Tree& tree, uint64_t model, const std::string& name,
                         const std::string& ns, Keep keep = {});
Result<Op> ResolveFork(const Tree& tree, uint64_t branch, uint64_t position,
                       const std::string& name, const std::string& ns, Keep keep = {});
// The same of a node (PathStep::node), with the KV that lies on it and above it. kNotFound when
// nothing needs it any more, kInvalidArgument when the position is not on it.
Result<Op> ResolveForkOfNode(const Tree& tree, uint64_t node, uint64_t position,
                             const std::string& name, const std::string& ns, Keep keep = {});
Result<Op> ResolveRename(const Tree& tree, uint64_t branch, const std::string& name);
Result<Op> ResolveDrop(const Tree& tree, uint64_t branch);
Result<Op> ResolveKeep(const Tree& tree, uint64_t branch, const Keep& keep);
Result<Op> ResolveNamespace(const std::string& ns, const NamespacePolicy& policy);

// --- Content (decisions.cc)
// `lanes` in any order with begin and count set; each must begin at the branch's lane length, or
// beyond it where the group may have gaps.
Result<Op> ResolveAppend(const Tree& tree, uint64_t branch, std::vector<LaneRange> lanes,
                         std::vector<ContentSpan> spans);
Result<Op> ResolveRewind(const Tree& tree, uint64_t branch, uint64_t length);
// `lanes` with strips set, each within one Hole (path.h).
Result<Op> ResolveFill(const Tree& tree, uint64_t branch, std::vector<LaneRange> lanes);

// --- Derived tables (derive.cc)
// The op that names `table` on the node. No node knows that number yet. The table was computed from
// the path up to `position`, which must lie on the node, beyond its beginning; else kNotFound.
Result<Op> ResolveDerive(const Tree& tree, uint64_t node, uint64_t position, uint32_t kind,
                         const TableRef& table);
// The op that removes the name of this table from the node. kNotFound: the node does not name it.
Result<Op> ResolveDropDerived(const Tree& tree, uint64_t node, uint64_t position, uint32_t kind,
                              uint64_t table);

// --- Decisions of the space thread. (ResolveSeal: seal_source.h.)
// KV that only this branch needs is evicted (evict.cc). Branches and nodes that must be known for
// that and are not in memory are added to `missing`: load them and decide again.
struct EvictNeeds {
  std::vector<uint64_t> branches, nodes;
  bool any() const { return !branches.empty() || !nodes.empty(); }
};
// At most about `ranges_max` ranges, from the leaf up, so that the op fits a record. If it has that
// many, apply it and decide again: that goes on from there.
Result<Op> ResolveEvict(const Tree& tree, uint64_t branch, size_t ranges_max, EvictNeeds* missing);
// Bytes of the ranges of such an op, as NamespaceUsage::bytes counts them.
uint64_t EvictedBytes(const Tree& tree, const Op& op);
// The op by which `node` takes in its parent (join.cc). kNotFound: it has no parent, the parent is
// needed by others, in use (Residency::Use) or of another namespace, or memory does not have
// everything that needs it.
Result<Op> ResolveJoin(const Tree& tree, uint64_t node);
// The op that trims a node to its farthest ref (trim.cc). kNotFound: it is gone, reaches no
// farther, or memory does not know that ref.
Result<Op> ResolveTrim(const Tree& tree, uint64_t node);

}  // namespace cairn::engine
