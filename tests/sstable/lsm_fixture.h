// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests of the whole index: a small shape, so that few records reach every level, and
// single steps that must succeed.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "sstable/lsm_index.h"
#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {

inline MergeShape SmallShape() {
  return {.table_bytes = 32 << 10, .level1_bytes = 128 << 10, .level0_tables = 4};
}

inline LsmOptions OptionsOf(const TestTables& tables) {
  return {.tables = tables.context, .shape = SmallShape()};
}

inline void Put(LsmIndex& index, std::string_view key, std::string_view value) {
  WriteBatch batch = index.NewBatch();
  ASSERT_OK(batch.Put(key, value));
  index.Apply(std::move(batch));
}

inline void Delete(LsmIndex& index, std::string_view key) {
  WriteBatch batch = index.NewBatch();
  ASSERT_OK(batch.Delete(key));
  index.Apply(std::move(batch));
}

// Everything into tables.
inline void FlushAll(LsmIndex& index) {
  ASSERT_OK(index.Freeze(UINT64_MAX));
  for (bool more = true; more;) {
    ASSERT_OK_ASSIGN(const auto flushed, index.Flush());
    more = flushed.has_value();
  }
}

// Merges until all is in shape. Replaced tables are released and deleted.
inline void CompactAll(LsmIndex& index) {
  for (bool more = true; more;) {
    ASSERT_OK_ASSIGN(const auto edit, index.CompactOnce());
    more = edit.has_value();
    if (more) index.Release(edit->removed);
  }
  ASSERT_OK(index.DeleteReleased());
}

}  // namespace cairn::sstable
