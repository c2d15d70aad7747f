// SPDX-License-Identifier: Apache-2.0
//
// Puts that go by themselves: first the bytes, to a branch without a name, then the name.
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/objects/object_change.h"
#include "engine/objects/object_fate.h"
#include "engine/objects/object_puts.h"
#include "engine/tree/decisions.h"

namespace cairn::engine {

void ObjectPuts::RunLarge(const Into& into, Put* put, const Ended& ended) {
  Result<Outcome> outcome = Guarded([&] { return PutLarge(into, *put); });
  put->outcome = outcome.ok() ? std::move(*outcome) : Outcome{.status = outcome.status()};
  End(put, ended);
}

Result<ObjectPuts::Outcome> ObjectPuts::PutLarge(const Into& into, const Put& put) {
  // Nothing is written for what would be kept.
  {
    Committer::Lock lock(means_.mutex());
    CAIRN_ASSIGN_OR_RETURN(const Head* there,
                           means_.access->LoadNamed(into.space, put.name, &lock));
    const Fate fate = FateOf(there, into.model, into.options.if_present);
    if (fate == Fate::kKept) return Outcome{.sequence = means_.log->last_reserved_sequence()};
    if (fate == Fate::kRefused) return OfAnotherClass(means_.tree(), *there);
  }
  uint64_t branch = 0;
  ObjectChange create(
      means_, {},
      [&](const Tree& tree) -> Result<std::vector<Op>> {
        CAIRN_ASSIGN_OR_RETURN(Op op, ResolveCreate(tree, static_cast<uint64_t>(into.model), "",
                                                    into.space, {.pinned = true}));
        branch = op.branch;
        return std::vector<Op>{std::move(op)};
      },
      wal::Log::Purpose::kData);
  CAIRN_RETURN_IF_ERROR(create.Run(into.deadline_ns).status());
  AppendOptions options;
  options.durability = Durability::kMemory;  // The record with the name is waited for.
  options.expected_length = 0;
  options.timeout_ns = TimeLeft(means_, into.deadline_ns);
  const auto appended = appender_.AppendSync(BranchId{branch}, put.rows.delta(), options);
  Result<Outcome> named =
      appended.ok() ? GiveName(into, put, branch) : Result<Outcome>(appended.status());
  if (named.ok() && named->stored) return named;
  ObjectChange drop(
      means_, {.branches = {branch}, .nodes = {}, .names = {}},
      [&](const Tree& tree) -> Result<std::vector<Op>> {
        const Head* const own = tree.FindHead(branch);
        return own == nullptr ? std::vector<Op>() : std::vector<Op>{DropOf(*own)};
      },
      wal::Log::Purpose::kRelease);
  static_cast<void>(drop.Run(io::kNoDeadline));  // Else the next opening sweeps it.
  return named;
}

Result<ObjectPuts::Outcome> ObjectPuts::GiveName(const Into& into, const Put& put,
                                                 uint64_t branch) {
  Outcome outcome;
  ObjectChange name(
      means_, {.branches = {branch}, .nodes = {}, .names = {{into.space, put.name}}},
      [&](const Tree& tree) -> Result<std::vector<Op>> {
        std::vector<Op> ops;
        const Head* const there = tree.FindHead(into.space, put.name);
        const Fate fate = FateOf(there, into.model, into.options.if_present);
        outcome.stored = IsStored(fate);
        if (fate == Fate::kRefused) return OfAnotherClass(tree, *there);
        if (fate == Fate::kKept) return ops;
        if (fate == Fate::kReplaces) ops.push_back(DropOf(*there));
        Keep keep = put.keep;
        keep.pinned = into.options.pinned;
        const NamespaceUse* const use = tree.FindNamespace(into.space);
        keep.ttl_ns =
            into.options.ttl_ns != 0 || use == nullptr ? into.options.ttl_ns : use->policy.ttl_ns;
        CAIRN_ASSIGN_OR_RETURN(ops.emplace_back(), ResolveKeep(tree, branch, keep));
        Op& rename = ops.emplace_back();  // What has the name has lost it by then.
        rename.kind = OpKind::kRename;
        rename.branch = branch;
        rename.name = put.name;
        return ops;
      },
      wal::Log::Purpose::kData);
  CAIRN_ASSIGN_OR_RETURN(outcome.sequence, name.Run(into.deadline_ns));
  return outcome;
}

}  // namespace cairn::engine
