// SPDX-License-Identifier: Apache-2.0
//
// Hints: where tokens of a hash may be found. A second log-structured index beside the tree's
// (sstable/lsm_index.h), which is never needed for correctness: a search looks whether an entry is
// still true, and a store without hints rebuilds them. So entries are put blindly; those of nodes
// that are gone go when a search meets them, or with a sweep (indexer_upkeep.cc).
//
// In memory, within reuse_memory_bytes: a filter of all hashes, and what no table has yet.
//
// Thread-safe. Calls may wait for reads, so no lock may be held around them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/core/check.h"
#include "engine/find/hint_records.h"
#include "engine/find/prefix_filter.h"
#include "sstable/lsm_index.h"

namespace cairn::engine {

class Hints {
 public:
  // `live`: their tables, if there are any. kNotFound, kCorruption, kUnsupportedFormat: they are of
  // no use.
  static Result<std::unique_ptr<Hints>> Open(const sstable::TableContext& tables,
                                             std::span<const sstable::LiveTable> live,
                                             uint64_t memory_bytes);

  Status Put(std::span<const HintEntry> entries);
  // Nothing more is put before a flush.
  bool IsFull() const {
    return index_->memtable_bytes() + frozen_bytes_.load(std::memory_order_relaxed) >=
           memory_bytes_ / kFilterShare;
  }
  // False: there is none. True: there may be one.
  bool MayHave(uint64_t hash) const {
    return !filter_ready_.load(std::memory_order_acquire) || filter_.MayHave(hash);
  }
  // Every hash is in the filter.
  bool filter_ready() const { return filter_ready_.load(std::memory_order_acquire); }
  // Fills it from the tables; false from `go_on` ends it early.
  template <typename GoOn>
  Status FillFilter(const GoOn& go_on);
  // Entries of this hash and position of nodes below `before`, the newest first, at most
  // kHintScanMax. The result: where to go on, 0 behind the last. kBusy with memory_only.
  Result<uint64_t> Find(uint64_t hash, uint64_t position, uint64_t before, bool memory_only,
                        std::vector<HintEntry>* found) const;
  // Nodes and positions of each of these fingerprints, the newest first, at most kHintScanMax.
  // Reads what is not in memory in two rounds for all of them together. kBusy with memory_only.
  Result<std::vector<std::vector<HintEntry>>> FindChunks(std::span<const uint64_t> hashes,
                                                         bool memory_only) const;
  // Reads all that Find needs for these keys, in two rounds for all of them together.
  void ReadAhead(std::span<const uint64_t> hashes) const;
  // Deletes entries, of nodes that are gone. Fails as Put does, and when there is no room: they
  // stay then.
  Status Forget(std::span<const HintEntry> entries);
  // Calls on_entry(entry) of all, until it returns false.
  template <typename OnEntry>
  Status ForEach(const OnEntry& on_entry) const;

  // About: of what the tables have, that is gone since.
  uint64_t dead_tokens() const { return dead_tokens_.load(std::memory_order_relaxed); }
  void AddDead(uint64_t tokens) { dead_tokens_.fetch_add(tokens, std::memory_order_relaxed); }
  void TakeDead(uint64_t tokens) { dead_tokens_.fetch_sub(tokens, std::memory_order_relaxed); }

  // Since this was opened: of prefixes, of chunks.
  uint64_t entries_put() const { return entries_put_.load(std::memory_order_relaxed); }
  uint64_t chunks_put() const { return chunks_put_.load(std::memory_order_relaxed); }
  uint64_t memory_bytes() const { return index_->stats().memtable_bytes + filter_.bytes(); }

  // --- The space thread's
  // All that was put so far goes into a table. Errors: those of LsmIndex; it is in memory then.
  Status Flush();
  sstable::LsmIndex& index() { return *index_; }

 private:
  // Those of one key. Errors: those of the scan, kCorruption.
  static Status FindChunksOf(const std::string& key, sstable::RecordIterator* scan,
                             std::vector<HintEntry>* found);
  Status FlushFrozen();
  Hints(std::unique_ptr<sstable::LsmIndex> index, uint64_t memory_bytes)
      : index_(std::move(index)),
        memory_bytes_(memory_bytes),
        filter_(memory_bytes / kFilterShare) {}

  const std::unique_ptr<sstable::LsmIndex> index_;
  const uint64_t memory_bytes_;
  PrefixFilter filter_;
  std::atomic<bool> filter_ready_{false};
  std::atomic<uint64_t> entries_put_{0}, chunks_put_{0}, dead_tokens_{0};
  std::atomic<uint64_t> frozen_bytes_{0};  // What is being flushed, or could not be.
  uint64_t flushes_ = 0;
  uint64_t dead_written_ = 0;  // As the newest table, or memtable, has it.
};

template <typename OnEntry>
Status Hints::ForEach(const OnEntry& on_entry) const {
  const auto scan = index_->NewScan({.end = std::string(kChunksEnd), .read = {}});
  for (scan->Seek({&kPrefixLetter, 1}); scan->valid(); scan->Next()) {
    const char letter = scan->key().front();
    if (letter != kPrefixLetter && letter != kChunkLetter) continue;  // Reserved ones.
    const auto entry = letter == kPrefixLetter ? GetPrefix(scan->key(), *scan->value())
                                               : GetChunk(scan->key(), *scan->value());
    if (!entry.has_value()) return Status(StatusCode::kCorruption, "hints: no such record");
    if (!on_entry(*entry)) return Status::Ok();
  }
  return scan->status();
}

template <typename GoOn>
Status Hints::FillFilter(const GoOn& go_on) {
  bool all = true;
  CAIRN_RETURN_IF_ERROR(ForEach([&](const HintEntry& entry) {
    filter_.Add(entry.hash);
    return all = go_on();
  }));
  if (all) filter_ready_.store(true, std::memory_order_release);
  return Status::Ok();
}

}  // namespace cairn::engine
