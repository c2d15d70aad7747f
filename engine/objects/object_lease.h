// SPDX-License-Identifier: Apache-2.0
//
// The lease of one call of Exists: it covers every object that is reported as there, or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "engine/commit/write_deps.h"
#include "engine/find/leases.h"

namespace cairn::engine {

class ObjectLease {
 public:
  // By index; in any order.
  using Told = std::function<void(size_t name, bool there)>;

  // The referenced objects outlive this.
  ObjectLease(const WriteDeps& deps, Leases* leases, uint64_t lease_ns)
      : deps_(deps), leases_(*leases), lease_ns_(lease_ns) {}
  ~ObjectLease() { End(); }  // Unless it was taken.
  ObjectLease(const ObjectLease&) = delete;
  ObjectLease& operator=(const ObjectLease&) = delete;

  // Reports which of these exist, and holds those. Damaged ones do not exist. REQUIRES: at most
  // kLeasedAtOnce, as all of them are held together. No lock may be held.
  Status Hold(const std::string& space, std::span<const std::string> names, const Told& told);
  // The lease on all that was reported as there. 0: nothing was, or there was no room for a lease.
  LeaseId Take() { return std::exchange(lease_, {}); }

 private:
  bool Add(std::span<const LeasedPart> parts, uint64_t now_ns);
  void End();

  const WriteDeps& deps_;
  Leases& leases_;
  const uint64_t lease_ns_;
  LeaseId lease_{};
  bool refused_ = false;  // There was no room for one, so none is held.
};

}  // namespace cairn::engine
