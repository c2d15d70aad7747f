// SPDX-License-Identifier: Apache-2.0
//
// A lease keeps what nodes hold for a while, for a reader that has no branch there. It is a mark
// in memory that only decisions look at: a rewind in place, a trim, a join and an eviction leave
// what is leased as it is. A drop of the last branch does not ask, and a replay never sees a lease.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace cairn::engine {

// What a node has up to a token position beyond where it begins. Of node 0: nothing.
struct LeasedPart {
  uint64_t node = 0, position = 0;
};

class LeaseTable {
 public:
  // What the node has up to this token position stays until the deadline, which is on the clock of
  // Expire. Returns the lease's number, never 0. REQUIRES: `position` is beyond where the node
  // begins. Without memory it throws, and nothing is granted.
  // `bytes`: what that holds, for the sum of them. `also`: it holds this, too.
  uint64_t Grant(uint64_t node, uint64_t position, uint64_t deadline_ns, uint64_t bytes = 0,
                 LeasedPart also = {});
  // False: it is over, and what it was for may be gone.
  bool Renew(uint64_t lease, uint64_t deadline_ns);
  void Release(uint64_t lease);  // Nothing, if it is over.
  // Leases whose deadline is not later than this are over, the longest overdue first. Of many some
  // are left to the next calls, and hold until then: a commit must not wait for all of them.
  void Expire(uint64_t now_ns);
  void EndAll();  // Their numbers are not given again.

  // How far the node is leased; 0: not at all.
  uint64_t LeasedTo(uint64_t node) const;
  // Whether this lease holds that much of the node, as its first part.
  bool Holds(uint64_t lease, uint64_t node, uint64_t position) const;
  size_t size() const { return leases_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Lease {
    LeasedPart parts[2];
    uint64_t deadline_ns = 0, bytes = 0;
  };
  using Positions = std::map<uint64_t, std::multiset<uint64_t>>;

  uint64_t next_ = 1;
  uint64_t bytes_ = 0;                                   // Of all.
  std::map<uint64_t, Lease> leases_;                     // By number.
  std::set<std::pair<uint64_t, uint64_t>> by_deadline_;  // {deadline, number}
  Positions positions_;                                  // By node.
};

}  // namespace cairn::engine
