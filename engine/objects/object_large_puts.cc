// SPDX-License-Identifier: Apache-2.0
//
// Puts that use several records: first the bytes, to a branch without a name, then the name. A
// cancellation takes effect between these steps.
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/objects/object_change.h"
#include "engine/objects/object_fate.h"
#include "engine/objects/object_puts.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

void ObjectPuts::RunLarge(const Into& into, Put* put, const Ended& ended) {
  Result<Outcome> outcome = CatchBadAlloc([&] { return PutLarge(into, *put); });
  put->outcome = outcome.ok() ? std::move(*outcome) : Outcome{.status = outcome.status()};
  End(put, ended);
}

Result<ObjectPuts::Outcome> ObjectPuts::PutLarge(const Into& into, const Put& put) {
  if (put.CancelRequested()) return Cancelled();
  // Nothing is written if the existing object would be kept.
  {
    Committer::Lock lock(deps_.mutex());
    CAIRN_ASSIGN_OR_RETURN(const Head* there, deps_.access->LoadNamed(into.space, put.name, &lock));
    const Fate fate = FateOf(there, into.model, into.options.if_present);
    if (fate == Fate::kKept) return Outcome{.sequence = deps_.log->last_reserved_sequence()};
    if (fate == Fate::kRefused) return OfAnotherClass(deps_.tree(), *there);
  }
  std::list<uint64_t> unnamed(1);  // Noting it as one to drop takes no memory.
  uint64_t& branch = unnamed.front();
  ObjectChange create(
      deps_, {},
      [&](const Tree& tree) -> Result<std::vector<Op>> {
        CAIRN_ASSIGN_OR_RETURN(Op op, ResolveCreate(tree, static_cast<uint64_t>(into.model), "",
                                                    into.space, {.pinned = true}));
        branch = op.branch;
        return std::vector<Op>{std::move(op)};
      },
      wal::Log::Purpose::kData);
  CAIRN_RETURN_IF_ERROR(create.Run(into.deadline_ns).status());
  Result<Outcome> named = CatchBadAlloc([&] { return Fill(into, put, branch); });
  if (!named.ok() || !named->stored) DropUnnamed(std::move(unnamed));
  return named;
}

Result<ObjectPuts::Outcome> ObjectPuts::Fill(const Into& into, const Put& put, uint64_t branch) {
  if (put.CancelRequested()) return Cancelled();
  AppendOptions options;
  options.durability = Durability::kMemory;  // The record with the name is waited for.
  options.expected_length = 0;
  options.timeout_ns = TimeLeft(deps_, into.deadline_ns);
  CAIRN_RETURN_IF_ERROR(appender_.AppendSync(BranchId{branch}, put.rows.delta(), options).status());
  return GiveName(into, put, branch);
}

void ObjectPuts::DropUnnamed(std::list<uint64_t> branches) {
  for (auto at = branches.begin(); at != branches.end();) {
    const Result<uint64_t> dropped = CatchBadAlloc([&] {
      ObjectChange drop(
          deps_, {.branches = {*at}, .nodes = {}, .names = {}},
          [&](const Tree& tree) -> Result<std::vector<Op>> {
            const Head* const own = tree.FindHead(*at);
            if (own == nullptr || !own->name.empty()) return std::vector<Op>();
            return std::vector<Op>{DropOf(*own)};
          },
          wal::Log::Purpose::kRelease);
      return drop.Run(io::kNoDeadline);
    });
    at = dropped.ok() ? branches.erase(at) : std::next(at);
  }
  const MutexLock lock(&mutex_);
  left_.splice(left_.end(), branches);
}

void ObjectPuts::DropLeft() {
  std::list<uint64_t> left;
  {
    const MutexLock lock(&mutex_);
    left.swap(left_);
  }
  if (!left.empty()) DropUnnamed(std::move(left));
}

Result<ObjectPuts::Outcome> ObjectPuts::GiveName(const Into& into, const Put& put,
                                                 uint64_t branch) {
  Outcome outcome;
  ObjectChange name(
      deps_, {.branches = {branch}, .nodes = {}, .names = {{into.space, put.name}}},
      [&](const Tree& tree) -> Result<std::vector<Op>> {
        if (put.CancelRequested()) return Cancelled();
        std::vector<Op> ops;
        const Head* const there = tree.FindHead(into.space, put.name);
        const Fate fate = FateOf(there, into.model, into.options.if_present);
        outcome.stored = IsStored(fate);
        if (fate == Fate::kRefused) return OfAnotherClass(tree, *there);
        if (fate == Fate::kKept) return ops;
        if (fate == Fate::kReplaces) ops.push_back(DropOf(*there));
        Keep keep = put.keep;
        keep.pinned = into.options.pinned;
        const NamespaceUsage* const use = tree.FindNamespace(into.space);
        keep.ttl_ns =
            into.options.ttl_ns != 0 || use == nullptr ? into.options.ttl_ns : use->policy.ttl_ns;
        CAIRN_ASSIGN_OR_RETURN(ops.emplace_back(), ResolveKeep(tree, branch, keep));
        Op& rename = ops.emplace_back();  // The old object has lost the name by then.
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
