// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/tables.h"

#include <algorithm>
#include <vector>

#include "base/core/check.h"
#include "engine/commit/constants.h"

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
  std::vector<Entry> closing;  // Without the lock.
  std::lock_guard lock(mutex_);
  Entry& entry = open_[number];
  if (entry.table == nullptr) {  // Else another thread was faster.
    entry.table = std::move(table);
    bytes_ += ChargeOf(*entry.table);
  }
  entry.used = ++clock_;
  const std::shared_ptr<sstable::SnapshotTable> opened = entry.table;
  while (open_.size() > 1 && (open_.size() > open_max_ || bytes_ > bytes_max_)) {
    const auto oldest = std::min_element(
        open_.begin(), open_.end(),
        [](const auto& x, const auto& y) { return x.second.used < y.second.used; });
    bytes_ -= ChargeOf(*oldest->second.table);
    closing.push_back(std::move(oldest->second));
    open_.erase(oldest);
  }
  return opened;
}

uint64_t TableSet::ChargeOf(const sstable::SnapshotTable& table) {
  return kOpenTableBytes + table.info().fragments * sizeof(sstable::FragmentEntry);
}

void TableSet::Forget(uint64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  bytes_ -= ChargeOf(*found->second.table);
  open_.erase(found);
}

void TableSet::Clear() {
  std::lock_guard lock(mutex_);
  open_.clear();
  bytes_ = 0;
}

uint64_t TableSet::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace cairn::engine
