// SPDX-License-Identifier: Apache-2.0
//
// A lease keeps what nodes hold for a while, for a reader that has no branch there. It is a mark in
// memory that only decisions look at: a rewind in place, a trim, a join and an eviction leave
// leased content alone. The drop of a last branch does not ask, and a replay never sees a lease.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace cairn::engine {

// The content of a node up to a token position, which lies beyond its beginning.
struct LeasedPart {
  uint64_t node = 0, position = 0;
};

class LeaseTable {
 public:
  // Keeps what these nodes hold up to these token positions until the deadline, which is on the
  // clock of Expire. Returns the lease's number, never 0. `bytes`: size of that, added to bytes().
  // REQUIRES: there is a part, and each position is beyond where its node begins. If there is no
  // memory it throws, and nothing is granted.
  uint64_t Grant(std::span<const LeasedPart> parts, uint64_t deadline_ns, uint64_t bytes = 0);
  uint64_t Grant(LeasedPart part, uint64_t deadline_ns, uint64_t bytes = 0) {
    return Grant({&part, 1}, deadline_ns, bytes);
  }
  // Adds parts to the lease. False: it is over. If there is no memory it throws and adds nothing.
  bool Extend(uint64_t lease, std::span<const LeasedPart> parts, uint64_t bytes);
  // False: the lease is over, and what it kept may be gone.
  bool Renew(uint64_t lease, uint64_t deadline_ns);
  void Release(uint64_t lease) { ReleaseSome(lease, SIZE_MAX); }  // Nothing, if it is over.
  // Ends the lease, but removes only `parts_max` of its parts now, since a commit must not wait for
  // all parts of a large one. True: no part is left. Expire removes the rest, whatever the time.
  bool ReleaseSome(uint64_t lease, size_t parts_max);
  // Ends leases whose deadline is not later than this, the longest overdue first. If there are
  // many, some are left to the next calls and hold until then.
  void Expire(uint64_t now_ns);
  void EndAll();  // Their numbers are not given again.

  // How far the node is leased; 0: not at all.
  uint64_t LeasedTo(uint64_t node) const;
  // Whether this lease holds that much of the node, as its first part.
  bool Holds(uint64_t lease, uint64_t node, uint64_t position) const;
  size_t size() const { return leases_.size(); }
  size_t parts() const { return parts_; }  // Of all leases.
  uint64_t bytes() const { return bytes_; }

 private:
  struct Lease {
    std::vector<LeasedPart> parts;
    uint64_t deadline_ns = 0, bytes = 0;  // Deadline 0: it is being ended.
  };
  using Leases = std::map<uint64_t, Lease>;
  using Positions = std::map<uint64_t, std::multiset<uint64_t>>;

  static Positions PositionsOf(std::span<const LeasedPart> parts);
  void TakeIn(Positions positions, size_t parts, uint64_t bytes);
  void SetDeadline(Leases::iterator lease, uint64_t deadline_ns);
  void EndPart(const LeasedPart& part);

  uint64_t next_ = 1;
  uint64_t bytes_ = 0;                                   // Of all leases.
  size_t parts_ = 0;                                     // Of all leases.
  Leases leases_;                                        // By number.
  std::set<std::pair<uint64_t, uint64_t>> by_deadline_;  // {deadline, number}
  Positions positions_;                                  // By node.
};

}  // namespace cairn::engine
