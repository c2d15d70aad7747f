// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/logged_nodes.h"

#include <algorithm>

#include "engine/tree/memory/reserve_more.h"

namespace cairn::engine {

void LoggedNodes::Reserve(size_t more) { ReserveMore(&entries_, more); }

void LoggedNodes::Add(std::span<const Entry> entries) {
  entries_.insert(entries_.end(), entries.begin(), entries.end());
}

void LoggedNodes::Keep() {
  keep_ = true;
  kept_ = entries_.size();
}

void LoggedNodes::Forget(const SegmentSet& segments) {
  size_t left = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const bool deleted = segments.Contains(entries_[i].first);  // If the index has it.
    if (i < kept_ && deleted) continue;
    if (i < flushed_ && !deleted) continue;
    entries_[left++] = entries_[i];
  }
  entries_.resize(left);
  flushed_ = 0;
  Release();
}

void LoggedNodes::Release() {
  entries_.erase(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(flushed_));
  keep_ = false;
  kept_ = flushed_ = 0;
}

// A copy: Forget relies on the order of the entries.
std::vector<LoggedNodes::Entry> LoggedNodes::Unflushed() const {
  std::vector<Entry> unflushed(entries_.begin() + static_cast<ptrdiff_t>(flushed_), entries_.end());
  std::sort(unflushed.begin(), unflushed.end());
  unflushed.erase(std::unique(unflushed.begin(), unflushed.end()), unflushed.end());
  return unflushed;
}

void LoggedNodes::MarkFlushed() {
  if (keep_) {
    flushed_ = entries_.size();
  } else {
    entries_.clear();
  }
}

}  // namespace cairn::engine
