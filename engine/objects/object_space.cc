// SPDX-License-Identifier: Apache-2.0
#include "engine/objects/object_space.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "engine/find/constants.h"
#include "engine/objects/object_change.h"
#include "engine/objects/object_fate.h"
#include "engine/objects/object_lease.h"
#include "engine/objects/object_names.h"
#include "engine/tree/memory/reserved_names.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

namespace {

Status NoObject(std::string_view what) {
  return Status(StatusCode::kNotFound, std::string(what) + ": no object has this key");
}

Status CheckSpace(std::string_view ns) { return CheckNameBytes(ns, kMaxNameBytes, "namespace"); }

// Asks again about the keys whose answers `wanted` picks, at most `at_once` at a time: ask(names,
// tell), which calls tell(index of the name, whether it exists).
template <typename Wanted, typename Ask>
Status AskAnew(std::span<const std::string_view> keys, std::span<ObjectDirectory::Answer> answers,
               size_t at_once, const Wanted& wanted, const Ask& ask) {
  using Answer = ObjectDirectory::Answer;
  std::vector<std::string> names;
  std::vector<size_t> places;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (wanted(answers[i])) {
      names.push_back(NameOfKey(keys[i]));
      places.push_back(i);
    }
    if (names.empty() || (names.size() < at_once && i + 1 < keys.size())) continue;
    CAIRN_RETURN_IF_ERROR(ask(std::span<const std::string>(names), [&](size_t name, bool there) {
      answers[places[name]] = there ? Answer::kPresent : Answer::kAbsent;
    }));
    names.clear();
    places.clear();
  }
  return Status::Ok();
}

}  // namespace

Status ObjectSpace::CheckKeys(std::span<const std::string_view> keys) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(CheckKey(keys[i]).WithContext("key " + std::to_string(i)));
  }
  return Status::Ok();
}

Result<ObjectClassId> ObjectSpace::RegisterClass(const ObjectClass& object_class) {
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec model, ModelOf(object_class));
  CAIRN_ASSIGN_OR_RETURN(const ModelId id, changes_.RegisterModel(model, Durability::kPower));
  return ObjectClassId{static_cast<uint64_t>(id)};
}

// ---------------------------------------------------------------- lookups

Result<ObjectsFound> ObjectSpace::Exists(std::span<const std::string_view> keys,
                                         std::string_view ns, uint64_t lease_ns) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckSpace(ns));
  CAIRN_RETURN_IF_ERROR(CheckKeys(keys));
  std::vector<ObjectDirectory::Answer> answers(keys.size());
  directory_.Look(ns, keys, answers);
  ObjectsFound found;
  if (lease_ns != 0 && !deps_.options->read_only) {
    CAIRN_ASSIGN_OR_RETURN(found.lease, PutOnLease(ns, keys, lease_ns, answers));
  } else {
    CAIRN_RETURN_IF_ERROR(AskIndex(ns, keys, answers));
  }
  found.bits.resize((keys.size() + 63) / 64);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (answers[i] != ObjectDirectory::Answer::kPresent) continue;
    found.bits[i / 64] |= uint64_t{1} << (i % 64);
    if (found.leading == i) ++found.leading;
    ++found.count;
  }
  return found;
}

// Asks the index about keys that the directory does not know.
Status ObjectSpace::AskIndex(std::string_view ns, std::span<const std::string_view> keys,
                             std::span<ObjectDirectory::Answer> answers) {
  const std::string space = SpaceOf(ns);
  const auto unknown = [](auto answer) { return answer == ObjectDirectory::Answer::kUnknown; };
  return AskAnew(keys, answers, kObjectsAtOnce, unknown,
                 [&](std::span<const std::string> names, const auto& tell) -> Status {
                   counters_.unknown.fetch_add(names.size(), std::memory_order_relaxed);
                   CAIRN_ASSIGN_OR_RETURN(const std::vector<Head> heads,
                                          deps_.access->ReadNamed(space, names));
                   for (size_t i = 0; i < heads.size(); ++i) {
                     tell(i, heads[i].id != 0 && IsWhole(heads[i]));
                   }
                   return Status::Ok();
                 });
}

