// SPDX-License-Identifier: Apache-2.0
//
// A block of an index table: sorted entries with shared prefixes, restart points to search them by,
// and in partitions a bloom filter. Data blocks, partitions and the root differ only in the meaning
// of their values.
//
// A block that was read is untrusted until BlockView::Parse accepted it, and its entries until they
// are walked: whatever its bytes are, the classes here read nothing outside the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"
#include "sstable/index_format.h"

namespace cairn::sstable {

// The value of a record; null: it was deleted.
using MaybeValue = std::optional<std::string_view>;

class BlockBuilder {
 public:
  BlockBuilder() { Clear(); }

  // Keys strictly ascending.
  void Add(std::string_view key, MaybeValue value);

  bool empty() const { return restarts_.empty(); }
  const std::string& last_key() const { return last_key_; }
  // Bytes of the block so far, without filter and padding.
  size_t bytes() const { return block_.size() + restarts_.size() * sizeof(uint32_t); }
  // Upper bound of bytes() after Add of such an entry.
  size_t BytesWith(std::string_view key, MaybeValue value) const;

  // The whole block, padded, its hash not yet filled in (SealBlock). Clears the builder.
  std::string Finish(BlockKind kind, std::string_view filter);

 private:
  void Clear();

  std::string block_;  // Room for the header, then the entries.
  std::vector<uint32_t> restarts_;
  size_t since_restart_ = 0;
  std::string last_key_;
};

// A block in memory that another object owns.
class BlockView {
 public:
  BlockView() = default;

  // Checks everything except the hash (CheckSeal) and the entries. The message names the damage,
  // without the place.
  static Result<BlockView> Parse(std::span<const std::byte> block, BlockKind kind);

  std::span<const std::byte> filter() const { return filter_; }

 private:
  friend class BlockIterator;
  const char* data_ = nullptr;
  uint32_t entries_end_ = 0;
  uint32_t restart_count_ = 0;
  std::span<const std::byte> filter_;
};

// Walks the entries in order. An entry that does not decode, or a key that is not larger than the
// one before, ends the walk: not valid and damaged().
class BlockIterator {
 public:
  BlockIterator() = default;
  explicit BlockIterator(const BlockView& block) : block_(block) {}
  // Like an iterator made for the block, but reuses this one's memory for keys.
  void Enter(const BlockView& block);

  void SeekToFirst();
  // To the first key that is not less than the target.
  void Seek(std::string_view target);
  void Next();

  bool valid() const { return valid_; }
  bool damaged() const { return damaged_; }
  uint32_t offset() const { return entry_; }  // Within the block, of the current entry.
  const std::string& key() const { return key_; }
  // Null for a tombstone. Points into the block.
  const MaybeValue& value() const { return value_; }

  // Whether each restart point is an entry of the walk, so that Seek finds what a walk shows. For
  // verification: decodes up to the last one.
  static bool RestartsFit(const BlockView& block);

 private:
  uint32_t RestartOffset(uint32_t index) const;
  void GoToRestart(uint32_t index);
  void Decode(bool first);
  void Damaged();

  BlockView block_;
  uint32_t entry_ = 0;  // Where the current entry begins.
  uint32_t next_ = 0;   // Behind it.
  bool valid_ = false;
  bool damaged_ = false;
  std::string key_;
  MaybeValue value_;
};

}  // namespace cairn::sstable
