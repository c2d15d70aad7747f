// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/logged_nodes.h"

#include <algorithm>

#include "engine/tree/reserve_more.h"

namespace cairn::engine {

void LoggedNodes::Reserve(size_t more) { ReserveMore(&entries_, more); }

void LoggedNodes::Note(std::span<const Entry> entries) {
  entries_.insert(entries_.end(), entries.begin(), entries.end());
}

void LoggedNodes::Keep() {
  keep_ = true;
  kept_ = entries_.size();
}

void LoggedNodes::Forget(uint64_t segment) {
  size_t left = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const bool deleted = entries_[i].first <= segment;  // If the index has it.
    if (i < kept_ && deleted) continue;
    if (i < dumped_ && !deleted) continue;
    entries_[left++] = entries_[i];
  }
  entries_.resize(left);
  dumped_ = 0;
  Release();
}

void LoggedNodes::Release() {
  entries_.erase(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(dumped_));
  keep_ = false;
  kept_ = dumped_ = 0;
}

// A copy: Forget relies on the order of the entries.
std::vector<LoggedNodes::Entry> LoggedNodes::Undumped() const {
  std::vector<Entry> undumped(entries_.begin() + static_cast<ptrdiff_t>(dumped_), entries_.end());
  std::sort(undumped.begin(), undumped.end());
  undumped.erase(std::unique(undumped.begin(), undumped.end()), undumped.end());
  return undumped;
}

void LoggedNodes::NoteDumped() {
  if (keep_) {
    dumped_ = entries_.size();
  } else {
    entries_.clear();
  }
}

}  // namespace cairn::engine
