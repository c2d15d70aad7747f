// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/lease_table.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"

namespace cairn::engine {

namespace {

// Parts that one call of Expire ends: some ten microseconds under the commit lock. Each commit
// makes such a call, so the most there can be (kMaxLeases) have ended within a thousand.
constexpr size_t kEndedAtOnce = 64;

}  // namespace

LeaseTable::Nodes LeaseTable::MarksOf(std::span<const LeasedPart> parts, uint64_t lease) {
  Nodes nodes;
  for (const LeasedPart& part : parts) {
    CAIRN_CHECK(part.node != 0 && part.position != 0);
    Marks& marks = nodes[part.node];
    marks.of.emplace(part.position, lease);
    marks.bytes += part.bytes;
  }
  return nodes;
}

// Cannot fail: all memory is in `nodes`.
void LeaseTable::TakeIn(Nodes nodes) {
  for (const auto& [node, marks] : nodes) {
    parts_ += marks.of.size();
    bytes_ += marks.bytes;
  }
  nodes_.merge(nodes);
  for (auto& [node, more] : nodes) {
    Marks& marks = nodes_.find(node)->second;
    marks.of.merge(more.of);
    marks.bytes += more.bytes;
  }
}

uint64_t LeaseTable::Grant(std::span<const LeasedPart> parts, uint64_t deadline_ns, EndsWith ends) {
  CAIRN_CHECK(!parts.empty());
  // Allocate everything first.
  Leases lease;
  std::set<std::pair<uint64_t, uint64_t>> deadline;
  lease.emplace(next_, Lease{{parts.begin(), parts.end()}, deadline_ns, ends});
  deadline.emplace(deadline_ns, next_);
  TakeIn(MarksOf(parts, next_));
  leases_.merge(lease);
  by_deadline_.merge(deadline);
  return next_++;
}

bool LeaseTable::Extend(uint64_t lease, std::span<const LeasedPart> parts) {
  const auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.deadline_ns == 0) return false;
  Nodes nodes = MarksOf(parts, lease);
  found->second.parts.insert(found->second.parts.end(), parts.begin(), parts.end());
  TakeIn(std::move(nodes));
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

void LeaseTable::EndPart(const LeasedPart& part, uint64_t lease) {
  const std::pair<uint64_t, uint64_t> mark{part.position, lease};
  if (const auto there = nodes_.find(part.node); there != nodes_.end()) {
    Marks& marks = there->second;
    marks.of.erase(marks.of.find(mark));
    marks.bytes -= part.bytes;
    if (marks.of.empty()) nodes_.erase(there);
    bytes_ -= part.bytes;
    --parts_;
  } else if (const auto dead = dead_.find(part.node); dead != dead_.end()) {
    if (const auto at = dead->second.of.find(mark); at != dead->second.of.end()) {
      dead->second.of.erase(at);
    }
  }
}

bool LeaseTable::ReleaseSome(uint64_t lease, size_t parts_max) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return true;
  std::vector<LeasedPart>& parts = found->second.parts;
  for (; parts_max != 0 && !parts.empty(); --parts_max) {
    EndPart(parts.back(), lease);
    parts.pop_back();
  }
  SetDeadline(found, 0);
  if (!parts.empty()) return false;
  by_deadline_.erase({0, lease});
  leases_.erase(found);
  return true;
}

void LeaseTable::Expire(uint64_t now_ns) {
  for (size_t left = kEndedAtOnce;
       left != 0 && !by_deadline_.empty() && by_deadline_.begin()->first <= now_ns;) {
    const auto lease = leases_.find(by_deadline_.begin()->second);
    const size_t parts = std::min(left, lease->second.parts.size());
    ReleaseSome(lease->first, parts);
    left -= parts;
  }
  SettleDead(kEndedAtOnce);
}

void LeaseTable::OnNodeDied(uint64_t node) {
  Nodes::node_type died = nodes_.extract(node);
  if (died.empty() || !CAIRN_KEPT(kLeaseOfDead)) return;
  parts_ -= died.mapped().of.size();
  bytes_ -= died.mapped().bytes;
  dead_.insert(std::move(died));
  SettleDead(kEndedAtOnce);
}

bool LeaseTable::SettleDead(size_t parts_max) {
  while (!dead_.empty()) {
    auto& marks = dead_.begin()->second.of;
    if (marks.empty()) {
      dead_.erase(dead_.begin());
      continue;
    }
    if (parts_max == 0) return false;
    --parts_max;
    const uint64_t lease = marks.begin()->second;
    marks.erase(marks.begin());
    Lease& of = leases_.find(lease)->second;
    ++of.gone;
    if (of.ends == EndsWith::kAnyPart || of.gone == of.parts.size()) {
      ReleaseSome(lease, kEndedAtOnce);
    }
  }
  return true;
}

void LeaseTable::EndAll() {
  leases_.clear();
  by_deadline_.clear();
  nodes_.clear();
  dead_.clear();
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
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? 0 : found->second.of.rbegin()->first;
}

}  // namespace cairn::engine
