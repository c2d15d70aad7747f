// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/lease_table.h"

#include "base/core/check.h"

namespace cairn::engine {

namespace {

// Parts that one call of Expire ends: some ten microseconds under the commit lock. Each commit
// makes such a call, so the most there can be (kMaxLeases) have ended within a thousand.
constexpr size_t kEndedAtOnce = 64;

}  // namespace

LeaseTable::Positions LeaseTable::PositionsOf(std::span<const LeasedPart> parts) {
  Positions positions;
  for (const LeasedPart& part : parts) {
    CAIRN_CHECK(part.node != 0 && part.position != 0);
    positions[part.node].insert(part.position);
  }
  return positions;
}

// Cannot fail: all memory is in `positions`.
void LeaseTable::TakeIn(Positions positions, size_t parts, uint64_t bytes) {
  positions_.merge(positions);
  for (auto& [node, more] : positions) positions_.find(node)->second.merge(more);
  parts_ += parts;
  bytes_ += bytes;
}

uint64_t LeaseTable::Grant(std::span<const LeasedPart> parts, uint64_t deadline_ns,
                           uint64_t bytes) {
  CAIRN_CHECK(!parts.empty());
  // Allocate everything first.
  Leases lease;
  std::set<std::pair<uint64_t, uint64_t>> deadline;
  lease.emplace(next_, Lease{{parts.begin(), parts.end()}, deadline_ns, bytes});
  deadline.emplace(deadline_ns, next_);
  TakeIn(PositionsOf(parts), parts.size(), bytes);
  leases_.merge(lease);
  by_deadline_.merge(deadline);
  return next_++;
}

bool LeaseTable::Extend(uint64_t lease, std::span<const LeasedPart> parts, uint64_t bytes) {
  const auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.deadline_ns == 0) return false;
  Positions positions = PositionsOf(parts);
  found->second.parts.insert(found->second.parts.end(), parts.begin(), parts.end());
  found->second.bytes += bytes;
  TakeIn(std::move(positions), parts.size(), bytes);
  return true;
}

void LeaseTable::SetDeadline(Leases::iterator lease, uint64_t deadline_ns) {
  auto entry = by_deadline_.extract({lease->second.deadline_ns, lease->first});
  entry.value().first = deadline_ns;
  by_deadline_.insert(std::move(entry));
  lease->second.deadline_ns = deadline_ns;
}

bool LeaseTable::Renew(uint64_t lease, uint64_t deadline_ns) {
  const auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.deadline_ns == 0) return false;
  SetDeadline(found, deadline_ns);
  return true;
}

void LeaseTable::EndPart(const LeasedPart& part) {
  const auto of_node = positions_.find(part.node);
  of_node->second.erase(of_node->second.find(part.position));
  if (of_node->second.empty()) positions_.erase(of_node);
  --parts_;
}

bool LeaseTable::ReleaseSome(uint64_t lease, size_t parts_max) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return true;
  std::vector<LeasedPart>& parts = found->second.parts;
  for (; parts_max != 0 && !parts.empty(); --parts_max) {
    EndPart(parts.back());
    parts.pop_back();
  }
  SetDeadline(found, 0);
  if (!parts.empty()) return false;
  by_deadline_.erase({0, lease});
  bytes_ -= found->second.bytes;
  leases_.erase(found);
  return true;
}

void LeaseTable::Expire(uint64_t now_ns) {
  for (size_t left = kEndedAtOnce;
       left != 0 && !by_deadline_.empty() && by_deadline_.begin()->first <= now_ns;) {
    const size_t before = parts_;
    ReleaseSome(by_deadline_.begin()->second, left);
    left -= before - parts_;
  }
}

void LeaseTable::EndAll() {
  leases_.clear();
  by_deadline_.clear();
  positions_.clear();
  bytes_ = 0;
  parts_ = 0;
}

bool LeaseTable::Holds(uint64_t lease, uint64_t node, uint64_t position) const {
  const auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.deadline_ns == 0) return false;
  const LeasedPart& first = found->second.parts.front();
  return first.node == node && first.position >= position;
}

uint64_t LeaseTable::LeasedTo(uint64_t node) const {
  const auto found = positions_.find(node);
  return found == positions_.end() ? 0 : *found->second.rbegin();
}

}  // namespace cairn::engine