// Leases the objects that may exist according to the answers. The tree decides, and corrects the
// answers.
Result<LeaseId> ObjectSpace::PutOnLease(std::string_view ns, std::span<const std::string_view> keys,
                                        uint64_t lease_ns,
                                        std::span<ObjectDirectory::Answer> answers) {
  const std::string space = SpaceOf(ns);
  ObjectLease lease(deps_, &leases_, lease_ns);
  const auto possible = [](auto answer) { return answer != ObjectDirectory::Answer::kAbsent; };
  CAIRN_RETURN_IF_ERROR(AskAnew(keys, answers, kLeasedAtOnce, possible,
                                [&](std::span<const std::string> names, const auto& tell) {
                                  return lease.Hold(space, names, tell);
                                }));
  return lease.Take();
}

Status ObjectSpace::Touch(std::span<const std::string_view> keys, std::string_view ns) {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckSpace(ns));
  CAIRN_RETURN_IF_ERROR(CheckKeys(keys));
  if (deps_.options->read_only)
    return Status(StatusCode::kReadOnly, "touch: the store is read only");
  directory_.Touch(ns, keys);
  return Status::Ok();
}

ObjectInfo ObjectSpace::InfoOf(const Head& head, std::string_view key,
                               const ObjectClass& object_class) {
  ObjectInfo info;
  info.key = key;
  info.object_class = object_class;
  info.pages = head.lengths[kTokenLane];
  info.bytes = info.pages * object_class.page_bytes;
  info.depth = DepthOf(head.keep.priority);
  info.pinned = head.keep.pinned;
  info.ttl_ns = head.keep.ttl_ns;
  info.put_at_ns = head.created_at_ns;
  info.used_at_ns = head.used_at_ns;
  return info;
}

Result<ObjectInfo> ObjectSpace::Stat(std::string_view key, std::string_view ns) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckSpace(ns));
  CAIRN_RETURN_IF_ERROR(CheckKey(key));
  const std::string space = SpaceOf(ns), name = NameOfKey(key);
  // An object that is gone between look-up and read may have been replaced.
  for (int look = 0; look < kLookAgainMax; ++look) {
    ObjectInfo info;
    FoundObject object;
    {
      Committer::Lock lock(deps_.mutex());
      CAIRN_ASSIGN_OR_RETURN(const Head* head, deps_.access->LoadNamed(space, name, &lock));
      if (head == nullptr || !IsWhole(*head)) return NoObject("stat");
      CAIRN_ASSIGN_OR_RETURN(const ObjectClass object_class, ClassIn(deps_.tree(), *head));
      info = InfoOf(*head, key, object_class);
      object = {head->id, head->model, info.pages, info.object_class.page_bytes, {}};
    }
    const Result<uint64_t> bytes = gets_.BytesOf(object, io::kNoDeadline);
    if (bytes.status().code() == StatusCode::kNotFound) continue;
    CAIRN_RETURN_IF_ERROR(bytes.status());
    info.bytes = *bytes;
    return info;
  }
  return Status(StatusCode::kBusy, "stat: the object was replaced again and again");
}

Result<ObjectPage> ObjectSpace::List(std::string_view ns, size_t limit, std::string_view cursor) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckSpace(ns));
  if (limit == 0) return Status(StatusCode::kInvalidArgument, "a page of no objects");
  ObjectPage page;
  Classes classes;
  // The cursor is the key of the last page's end. Unnamed branches come before all.
  Tree::NameKey from{SpaceOf(ns), std::string(1, '\x01'), 0};
  if (!cursor.empty()) {
    CAIRN_RETURN_IF_ERROR(CheckKey(cursor).WithContext("cursor"));
    from = {SpaceOf(ns), NameOfKey(cursor), UINT64_MAX};
  }
  while (page.objects.size() < limit) {
    const size_t wanted = std::min(limit - page.objects.size(), kObjectsAtOnce);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Head> heads, deps_.access->ReadInOrder(from, wanted));
    AddTo(&page, heads, &classes);
    if (heads.size() < wanted) return page;
    from = {heads.back().ns, heads.back().name, UINT64_MAX};
  }
  page.cursor = page.objects.back().key;
  return page;
}

