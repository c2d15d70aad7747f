// SPDX-License-Identifier: Apache-2.0
//
// The leases of callers: marks in the tree's table (tree/lease_table.h), within the limits of
// the options, under numbers that no other opening of the store gives. A store that is read only
// grants none.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/find.h"
#include "engine/commit/write_means.h"
#include "engine/tree/lease_table.h"

namespace cairn::engine {

class Leases {
 public:
  explicit Leases(const WriteMeans& means);  // They outlive this.
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  // Tells the hits and leases of this opening of the store from those of others.
  uint64_t opening() const { return opening_; }

  // --- REQUIRES: the commit lock.
  // `bytes`: what the parts hold. 0: there is no room, or it is the writer's to grant.
  LeaseId Grant(std::span<const LeasedPart> parts, uint64_t bytes, uint64_t now_ns,
                uint64_t lease_ns);
  // It holds these as well. False: there is no room, or it is over.
  bool Extend(LeaseId lease, std::span<const LeasedPart> parts, uint64_t bytes);
  // Whether it is not over, and holds that much of the node as its first part.
  bool Holds(LeaseId lease, uint64_t node, uint64_t position) const;

  // --- No lock may be held. Errors: those of Store.
  Status Renew(LeaseId lease, uint64_t lease_ns);
  Status Release(LeaseId lease);

 private:
  bool HasRoom(std::span<const LeasedPart> parts, uint64_t bytes) const;
  uint64_t DeadlineOf(uint64_t now_ns, uint64_t lease_ns) const;
  // Numbers of the table begin anew with each opening.
  LeaseId IdOf(uint64_t number) const { return LeaseId{opening_ + number}; }
  uint64_t NumberOf(LeaseId lease) const { return static_cast<uint64_t>(lease) - opening_; }
  LeaseTable& table() const { return means_.tree().leases(); }

  const WriteMeans& means_;
  const uint64_t opening_;
};

}  // namespace cairn::engine
