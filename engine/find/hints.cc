// SPDX-License-Identifier: Apache-2.0
#include "engine/find/hints.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "engine/config/constants.h"

namespace cairn::engine {

Result<std::unique_ptr<Hints>> Hints::Open(const sstable::TableContext& tables,
                                           std::span<const sstable::LiveTable> live,
                                           uint64_t memory_bytes) {
  const sstable::MergeShape shape{.table_bytes = kIndexTableBytes,
                                  .level1_bytes = kIndexLevel1Bytes};
  CAIRN_ASSIGN_OR_RETURN(auto index, sstable::LsmIndex::Open({tables, shape}, live));
  std::unique_ptr<Hints> hints(new Hints(std::move(index), std::max(memory_bytes, kHintMemoryMin)));
  if (live.empty()) {
    sstable::WriteBatch head = hints->index_->NewBatch();
    CAIRN_RETURN_IF_ERROR(head.Put(kHintHeadKey, HintHeadValue()));
    hints->index_->Apply(std::move(head));
    hints->filter_ready_.store(true, std::memory_order_release);
    return hints;
  }
  const std::array<std::string_view, 2> keys{kHintHeadKey, kHintDeadKey};
  std::vector<sstable::LookupResult> records = hints->index_->MultiGet(keys);
  CAIRN_ASSIGN_OR_RETURN(const auto head, std::move(records[0]));
  CAIRN_ASSIGN_OR_RETURN(const auto dead, std::move(records[1]));
  if (!head.has_value() || *head != HintHeadValue()) {
    return Status(StatusCode::kUnsupportedFormat, "hints of another version");
  }
  const auto tokens = dead.has_value() ? GetHintDead(*dead) : std::optional<uint64_t>(0);
  if (!tokens.has_value()) return Status(StatusCode::kCorruption, "hints: no such record");
  hints->AddDead(*tokens);
  hints->dead_written_ = *tokens;
  return hints;
}

Status Hints::Put(std::span<const HintEntry> entries) {
  sstable::WriteBatch batch = index_->NewBatch();
  for (const HintEntry& entry : entries) {
    CAIRN_RETURN_IF_ERROR(batch.Put(KeyOf(entry), ValueOf(entry)));
  }
  uint64_t chunks = 0;
  for (const HintEntry& entry : entries) {
    filter_.Add(entry.hash);
    chunks += entry.kind == HintKind::kChunk;
  }
  index_->Apply(std::move(batch));
  entries_put_.fetch_add(entries.size() - chunks, std::memory_order_relaxed);
  chunks_put_.fetch_add(chunks, std::memory_order_relaxed);
  return Status::Ok();
}

Result<uint64_t> Hints::Find(uint64_t hash, uint64_t position, uint64_t before, bool memory_only,
                             std::vector<HintEntry>* found) const {
  const std::string prefix = PrefixKeysOf(hash);
  const auto scan =
      index_->NewScan({.end = std::string(kPrefixesEnd), .read = {.memory_only = memory_only}});
  size_t seen = 0;
  uint64_t last = 0;
  for (scan->Seek(PrefixKey(hash, before - 1)); scan->valid() && scan->key().starts_with(prefix);
       scan->Next()) {
    if (seen++ == kHintScanMax) return last;
    const auto entry = GetPrefix(scan->key(), *scan->value());
    if (!entry.has_value()) return Status(StatusCode::kCorruption, "hints: no such record");
    if (entry->position == position) found->push_back(*entry);
    last = entry->node;
  }
  CAIRN_RETURN_IF_ERROR(scan->status());
  return uint64_t{0};
}

Status Hints::FindChunksOf(const std::string& key, sstable::RecordIterator* scan,
                           std::vector<HintEntry>* found) {
  found->clear();
  for (scan->Seek(key); scan->valid() && scan->key().starts_with(key); scan->Next()) {
    if (found->size() == kHintScanMax) break;
    const auto entry = GetChunk(scan->key(), *scan->value());
    if (!entry.has_value()) return Status(StatusCode::kCorruption, "hints: no such record");
    found->push_back(*entry);
  }
  return scan->status();
}

// What is in memory first: reading ahead takes as long as that.
Result<std::vector<std::vector<HintEntry>>> Hints::FindChunks(std::span<const uint64_t> hashes,
                                                              bool memory_only) const {
  std::vector<std::vector<HintEntry>> found(hashes.size());
  std::vector<size_t> left;
  std::vector<std::string> keys;
  const auto in_memory =
      index_->NewScan({.end = std::string(kChunksEnd), .read = {.memory_only = true}});
  for (size_t i = 0; i < hashes.size(); ++i) {
    std::string key = ChunkKeysOf(hashes[i]);
    const Status status = FindChunksOf(key, in_memory.get(), &found[i]);
    if (status.code() == StatusCode::kBusy && !memory_only) {
      left.push_back(i);
      keys.push_back(std::move(key));
    } else {
      CAIRN_RETURN_IF_ERROR(status);
    }
  }
  if (left.empty()) return found;
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  index_->ReadAhead(views);
  const auto scan = index_->NewScan({.end = std::string(kChunksEnd), .read = {}});
  for (size_t i = 0; i < left.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(FindChunksOf(keys[i], scan.get(), &found[left[i]]));
  }
  return found;
}

void Hints::ReadAhead(std::span<const uint64_t> hashes) const {
  std::vector<std::string> keys;
  for (const uint64_t hash : hashes) keys.push_back(PrefixKeysOf(hash));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  index_->ReadAhead(views);
}

Status Hints::Forget(std::span<const HintEntry> entries) {
  if (IsFull()) return Status(StatusCode::kBusy, "no room before a flush");
  sstable::WriteBatch batch = index_->NewBatch();
  for (const HintEntry& entry : entries) {
    CAIRN_RETURN_IF_ERROR(batch.Delete(KeyOf(entry)));
  }
  index_->Apply(std::move(batch));
  return Status::Ok();
}

// A flush that failed before is tried first: each new try would leave another memtable.
Status Hints::Flush() {
  CAIRN_RETURN_IF_ERROR(FlushFrozen());
  const uint64_t dead_now = dead_tokens();
  if (index_->memtable_bytes() == 0 && dead_now == dead_written_) return Status::Ok();
  sstable::WriteBatch dead = index_->NewBatch();
  CAIRN_RETURN_IF_ERROR(dead.Put(kHintDeadKey, HintDeadValue(dead_now)));
  index_->Apply(std::move(dead));
  dead_written_ = dead_now;
  // Before: what is put meanwhile is counted again, rather than not.
  frozen_bytes_ = index_->memtable_bytes();
  const auto frozen = index_->Freeze(++flushes_);
  if (!frozen.ok()) frozen_bytes_ = 0;
  CAIRN_RETURN_IF_ERROR(frozen.status());
  return FlushFrozen();
}

Status Hints::FlushFrozen() {
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const auto flushed, index_->Flush());
    if (flushed.has_value()) continue;
    frozen_bytes_ = 0;
    return Status::Ok();
  }
}

}  // namespace cairn::engine