// A branch that no put can have made has no place in a page; a get of its key reports it.
void ObjectSpace::AddTo(ObjectPage* page, std::span<const Head> heads, Classes* classes) const {
  for (const Head& head : heads) {
    KeyCapacity room;
    const auto key = KeyOfName(head.name, &room);
    if (!IsWhole(head) || !key.has_value()) continue;
    auto known = classes->find(head.model);
    if (known == classes->end()) {
      std::lock_guard lock(deps_.mutex());
      known = classes->emplace(head.model, ClassIn(deps_.tree(), head)).first;
    }
    if (known->second.ok()) page->objects.push_back(InfoOf(head, *key, *known->second));
  }
}

Result<std::vector<NamespaceInfo>> ObjectSpace::Usage() const {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  std::vector<NamespaceInfo> found;
  std::lock_guard lock(deps_.mutex());
  for (const auto& [name, use] : deps_.tree().namespaces()) {
    if (!IsReserved(name) || (use.branches == 0 && use.policy == NamespacePolicy())) continue;
    found.push_back({std::string(CallersName(name)), use.policy, use.branches, use.bytes});
  }
  return found;
}

// ---------------------------------------------------------------- what goes

Status ObjectSpace::SetPolicy(std::string_view ns, const NamespacePolicy& policy,
                              Durability durability) {
  CAIRN_RETURN_IF_ERROR(CheckSpace(ns));
  if (policy.persist != Persist::kAlways) {
    return Status(StatusCode::kInvalidArgument,
                  "policy.persist: an object without its bytes is none; it must be kAlways");
  }
  return changes_.SetPolicy(SpaceOf(ns), policy, durability);
}

// In one record; one by one if there is something wrong with one of them.
void ObjectSpace::DeleteSome(const std::string& space, std::span<const std::string_view> keys,
                             std::span<Status> outcomes, uint64_t* sequence) {
  const Result<uint64_t> dropped = DropNamed(space, keys, outcomes);
  if (dropped.ok()) {
    *sequence = std::max(*sequence, *dropped);
  } else if (keys.size() > 1 && IsOfOneObject(*deps_.log, dropped.status())) {
    for (size_t i = 0; i < keys.size(); ++i) {
      DeleteSome(space, keys.subspan(i, 1), outcomes.subspan(i, 1), sequence);
    }
  } else {
    std::fill(outcomes.begin(), outcomes.end(), dropped.status());
  }
}

Result<uint64_t> ObjectSpace::DropNamed(const std::string& space,
                                        std::span<const std::string_view> keys,
                                        std::span<Status> outcomes) {
  std::vector<std::string> names;
  names.reserve(keys.size());
  TreeNeeds needs;
  for (const std::string_view key : keys) {
    needs.names.emplace_back(space, names.emplace_back(NameOfKey(key)));
  }
  ObjectChange drop(
      deps_, std::move(needs),
      [&](const Tree& tree) -> Result<std::vector<Op>> {
        std::vector<Op> ops;
        std::unordered_set<uint64_t> dropped;
        for (size_t i = 0; i < names.size(); ++i) {
          const Head* const head = tree.FindHead(space, names[i]);
          const bool there = head != nullptr && dropped.insert(head->id).second;
          outcomes[i] = there && IsWhole(*head) ? Status::Ok() : NoObject("delete");
          if (!there) continue;
          CAIRN_ASSIGN_OR_RETURN(ops.emplace_back(), ResolveDrop(tree, head->id));
        }
        return ops;
      },
      wal::Log::Purpose::kRelease);
  return drop.Run(io::kNoDeadline);
}

Result<std::vector<Status>> ObjectSpace::Delete(std::span<const std::string_view> keys,
                                                std::string_view ns, Durability durability) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckWritable(durability));
  CAIRN_RETURN_IF_ERROR(CheckSpace(ns));
  CAIRN_RETURN_IF_ERROR(CheckKeys(keys));
  std::vector<Status> outcomes(keys.size());
  uint64_t sequence = 0;
  for (size_t first = 0; first < keys.size(); first += kMaxBatchOps) {
    const size_t count = std::min<size_t>(kMaxBatchOps, keys.size() - first);
    DeleteSome(SpaceOf(ns), keys.subspan(first, count), std::span(outcomes).subspan(first, count),
               &sequence);
  }
  if (sequence == 0) return outcomes;
  const Status safe = deps_.tickets->WaitFor(sequence, durability, io::kNoDeadline);
  for (Status& outcome : outcomes) {
    if (outcome.ok()) outcome = safe;
  }
  return outcomes;
}

}  // namespace cairn::engine
