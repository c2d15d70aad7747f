// SPDX-License-Identifier: Apache-2.0
//
// Changes to the tree that carry no payload of their own: one op each. Batches of ops are in
// write_batch.h.
//
// Thread-safe. No lock may be held around the calls. Without room in the log data waits for what is
// evicted, if that is allowed, and a release for what others released. Errors: those of Store and
// Branch; a change that is refused leaves no trace. A call returns when its change is as durable as
// it asked for; a crash costs changes that were not that far, the youngest first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cairn/branch.h"
#include "cairn/keep.h"
#include "cairn/model.h"
#include "engine/commit/joined_appends.h"
#include "engine/commit/write_means.h"
#include "engine/tree/tree_loader.h"

namespace cairn::engine {

class Changes {
 public:
  using Resolve = std::function<Result<Op>(const Tree&)>;

  Changes(const WriteMeans& means, JoinedAppends* joined) : means_(means), joined_(joined) {}
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
  // What branches and namespaces are told to keep (cairn/keep.h).
  Status SetKeep(BranchId id, const Keep& keep, Durability durability);
  Status SetNamespace(const std::string& ns, const NamespacePolicy& policy, Durability durability);
  // Of any, those of objects included (tree/reserved_names.h), which the calls above refuse.
  Status SetPolicy(const std::string& ns, const NamespacePolicy& policy, Durability durability);

  // From now on the node names `table`, which must be durable: it holds what was computed of the
  // path up to this position (tree/derive.cc). It takes the place of a table of the same kind
  // there.
  Status NameDerived(NodeId node, uint64_t position, uint32_t kind, const OpTable& table);
  // The node names this table no more. kNotFound: it did not; another one may be there by now.
  Status DropDerived(NodeId node, uint64_t position, uint32_t kind, uint64_t table);

  // Of the background's own: in the log, but not waited for there. It waits for no room.
  Result<Op> MakeInBackground(const TreeNeeds& needs, const Resolve& resolve,
                              wal::Log::Purpose purpose) {
    return Make(needs, resolve, Durability::kMemory, purpose, /*waits_for_room=*/false);
  }

 private:
  // The op that `resolve` decides, once it is as durable as that.
  Result<Op> Make(const TreeNeeds& needs, const Resolve& resolve, Durability durability,
                  wal::Log::Purpose purpose, bool waits_for_room = true);

  const WriteMeans& means_;
  JoinedAppends* const joined_;
};

}  // namespace cairn::engine
