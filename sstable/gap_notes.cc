// SPDX-License-Identifier: Apache-2.0
#include "sstable/gap_notes.h"

#include <new>

#include "base/core/check.h"
#include "sstable/constants.h"

namespace cairn::sstable {

GapNotes::Gaps::const_iterator GapNotes::Around(std::string_view key) const {
  auto gap = gaps_.upper_bound(key);
  if (gap == gaps_.begin()) return gaps_.end();
  --gap;
  return gap->second >= key ? gap : gaps_.end();
}

std::string GapNotes::StartOf(std::string_view from) const {
  const auto gap = Around(from);
  return gap == gaps_.end() ? std::string(from) : gap->second;
}

GapNotes::Ticket GapNotes::Begin(std::string_view from) {
  Search search{.from = std::string(from), .disturbed = false, .smallest_put = {}};
  search.smallest_put.reserve(kMaxKeyBytes);  // First: it must have it when it is seen.
  searches_.push_back(std::move(search));
  CAIRN_CHECK(searches_.back().smallest_put.capacity() >= kMaxKeyBytes);
  return std::prev(searches_.end());
}

void GapNotes::End(Ticket search, std::string_view end) {
  CAIRN_CHECK(!searches_.empty());
  CAIRN_CHECK(!search->disturbed || search->smallest_put >= search->from);
  Search ended = std::move(*search);
  searches_.erase(search);
  if (ended.disturbed && ended.smallest_put < end) end = ended.smallest_put;
  if (end <= ended.from) return;
  try {
    Note(std::move(ended.from), std::string(end));
  } catch (const std::bad_alloc&) {  // A note less: the next search walks over it again.
  }
}

void GapNotes::Note(std::string from, std::string until) {
  CAIRN_CHECK(from < until);
  // One gap of all that touch [from, until).
  if (const auto first = Around(from); first != gaps_.end()) from = first->first;
  for (auto gap = gaps_.lower_bound(from); gap != gaps_.end() && gap->first <= until;) {
    if (gap->second > until) until = gap->second;
    gap = gaps_.erase(gap);
  }
  if (gaps_.size() == kMaxGaps) gaps_.clear();
  gaps_.emplace(std::move(from), std::move(until));
}

void GapNotes::OnPut(std::string_view key) {
  CAIRN_CHECK(key.size() <= kMaxKeyBytes);
  for (Search& search : searches_) {
    if (key < search.from || (search.disturbed && search.smallest_put <= key)) continue;
    CAIRN_CHECK(key.size() <= search.smallest_put.capacity());
    search.smallest_put.assign(key);
    search.disturbed = true;
  }
  const auto around = gaps_.empty() ? gaps_.cend() : Around(key);
  if (around == gaps_.cend() || around->second == key) return;
  std::string& end = gaps_.find(around->first)->second;
  if (around->first == key || key.size() > end.capacity()) {
    gaps_.erase(around);
  } else {
    end.assign(key);
  }
}

}  // namespace cairn::sstable
