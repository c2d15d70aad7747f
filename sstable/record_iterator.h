// SPDX-License-Identifier: Apache-2.0
//
// Sorted records of a memtable, a table, a level, or several of these merged.
#pragma once

#include <string_view>

#include "cairn/status.h"
#include "sstable/index_block.h"

namespace cairn::sstable {

// Starts invalid: Seek first. One thread at a time. The blocks and tables that it reads stay pinned
// while it lives.
class RecordIterator {
 public:
  virtual ~RecordIterator() = default;

  // To the first record whose key is not less than the target; "" is the first of all.
  virtual void Seek(std::string_view target) = 0;
  virtual void Next() = 0;  // REQUIRES: valid().
  virtual bool valid() const = 0;

  // REQUIRES: valid(). The bytes are valid until the iterator moves.
  virtual std::string_view key() const = 0;
  virtual MaybeValue value() const = 0;  // Null for a tombstone.

  // Why it is not valid: Ok at the end, else the error of a read. A Seek tries again.
  virtual Status status() const = 0;
};

}  // namespace cairn::sstable
