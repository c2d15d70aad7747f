// SPDX-License-Identifier: Apache-2.0
#include "engine/objects/object_rows.h"

#include <algorithm>
#include <cstring>

#include "base/core/check.h"

namespace cairn::engine {

namespace {

uintptr_t AddressOf(const std::byte* at) { return reinterpret_cast<uintptr_t>(at); }

}  // namespace

ObjectRows::ObjectRows(std::span<std::byte> memory, uint32_t page_bytes)
    : memory_(memory), page_bytes_(page_bytes), ids_(RowsOf(memory.size(), page_bytes)) {
  if (memory.empty()) return;
  rest_ = memory.last(memory.size() % page_bytes);
  base_ = rest_.empty() ? memory.data() : PlaceLastRow();
  plane_.layer_bases = {&base_, 1};
  plane_.token_stride = page_bytes_;
  group_.count = ids_.size();
  group_.planes = {&plane_, 1};
  if (!slots_.empty()) {
    group_.table = {.kind = TableKind::kSlots,
                    .entries = slots_.data(),
                    .count = slots_.size(),
                    .is_64_bit = true};
  }
  view_.groups = {&group_, 1};
}

// A view has one base and one stride, so the row beside the caller's memory is put a whole number
// of rows away from it, and a table of slots points there. The lower of the two is the base.
std::byte* ObjectRows::PlaceLastRow() {
  room_ = std::make_unique_for_overwrite<std::byte[]>(2 * size_t{page_bytes_});
  last_row_ = room_.get();
  if (ids_.size() == 1) return last_row_;
  const uintptr_t first = AddressOf(memory_.data()), room = AddressOf(room_.get());
  // A negative difference wraps; its remainder is right only if page_bytes_ is a power of two.
  const uintptr_t rest = (first < room ? room - first : first - room) % page_bytes_;
  last_row_ += first < room && rest != 0 ? page_bytes_ - rest : rest;
  const uintptr_t last = AddressOf(last_row_);
  const uintptr_t distance = last < first ? first - last : last - first;
  CAIRN_CHECK(distance % page_bytes_ == 0);
  const uintptr_t apart = distance / page_bytes_;
  slots_.resize(ids_.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i] = static_cast<int64_t>((last < first ? apart : 0) + i);
  }
  slots_.back() = last < first ? 0 : static_cast<int64_t>(apart);
  return last < first ? last_row_ : memory_.data();
}

void ObjectRows::TakeBytes() {
  std::fill(ids_.begin(), ids_.end(), page_bytes_);
  if (memory_.empty()) ids_[0] = 0;
  if (rest_.empty()) return;
  ids_.back() = static_cast<TokenId>(rest_.size());
  std::memcpy(last_row_, rest_.data(), rest_.size());
  std::memset(last_row_ + rest_.size(), 0, page_bytes_ - rest_.size());
}

void ObjectRows::GiveBytes() {
  if (!rest_.empty()) std::memcpy(rest_.data(), last_row_, rest_.size());
}

std::optional<uint64_t> ObjectRows::bytes() const {
  const auto full = [&](TokenId used) { return used == page_bytes_; };
  if (!std::all_of(ids_.begin(), ids_.end() - 1, full)) return std::nullopt;
  const TokenId last = ids_.back();
  if (last > page_bytes_ || (last == 0 && ids_.size() > 1)) return std::nullopt;
  return uint64_t{page_bytes_} * (ids_.size() - 1) + last;
}

}  // namespace cairn::engine
