// SPDX-License-Identifier: Apache-2.0
//
// Remembers ranges of keys in which a seek found only tombstones.
//
// Why: when a queue is drained in key order, like the edges of a node whose children are dropped
// one by one, each seek meets one tombstone more than the last. Merging removes them in time; until
// then a thousand drops would walk half a million tombstones. With this a seek skips the range
// that is known to be empty, so all of them together cost one walk.
//
// Deletions never invalidate a range. A put inside the range does, and cuts it short. A walking
// seek may miss a concurrent put, so a search is announced before it starts (Begin), and its range
// (End) reaches only up to the smallest key put in the meantime.
//
// Not thread-safe: the owner's lock guards it, taken before Begin together with the view that the
// search will walk.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <string_view>

namespace cairn::sstable {

class TombstoneRanges {
 public:
  struct Search {
    std::string from;
    bool disturbed = false;
    // Smallest key >= `from` put since Begin, if disturbed. Preallocated.
    std::string smallest_put;
  };
  using Ticket = std::list<Search>::iterator;

  // Where a search from `from` may start: no record lies between. Often `from` itself.
  std::string StartOf(std::string_view from) const;

  Ticket Begin(std::string_view from);
  // Only tombstones lie in [from, end). An `end` that is not behind `from` adds nothing.
  void End(Ticket search, std::string_view end);

  // Call before a reader can see the record. Allocates nothing.
  void OnPut(std::string_view key);

  size_t size() const { return ranges_.size(); }

 private:
  void Add(std::string from, std::string until);
  using Ranges = std::map<std::string, std::string, std::less<>>;  // [begin, end), disjoint.
  // The range that holds the key or ends at it.
  Ranges::const_iterator Around(std::string_view key) const;

  Ranges ranges_;
  std::list<Search> searches_;
};

}  // namespace cairn::sstable
