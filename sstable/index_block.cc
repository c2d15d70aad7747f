// SPDX-License-Identifier: Apache-2.0
#include "sstable/index_block.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"

namespace cairn::sstable {
namespace {

constexpr size_t kMaxEntryHeaderBytes = 3 * 5;  // Three varints below 2^35.

size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto [end, other] = std::mismatch(
      a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
  return static_cast<size_t>(end - a.begin());
}

Status Bad(const std::string& why) { return Status(StatusCode::kCorruption, "block: " + why); }

}  // namespace

void BlockBuilder::Clear() {
  block_.assign(sizeof(BlockHeader), '\0');
  restarts_.clear();
  since_restart_ = 0;
  last_key_.clear();
}

size_t BlockBuilder::BytesWith(std::string_view key, MaybeValue value) const {
  return bytes() + sizeof(uint32_t) + kMaxEntryHeaderBytes + key.size() +
         (value ? value->size() : 0);
}

void BlockBuilder::Add(std::string_view key, MaybeValue value) {
  CAIRN_CHECK(key.size() <= kMaxKeyBytes);
  CAIRN_CHECK(!value || value->size() <= kMaxValueBytes);
  CAIRN_CHECK(empty() || last_key_ < key);
  size_t shared = 0;
  if (empty() || since_restart_ == kRestartInterval) {
    restarts_.push_back(static_cast<uint32_t>(block_.size()));
    since_restart_ = 0;
  } else {
    shared = CommonPrefix(last_key_, key);
  }
  ++since_restart_;
  const std::string_view tail = key.substr(shared);
  PutVarint(block_, shared);
  PutVarint(block_, tail.size());
  PutVarint(block_, value ? value->size() + 1 : 0);
  block_.append(tail);
  if (value) block_.append(*value);
  last_key_.assign(key);
}

std::string BlockBuilder::Finish(BlockKind kind, std::string_view filter) {
  CAIRN_CHECK(!empty());
  CAIRN_CHECK(filter.empty() == (kind != BlockKind::kPartition));
  CAIRN_CHECK(restarts_.size() <= UINT16_MAX);
  BlockHeader header{};
  header.magic = kBlockMagic;
  header.kind = static_cast<uint16_t>(kind);
  header.restart_count = static_cast<uint16_t>(restarts_.size());
  header.filter_bytes = static_cast<uint32_t>(filter.size());
  for (const uint32_t restart : restarts_) {
    block_.append(reinterpret_cast<const char*>(&restart), sizeof(restart));
  }
  block_.append(filter);
  CAIRN_CHECK(block_.size() <= UINT32_MAX - kTableAlignment);
  header.bytes = static_cast<uint32_t>(block_.size());
  std::memcpy(block_.data(), &header, sizeof(header));
  block_.resize(AlignUp(block_.size(), kTableAlignment));
  CAIRN_CHECK(BlockView::Parse(std::as_bytes(std::span(block_)), kind).ok());
  std::string finished = std::move(block_);
  Clear();
  return finished;
}

Result<BlockView> BlockView::Parse(std::span<const std::byte> block, BlockKind kind) {
  if (block.size() < sizeof(BlockHeader)) return Bad("shorter than its header");
  const auto header = LoadAs<BlockHeader>(block.data());
  if (header.magic != kBlockMagic) return Bad("no magic");
  if (header.kind != static_cast<uint16_t>(kind)) {
    return Bad("of kind " + std::to_string(header.kind) + ", expected " +
               std::to_string(static_cast<uint16_t>(kind)));
  }
  const uint64_t restarts = uint64_t{header.restart_count} * sizeof(uint32_t);
  if (AlignUp(header.bytes, kTableAlignment) != block.size() || header.restart_count == 0 ||
      sizeof(header) + restarts + header.filter_bytes > header.bytes ||
      (header.filter_bytes > 0) != (kind == BlockKind::kPartition)) {
    return Bad("impossible sizes");
  }
  BlockView view;
  view.data_ = reinterpret_cast<const char*>(block.data());
  view.restart_count_ = header.restart_count;
  view.filter_ = block.subspan(header.bytes - header.filter_bytes, header.filter_bytes);
  view.entries_end_ = header.bytes - header.filter_bytes - static_cast<uint32_t>(restarts);
  uint32_t least = sizeof(header);
  for (uint32_t i = 0; i < header.restart_count; ++i) {
    const auto restart = LoadAs<uint32_t>(view.data_ + view.entries_end_ + i * sizeof(uint32_t));
    if (CAIRN_KEPT(kBoundOfRestart) &&
        (restart < least || restart >= view.entries_end_ || (i == 0 && restart != least))) {
      return Bad("impossible restart " + std::to_string(i));
    }
    least = restart + 1;
  }
  return view;
}

uint32_t BlockIterator::RestartOffset(uint32_t index) const {
  CAIRN_CHECK(index < block_.restart_count_);
  return LoadAs<uint32_t>(block_.data_ + block_.entries_end_ + index * sizeof(uint32_t));
}

void BlockIterator::Enter(const BlockView& block) {
  block_ = block;
  valid_ = false;
  damaged_ = false;
}

void BlockIterator::Damaged() {
  valid_ = false;
  damaged_ = true;
}

void BlockIterator::Decode(bool first) {
  entry_ = next_;
  valid_ = next_ < block_.entries_end_;
  if (!valid_) return;
  const char* const end = block_.data_ + block_.entries_end_;
  uint64_t shared = 0;
  uint64_t tail = 0;
  uint64_t code = 0;
  const char* at = GetVarint(block_.data_ + next_, end, &shared);
  if (at != nullptr) at = GetVarint(at, end, &tail);
  if (at != nullptr) at = GetVarint(at, end, &code);
  const uint64_t value_bytes = code == 0 ? 0 : code - 1;
  const auto left = static_cast<uint64_t>(at == nullptr ? 0 : end - at);
  const bool passes_end = tail > left || value_bytes > left - tail;
  if (at == nullptr || shared > key_.size() || (CAIRN_KEPT(kBoundOfEntry) && passes_end) ||
      shared + tail > kMaxKeyBytes) {
    return Damaged();
  }
  // Larger than the key before: it continues that key, or has a larger byte where they differ.
  const std::string_view bytes(at, static_cast<size_t>(tail));
  if (!first && std::string_view(key_).substr(static_cast<size_t>(shared)) >= bytes) {
    return Damaged();
  }
  key_.resize(static_cast<size_t>(shared));
  key_.append(bytes);
  at += tail;
  value_.reset();
  if (code > 0) value_ = std::string_view(at, static_cast<size_t>(value_bytes));
  next_ = static_cast<uint32_t>(at - block_.data_) + static_cast<uint32_t>(value_bytes);
  CAIRN_CHECK(next_ > entry_);
  CAIRN_CHECK(next_ <= block_.entries_end_);
}

void BlockIterator::GoToRestart(uint32_t index) {
  next_ = RestartOffset(index);
  key_.clear();
  damaged_ = false;
  Decode(/*first=*/true);
}

void BlockIterator::SeekToFirst() { GoToRestart(0); }

void BlockIterator::Next() {
  CAIRN_CHECK(valid_);
  CAIRN_CHECK(!damaged_);
  Decode(/*first=*/false);
}

void BlockIterator::Seek(std::string_view target) {
  // The last restart whose key is less than the target, or the first of all.
  uint32_t low = 0;
  uint32_t high = block_.restart_count_;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    GoToRestart(middle);
    if (!valid_) return Damaged();
    (key_ < target ? low : high) = middle;
  }
  GoToRestart(low);
  while (valid_ && key_ < target) Decode(/*first=*/false);
}

bool BlockIterator::RestartsFit(const BlockView& block) {
  BlockIterator walk(block);
  BlockIterator jump(block);
  uint32_t restart = 0;
  for (walk.SeekToFirst(); walk.valid() && restart < block.restart_count_; walk.Next()) {
    if (walk.offset() != walk.RestartOffset(restart)) continue;
    jump.GoToRestart(restart++);
    if (!jump.valid() || jump.key() != walk.key()) return false;
  }
  return restart == block.restart_count_;
}

}  // namespace cairn::sstable
