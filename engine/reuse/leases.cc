// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/leases.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "engine/reuse/constants.h"

namespace cairn::engine {

// A number of 63 bits, so that no number of a lease wraps.
Leases::Leases(const WriteMeans& means)
    : means_(means), opening_(means.world.scheduler->Random64() >> 1 | 1) {}

bool Leases::HasRoom(std::span<const LeasedPart> parts, uint64_t bytes) const {
  const LeaseTable& leases = table();
  const uint64_t most = means_.options->max_leased_bytes;
  return bytes <= most && leases.bytes() <= most - bytes && parts.size() <= kMaxLeases &&
         leases.parts() <= kMaxLeases - parts.size();
}

uint64_t Leases::DeadlineOf(uint64_t now_ns, uint64_t lease_ns) const {
  const uint64_t held = std::min(lease_ns, means_.options->max_lease_ns);
  return held > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + held;
}

LeaseId Leases::Grant(std::span<const LeasedPart> parts, uint64_t bytes, uint64_t now_ns,
                      uint64_t lease_ns) {
  table().Expire(now_ns);
  if (means_.options->read_only || !HasRoom(parts, bytes)) return {};
  return IdOf(table().Grant(parts, DeadlineOf(now_ns, lease_ns), bytes));
}

bool Leases::Extend(LeaseId lease, std::span<const LeasedPart> parts, uint64_t bytes) {
  return HasRoom(parts, bytes) && table().Extend(NumberOf(lease), parts, bytes);
}

bool Leases::Holds(LeaseId lease, uint64_t node, uint64_t position) const {
  return table().Holds(NumberOf(lease), node, position);
}

Status Leases::Renew(LeaseId lease, uint64_t lease_ns) {
  CAIRN_RETURN_IF_ERROR(means_.lifecycle->CheckUsable());
  const uint64_t now_ns = means_.lifecycle->NowNs();
  const std::lock_guard lock(means_.mutex());
  table().Expire(now_ns);
  if (table().Renew(NumberOf(lease), DeadlineOf(now_ns, lease_ns))) return Status::Ok();
  return Status(StatusCode::kNotFound,
                "lease " + std::to_string(static_cast<uint64_t>(lease)) + " is over");
}

Status Leases::Release(LeaseId lease) {
  CAIRN_RETURN_IF_ERROR(means_.lifecycle->CheckUsable());
  for (bool over = false; !over;) {
    const std::lock_guard lock(means_.mutex());
    over = table().ReleaseSome(NumberOf(lease), kLeasedAtOnce);
  }
  return Status::Ok();
}

}  // namespace cairn::engine
