// SPDX-License-Identifier: Apache-2.0
#include "engine/find/leases.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "engine/find/constants.h"

namespace cairn::engine {

// A number of 63 bits, so that no number of a lease wraps.
Leases::Leases(const WriteDeps& deps)
    : deps_(deps), opening_(deps.world.scheduler->Random64() >> 1 | 1) {}

bool Leases::HasRoom(std::span<const LeasedPart> parts) const {
  const LeaseTable& leases = table();
  uint64_t bytes = 0;
  for (const LeasedPart& part : parts) bytes += part.bytes;
  const uint64_t most = deps_.options->max_leased_bytes;
  return bytes <= most && leases.bytes() <= most - bytes && parts.size() <= kMaxLeases &&
         leases.parts() <= kMaxLeases - parts.size();
}

uint64_t Leases::DeadlineOf(uint64_t now_ns, uint64_t lease_ns) const {
  const uint64_t held = std::min(lease_ns, deps_.options->max_lease_ns);
  return held > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + held;
}

LeaseId Leases::Grant(std::span<const LeasedPart> parts, LeaseTable::EndsWith ends, uint64_t now_ns,
                      uint64_t lease_ns) {
  table().Expire(now_ns);
  if (deps_.options->read_only || !HasRoom(parts)) return {};
  return IdOf(table().Grant(parts, DeadlineOf(now_ns, lease_ns), ends));
}

bool Leases::Extend(LeaseId lease, std::span<const LeasedPart> parts) {
  return HasRoom(parts) && table().Extend(NumberOf(lease), parts);
}

bool Leases::Holds(LeaseId lease, uint64_t node, uint64_t position) const {
  return table().Holds(NumberOf(lease), node, position);
}

Status Leases::Renew(LeaseId lease, uint64_t lease_ns) {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  const uint64_t now_ns = deps_.lifecycle->NowNs();
  for (bool settled = false; !settled;) {
    const std::lock_guard lock(deps_.mutex());
    table().Expire(now_ns);
    settled = table().SettleDead(kLeasedAtOnce);
    if (settled && table().Renew(NumberOf(lease), DeadlineOf(now_ns, lease_ns))) {
      return Status::Ok();
    }
  }
  return Status(StatusCode::kNotFound, "lease " + std::to_string(static_cast<uint64_t>(lease)) +
                                           " is over, or what it held was dropped");
}

Status Leases::Release(LeaseId lease) {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  for (bool over = false; !over;) {
    const std::lock_guard lock(deps_.mutex());
    over = table().ReleaseSome(NumberOf(lease), kLeasedAtOnce);
  }
  return Status::Ok();
}

}  // namespace cairn::engine
