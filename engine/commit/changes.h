// SPDX-License-Identifier: Apache-2.0
//
// Changes to the tree that carry no payload of their own: one op each. Batches of ops are in
// write_batch.h.
//
// Thread-safe; the caller holds no lock. If the log has no room, data waits for eviction, if that
// is allowed, and a release waits for room that others released. Errors: those of Store and Branch;
// a refused change leaves no trace. A call returns when its change is as durable as it asked for; a
// crash loses changes that were not that far, the youngest first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cairn/branch_types.h"
#include "cairn/keep.h"
#include "cairn/model.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/write_deps.h"
#include "engine/tree/records/tree_loader.h"

namespace cairn::engine {

class Changes {
 public:
  using Resolve = std::function<Result<Op>(const Tree&)>;

  Changes(const WriteDeps& deps, CoalescedAppends* coalesced)
      : deps_(deps), coalesced_(coalesced) {}
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;

  Result<ModelId> RegisterModel(const ModelSpec& spec, Durability durability);
  Result<BranchId> Create(ModelId model, const BranchOptions& options);
  Result<BranchId> Fork(BranchId id, uint64_t position, const BranchOptions& options);
  // The first `position` tokens of the path that ends with all of a node (ResolveForkOfNode).
  Result<BranchId> ForkNode(NodeId node, uint64_t position, const BranchOptions& options);
  Status Rewind(BranchId id, uint64_t length, Durability durability);
  Status Rename(BranchId id, const std::string& name, Durability durability);
  Status Drop(BranchId id, Durability durability);
  // Sets retention of branches and namespaces (cairn/keep.h).
  Status SetKeep(BranchId id, const Keep& keep, Durability durability);
  Status SetNamespace(const std::string& ns, const NamespacePolicy& policy, Durability durability);
  // For any namespace, also those of objects (tree/memory/reserved_names.h), which the calls above
  // refuse.
  Status SetPolicy(const std::string& ns, const NamespacePolicy& policy, Durability durability);

  // From now on the node names `table`, which must be durable: it was computed from the
  // path up to this position (tree/ops/derive.cc). It replaces a table of the same kind
  // there.
  Status NameDerived(NodeId node, uint64_t position, uint32_t kind, const TableRef& table);
  // Removes this table's name from the node. kNotFound: the node does not name it; it may have a
  // newer one.
  Status DropDerived(NodeId node, uint64_t position, uint32_t kind, uint64_t table);

  // For changes by the background: in the log on return, but not yet durable. Does not wait for
  // room.
  Result<Op> MakeInBackground(const TreeNeeds& needs, const Resolve& resolve,
                              wal::Log::Purpose purpose) {
    return Make(needs, resolve, Durability::kMemory, purpose, /*waits_for_room=*/false);
  }

 private:
  // The op that `resolve` decided, once it is durable at that level.
  Result<Op> Make(const TreeNeeds& needs, const Resolve& resolve, Durability durability,
                  wal::Log::Purpose purpose, bool waits_for_room = true);

  const WriteDeps& deps_;
  CoalescedAppends* const coalesced_;
};

}  // namespace cairn::engine
