// SPDX-License-Identifier: Apache-2.0
//
// How much of each snapshot table is still needed. A place in a table counts by its share of the
// fragment's stored bytes. Part of a Tree: the commit lock guards it. No I/O.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/tree/memory/node.h"

namespace cairn::engine {

class TableUsages {
 public:
  // Every table that was sealed and not forgotten, also those that nothing needs any more.
  const std::map<uint64_t, TableUsage>& all() const { return tables_; }
  // Bytes of tables that became needless since this tree was opened; some count twice, when a
  // change was undone. So it only shows that something died.
  uint64_t died_bytes() const { return died_bytes_; }

  // `count` positions that lie at `place` are needed (1) or not any more (-1). Does nothing for a
  // place that is not in a table. Cannot fail.
  void Count(const Place& place, uint64_t count, int sign);
  // From now on the tree knows the table; `stored_bytes` more of it are in use.
  void Name(const TableRef& table, uint64_t stored_bytes);
  // Undoes Name. `was_new`: the table is forgotten with it. Cannot fail.
  void Unname(uint64_t number, uint64_t stored_bytes, bool was_new);
  void Load(uint64_t number, const TableUsage& use) { tables_[number] = use; }
  // The table's file is gone. REQUIRES: it is known, and nothing in it is live.
  void Forget(uint64_t number);

  // {table, node} since the last tree flush: content of the node lies in this table under the
  // number of a node that it was joined with; some twice.
  using Joined = std::pair<uint64_t, uint64_t>;
  std::span<const Joined> joined() const { return joined_; }
  void AddJoined(std::span<const Joined> joined);

  void MarkFlushed();  // The index has all of it. Cannot fail.

 private:
  std::map<uint64_t, TableUsage> tables_;
  std::vector<Joined> joined_;
  uint64_t died_bytes_ = 0;
};

}  // namespace cairn::engine
