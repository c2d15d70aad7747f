// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/tables.h"

#include <algorithm>
#include <iterator>

#include "base/core/check.h"
#include "engine/config/constants.h"

namespace cairn::engine {

size_t OpenFilesKept(io::FileSystem& files) {
  return std::clamp(files.OpenFilesMax() / kOpenFilesShare, kOpenFilesMin, kOpenFilesMax);
}

Result<std::shared_ptr<sstable::SnapshotTable>> TableSet::Open(uint64_t number) {
  {
    const MutexLock lock(&mutex_);
    if (const auto found = places_.find(number); found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->table;
    }
  }
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<sstable::SnapshotTable> table,
                         sstable::SnapshotTable::Open(context_, number));
  Entries going;  // Freed without the lock.
  const MutexLock lock(&mutex_);
  if (const auto found = places_.find(number); found != places_.end()) {
    return found->second->table;  // Another thread was faster.
  }
  Entries opened = {{number, table}};
  places_.emplace(number, opened.begin());
  entries_.splice(entries_.begin(), opened);
  bytes_ += ChargeOf(*table);
  while (entries_.size() > 1 && bytes_ > bytes_max_) {
    bytes_ -= ChargeOf(*entries_.back().table);
    places_.erase(entries_.back().number);
    going.splice(going.begin(), entries_, std::prev(entries_.end()));
  }
  return table;
}

uint64_t TableSet::ChargeOf(const sstable::SnapshotTable& table) {
  return kOpenTableBytes + table.info().fragments * sizeof(sstable::FragmentEntry);
}

void TableSet::Forget(uint64_t number) {
  if (context_.open_files != nullptr) context_.open_files->Forget(number);
  Entries going;  // Freed without the lock.
  const MutexLock lock(&mutex_);
  const auto found = places_.find(number);
  if (found == places_.end()) return;
  bytes_ -= ChargeOf(*found->second->table);
  going.splice(going.begin(), entries_, found->second);
  places_.erase(found);
}

void TableSet::Clear() {
  Entries going;  // Freed without the lock.
  const MutexLock lock(&mutex_);
  places_.clear();
  going.swap(entries_);
  bytes_ = 0;
}

uint64_t TableSet::bytes() const {
  const MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace cairn::engine
