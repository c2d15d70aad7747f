// SPDX-License-Identifier: Apache-2.0
//
// The leases of callers: marks in the tree's table (tree/memory/lease_table.h). The options limit
// their bytes and how long they last. Each opening of the store numbers its leases from a random
// start, so a lease of an earlier opening is not taken for one of this. A follower grants none.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/find.h"
#include "engine/commit/write_deps.h"
#include "engine/tree/memory/lease_table.h"

namespace cairn::engine {

class Leases {
 public:
  explicit Leases(const WriteDeps& deps);  // They outlive this.
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  // Distinguishes hits and leases of this opening of the store from those of others.
  uint64_t opening() const { return opening_; }

  // --- REQUIRES: the commit lock.
  // 0: there is no room, or it is the writer's to grant.
  LeaseId Grant(std::span<const LeasedPart> parts, LeaseTable::EndsWith ends, uint64_t now_ns,
                uint64_t lease_ns);
  // It holds these as well. False: there is no room, or it is over.
  bool Extend(LeaseId lease, std::span<const LeasedPart> parts);
  // Whether it is not over, and holds that much of the node as its first part.
  bool Holds(LeaseId lease, uint64_t node, uint64_t position) const;

  // --- No lock may be held. Errors: those of Store.
  Status Renew(LeaseId lease, uint64_t lease_ns);
  Status Release(LeaseId lease);

 private:
  bool HasRoom(std::span<const LeasedPart> parts) const;
  uint64_t DeadlineOf(uint64_t now_ns, uint64_t lease_ns) const;
  // Numbers of the table start over with each opening.
  LeaseId IdOf(uint64_t number) const { return LeaseId{opening_ + number}; }
  uint64_t NumberOf(LeaseId lease) const { return static_cast<uint64_t>(lease) - opening_; }
  LeaseTable& table() const { return deps_.tree().leases(); }

  const WriteDeps& deps_;
  const uint64_t opening_;
};

}  // namespace cairn::engine
