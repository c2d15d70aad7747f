// SPDX-License-Identifier: Apache-2.0
//
// Remembers where there is nothing: ranges of keys in which a seek found only tombstones.
//
// Why: a queue drained in the order of its keys, as the edges of a node whose children are dropped
// one by one, puts each next seek behind one tombstone more. Merging removes them in time; until
// then a thousand drops would walk half a million tombstones. With the note a seek steps over the
// range it already knows, so the whole costs what one walk costs.
//
// Deletions never make a note wrong. A put inside the range does, and cuts it short. A put that
// happens while a seek is walking may be missed by it, so a search is announced before it looks
// (Begin), and its note (End) reaches only up to the smallest key put in the meantime.
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

class GapNotes {
 public:
  struct Search {
    std::string from;
    bool disturbed = false;
    std::string smallest_put;  // Not less than `from`, since Begin; if disturbed. Has its memory.
  };
  using Ticket = std::list<Search>::iterator;

  // Where a search from `from` may start instead: no record lies between. Often `from` itself.
  std::string StartOf(std::string_view from) const;

  Ticket Begin(std::string_view from);
  // Nothing but tombstones lies in [from, end). An `end` that is not behind `from` notes nothing.
  void End(Ticket search, std::string_view end);

  // Before a reader can see the record. Allocates nothing.
  void OnPut(std::string_view key);

  size_t size() const { return gaps_.size(); }

 private:
  void Note(std::string from, std::string until);
  using Gaps = std::map<std::string, std::string, std::less<>>;  // [begin, end), disjoint.
  // The gap that holds the key or ends at it.
  Gaps::const_iterator Around(std::string_view key) const;

  Gaps gaps_;
  std::list<Search> searches_;
};

}  // namespace cairn::sstable
