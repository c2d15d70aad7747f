// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/lease_table.h"

#include "base/core/check.h"

namespace cairn::engine {

namespace {

// Ended by one call of Expire: some ten microseconds under the commit lock. Each commit makes such
// a call, so the most there can be (kMaxLeases) are over within a thousand.
constexpr int kEndedAtOnce = 64;

}  // namespace

uint64_t LeaseTable::Grant(uint64_t node, uint64_t position, uint64_t deadline_ns, uint64_t bytes,
                           LeasedPart also) {
  CAIRN_CHECK(node != 0 && position != 0);
  // All memory is had first.
  std::map<uint64_t, Lease> lease;
  std::set<std::pair<uint64_t, uint64_t>> deadline;
  Positions positions;
  lease.emplace(next_, Lease{{{node, position}, also}, deadline_ns, bytes});
  deadline.emplace(deadline_ns, next_);
  positions[node].insert(position);
  if (also.node != 0) positions[also.node].insert(also.position);
  leases_.merge(lease);
  by_deadline_.merge(deadline);
  positions_.merge(positions);
  for (auto& [leased, more] : positions) positions_.find(leased)->second.merge(more);
  bytes_ += bytes;
  return next_++;
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
  for (const LeasedPart& part : over.parts) {
    if (part.node == 0) continue;
    const auto of_node = positions_.find(part.node);
    of_node->second.erase(of_node->second.find(part.position));
    if (of_node->second.empty()) positions_.erase(of_node);
  }
  bytes_ -= over.bytes;
  leases_.erase(found);
}

void LeaseTable::Expire(uint64_t now_ns) {
  for (int ended = 0;
       ended < kEndedAtOnce && !by_deadline_.empty() && by_deadline_.begin()->first <= now_ns;
       ++ended) {
    Release(by_deadline_.begin()->second);
  }
}

void LeaseTable::EndAll() {
  leases_.clear();
  by_deadline_.clear();
  positions_.clear();
  bytes_ = 0;
}

bool LeaseTable::Holds(uint64_t lease, uint64_t node, uint64_t position) const {
  const auto found = leases_.find(lease);
  return found != leases_.end() && found->second.parts[0].node == node &&
         found->second.parts[0].position >= position;
}

uint64_t LeaseTable::LeasedTo(uint64_t node) const {
  const auto found = positions_.find(node);
  return found == positions_.end() ? 0 : *found->second.rbegin();
}

}  // namespace cairn::engine
