// SPDX-License-Identifier: Apache-2.0
//
// What an operation comes to: its arguments are checked against the tree, and what is left to
// decide (which node, in place or not) is decided. The result is an Op, which TreeChanges applies,
// now and in every replay. Nothing here changes the tree.
//
// The commit lock is held from the decision until the op is applied. What an operation names is in
// memory if it exists (tree_loader.h). Every failure is an operating error of the caller: kNotFound
// for a branch, model or node that is not there, kAlreadyExists for a name, kInvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tree/tree.h"

namespace cairn::engine {

// kInvalidArgument beyond so many bytes, or with a NUL. `what`: "name", "namespace".
Status CheckNameBytes(std::string_view name, uint64_t bytes_max, const char* what);

// --- Models, branches, policies (decisions.cc)
Result<Op> ResolveModel(const Tree& tree, const ModelSpec& spec);
// The op by which a model that is there gets what `spec`, which agrees with it, says and it leaves
// unset. kModelMismatch when together they make no model.
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

// --- What is derived (derive.cc)
// The op by which the node names `table`, whose number no node knows yet: it was computed of the
// path up to `position`, which must lie on the node, beyond where that begins. kNotFound else.
Result<Op> ResolveDerive(const Tree& tree, uint64_t node, uint64_t position, uint32_t kind,
                         const OpTable& table);
// The op by which the node names this table no more. kNotFound: it does not.
Result<Op> ResolveDropDerived(const Tree& tree, uint64_t node, uint64_t position, uint32_t kind,
                              uint64_t table);

// --- What the space thread decides. (ResolveSeal: seal_source.h.)
// What only this branch needs loses its KV (evict.cc). What must be known of others and is not in
// memory is added to `missing`: then it is to be decided again with that.
struct EvictNeeds {
  std::vector<uint64_t> branches, nodes;
  bool any() const { return !branches.empty() || !nodes.empty(); }
};
// At most about `ranges_max` ranges, from the leaf up, so that the op fits a record: when there are
// as many, it is to be decided again after it was applied, and goes on from there.
Result<Op> ResolveEvict(const Tree& tree, uint64_t branch, size_t ranges_max, EvictNeeds* missing);
// What the ranges of such an op hold, as NamespaceUse::bytes counts it.
uint64_t EvictedBytes(const Tree& tree, const Op& op);
// The op by which `node` takes in its parent (join.cc). kNotFound: it has none, that is needed by
// others or in use (Residency::Use), not all that needs it is in memory, or it is another
// namespace's.
Result<Op> ResolveJoin(const Tree& tree, uint64_t node);
// The op that cuts a loose node to its farthest ref (cut.cc). kNotFound: it is gone, reaches no
// farther, or memory does not know that ref.
Result<Op> ResolveCut(const Tree& tree, uint64_t node);

}  // namespace cairn::engine
