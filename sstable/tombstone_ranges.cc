// SPDX-License-Identifier: Apache-2.0
#include "sstable/tombstone_ranges.h"

#include <new>

#include "base/core/check.h"
#include "sstable/constants.h"

namespace cairn::sstable {

TombstoneRanges::Ranges::const_iterator TombstoneRanges::Around(std::string_view key) const {
  auto range = ranges_.upper_bound(key);
  if (range == ranges_.begin()) return ranges_.end();
  --range;
  return range->second >= key ? range : ranges_.end();
}

std::string TombstoneRanges::StartOf(std::string_view from) const {
  const auto range = Around(from);
  return range == ranges_.end() ? std::string(from) : range->second;
}

TombstoneRanges::Ticket TombstoneRanges::Begin(std::string_view from) {
  Search search{.from = std::string(from), .disturbed = false, .smallest_put = {}};
  search.smallest_put.reserve(kMaxKeyBytes);  // First: it needs the memory as soon as it is seen.
  searches_.push_back(std::move(search));
  CAIRN_CHECK(searches_.back().smallest_put.capacity() >= kMaxKeyBytes);
  return std::prev(searches_.end());
}

void TombstoneRanges::End(Ticket search, std::string_view end) {
  CAIRN_CHECK(!searches_.empty());
  CAIRN_CHECK(!search->disturbed || search->smallest_put >= search->from);
  Search ended = std::move(*search);
  searches_.erase(search);
  if (ended.disturbed && ended.smallest_put < end) end = ended.smallest_put;
  if (end <= ended.from) return;
  try {
    Add(std::move(ended.from), std::string(end));
  } catch (const std::bad_alloc&) {  // One range less: the next search walks over the range again.
  }
}

void TombstoneRanges::Add(std::string from, std::string until) {
  CAIRN_CHECK(from < until);
  // Merges all ranges that touch [from, until).
  if (const auto first = Around(from); first != ranges_.end()) from = first->first;
  for (auto range = ranges_.lower_bound(from); range != ranges_.end() && range->first <= until;) {
    if (range->second > until) until = range->second;
    range = ranges_.erase(range);
  }
  if (ranges_.size() == kMaxTombstoneRanges) ranges_.clear();
  ranges_.emplace(std::move(from), std::move(until));
}

void TombstoneRanges::OnPut(std::string_view key) {
  CAIRN_CHECK(key.size() <= kMaxKeyBytes);
  for (Search& search : searches_) {
    if (key < search.from || (search.disturbed && search.smallest_put <= key)) continue;
    CAIRN_CHECK(key.size() <= search.smallest_put.capacity());
    search.smallest_put.assign(key);
    search.disturbed = true;
  }
  const auto around = ranges_.empty() ? ranges_.cend() : Around(key);
  if (around == ranges_.cend() || around->second == key) return;
  std::string& end = ranges_.find(around->first)->second;
  if (around->first == key || key.size() > end.capacity()) {
    ranges_.erase(around);
  } else {
    end.assign(key);
  }
}

}  // namespace cairn::sstable
