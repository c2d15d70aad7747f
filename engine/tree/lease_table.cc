// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/lease_table.h"

#include "base/core/check.h"

namespace cairn::engine {

uint64_t LeaseTable::Grant(uint64_t node, uint64_t position, uint64_t deadline_ns, uint64_t bytes) {
  CAIRN_CHECK(node != 0 && position != 0);
  const uint64_t lease = next_++;
  leases_.emplace(lease, Lease{node, position, deadline_ns, bytes});
  bytes_ += bytes;
  by_deadline_.emplace(deadline_ns, lease);
  positions_[node].insert(position);
  return lease;
}

bool LeaseTable::Renew(uint64_t lease, uint64_t deadline_ns) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return false;
  auto entry = by_deadline_.extract({found->second.deadline_ns, lease});
  entry.value() = {deadline_ns, lease};
  by_deadline_.insert(std::move(entry));
  found->second.deadline_ns = deadline_ns;
  return true;
}

void LeaseTable::Release(uint64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  const Lease& over = found->second;
  by_deadline_.erase({over.deadline_ns, lease});
  const auto of_node = positions_.find(over.node);
  of_node->second.erase(of_node->second.find(over.position));
  if (of_node->second.empty()) positions_.erase(of_node);
  bytes_ -= over.bytes;
  leases_.erase(found);
}

void LeaseTable::Expire(uint64_t now_ns) {
  while (!by_deadline_.empty() && by_deadline_.begin()->first <= now_ns) {
    Release(by_deadline_.begin()->second);
  }
}

bool LeaseTable::Holds(uint64_t lease, uint64_t node, uint64_t position) const {
  const auto found = leases_.find(lease);
  return found != leases_.end() && found->second.node == node && found->second.position >= position;
}

uint64_t LeaseTable::LeasedTo(uint64_t node) const {
  const auto found = positions_.find(node);
  return found == positions_.end() ? 0 : *found->second.rbegin();
}

}  // namespace cairn::engine
