// SPDX-License-Identifier: Apache-2.0
#include "engine/objects/object_lease.h"

#include <vector>

#include "engine/find/path_match.h"
#include "engine/objects/object_fate.h"
#include "engine/objects/object_names.h"

namespace cairn::engine {

Status ObjectLease::Hold(const std::string& space, std::span<const std::string> names,
                         const Told& told) {
  TreeNeeds needs;
  for (const std::string& name : names) needs.names.emplace_back(space, name);
  const uint64_t now_ns = deps_.lifecycle->NowNs();
  bool damaged = false;
  {
    Committer::Lock lock(deps_.mutex());
    const Status loaded = deps_.access->Load(needs, &lock);
    if (loaded.ok()) {
      const Tree& tree = deps_.tree();
      std::vector<LeasedPart> parts;
      for (size_t i = 0; i < names.size(); ++i) {
        const Head* const head = tree.FindHead(space, names[i]);
        const bool there = head != nullptr && IsWhole(*head);
        told(i, there);
        if (!there) continue;
        const uint64_t end = head->lengths[kTokenLane];
        parts.push_back({head->node, end, BytesBelow(tree, *tree.FindNode(head->node), end)});
      }
      refused_ = refused_ || !Add(parts, now_ns);
    } else if (IsOfOneObject(*deps_.log, loaded)) {
      damaged = true;
    } else {
      return loaded;
    }
  }
  if (refused_) End();
  if (damaged && names.size() == 1) told(0, false);
  if (!damaged || names.size() == 1) return Status::Ok();
  // Looking up each one separately shows which failed.
  for (size_t i = 0; i < names.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(
        Hold(space, names.subspan(i, 1), [&](size_t, bool there) { told(i, there); }));
  }
  return Status::Ok();
}

// Under the commit lock.
bool ObjectLease::Add(std::span<const LeasedPart> parts, uint64_t now_ns) {
  if (parts.empty()) return true;
  if (lease_ != LeaseId{}) return leases_.Extend(lease_, parts);
  lease_ = leases_.Grant(parts, LeaseTable::EndsWith::kLastPart, now_ns, lease_ns_);
  return lease_ != LeaseId{};
}

void ObjectLease::End() {
  if (lease_ != LeaseId{}) static_cast<void>(leases_.Release(std::exchange(lease_, {})));
}

}  // namespace cairn::engine
