// SPDX-License-Identifier: Apache-2.0
//
// A lease keeps what nodes hold for a while, for a reader that has no branch there. It is a mark in
// memory that only decisions look at: a rewind in place, a trim, a join and an eviction leave
// leased content alone. The drop of a last branch does not ask: the node dies, and what only it had
// leaves the lease. A replay never sees a lease.
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
  uint64_t bytes = 0;  // The size of that, as bytes() counts it.
};

class LeaseTable {
 public:
  // When nodes die, a lease is over with the first of its parts that goes, or with the last.
  enum class EndsWith : uint8_t { kAnyPart, kLastPart };

  // Keeps what these nodes hold up to these token positions until the deadline, which is on the
  // clock of Expire. Returns the lease's number, never 0. REQUIRES: there is a part, each node
  // exists, and each position is beyond where its node begins. If there is no memory it throws, and
  // nothing is granted.
  uint64_t Grant(std::span<const LeasedPart> parts, uint64_t deadline_ns,
                 EndsWith ends = EndsWith::kLastPart);
  uint64_t Grant(LeasedPart part, uint64_t deadline_ns) { return Grant({&part, 1}, deadline_ns); }
  // Adds parts to the lease. False: it is over. If there is no memory it throws and adds nothing.
  bool Extend(uint64_t lease, std::span<const LeasedPart> parts);
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
  // The node died. Its parts and their bytes do not count from now on, and leases end with it; if
  // there are many, some are left to SettleDead and the next calls of Expire. Cannot fail.
  void OnNodeDied(uint64_t node);
  // True: all leases that ended with their nodes are over. Looks at `parts_max` of their parts.
  bool SettleDead(size_t parts_max);

  // How far the node is leased; 0: not at all.
  uint64_t LeasedTo(uint64_t node) const;
  // Whether this lease holds that much of the node, as its first part.
  bool Holds(uint64_t lease, uint64_t node, uint64_t position) const;
  size_t size() const { return leases_.size(); }
  size_t parts() const { return parts_; }  // Counts those of all leases, on nodes that exist.
  uint64_t bytes() const { return bytes_; }

 private:
  struct Lease {
    std::vector<LeasedPart> parts;
    uint64_t deadline_ns = 0;  // 0: it is being ended.
    EndsWith ends = EndsWith::kLastPart;
    size_t gone = 0;  // How many parts are gone, with their nodes.
  };
  using Leases = std::map<uint64_t, Lease>;
  struct Marks {
    std::multiset<std::pair<uint64_t, uint64_t>> of;  // {position, lease}
    uint64_t bytes = 0;
  };
  using Nodes = std::map<uint64_t, Marks>;

  static Nodes MarksOf(std::span<const LeasedPart> parts, uint64_t lease);
  void TakeIn(Nodes nodes);
  void SetDeadline(Leases::iterator lease, uint64_t deadline_ns);
  void EndPart(const LeasedPart& part, uint64_t lease);

  uint64_t next_ = 1;
  uint64_t bytes_ = 0;                                   // All parts on nodes that exist.
  size_t parts_ = 0;                                     // How many these are.
  Leases leases_;                                        // By number.
  std::set<std::pair<uint64_t, uint64_t>> by_deadline_;  // {deadline, number}
  Nodes nodes_;                                          // Those that exist...
  Nodes dead_;                                           // ...and that died, until it is settled.
};

}  // namespace cairn::engine
