// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/tables.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::engine {

Result<std::shared_ptr<sstable::SnapshotTable>> TableSet::Open(uint64_t number) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = open_.find(number); found != open_.end()) {
      found->second.used = ++clock_;
      return found->second.table;
    }
  }
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<sstable::SnapshotTable> table,
                         sstable::SnapshotTable::Open(context_, number));
  std::lock_guard lock(mutex_);
  Entry& entry = open_[number];
  if (entry.table == nullptr) entry.table = std::move(table);  // Else another thread was faster.
  entry.used = ++clock_;
  const std::shared_ptr<sstable::SnapshotTable> opened = entry.table;
  if (open_.size() > open_max_) {
    open_.erase(std::min_element(open_.begin(), open_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  return opened;
}

void TableSet::Forget(uint64_t number) {
  std::lock_guard lock(mutex_);
  open_.erase(number);
}

void TableSet::Clear() {
  std::lock_guard lock(mutex_);
  open_.clear();
}

}  // namespace cairn::engine
