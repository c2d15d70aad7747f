// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/hints.h"

#include <string>
#include <utility>

#include "engine/constants.h"

namespace cairn::engine {

Result<std::unique_ptr<Hints>> Hints::Open(const sstable::TableContext& tables,
                                           std::span<const sstable::LiveTable> live,
                                           uint64_t memory_bytes) {
  const sstable::MergeShape shape{.table_bytes = kIndexTableBytes,
                                  .level1_bytes = kIndexLevel1Bytes};
  CAIRN_ASSIGN_OR_RETURN(auto index, sstable::LsmIndex::Open({tables, shape}, live));
  std::unique_ptr<Hints> hints(new Hints(std::move(index), memory_bytes));
  if (live.empty()) {
    sstable::WriteBatch head = hints->index_->NewBatch();
    CAIRN_RETURN_IF_ERROR(head.Put(kHintHeadKey, HintHeadValue()));
    hints->index_->Apply(std::move(head));
    hints->filter_ready_.store(true, std::memory_order_release);
    return hints;
  }
  CAIRN_ASSIGN_OR_RETURN(const auto head, hints->index_->Get(kHintHeadKey));
  if (!head.has_value() || *head != HintHeadValue()) {
    return Status(StatusCode::kUnsupportedFormat, "hints of another version");
  }
  return hints;
}

Status Hints::Put(std::span<const PrefixEntry> entries) {
  sstable::WriteBatch batch = index_->NewBatch();
  for (const PrefixEntry& entry : entries) {
    CAIRN_RETURN_IF_ERROR(
        batch.Put(PrefixKey(entry.hash, entry.node), PrefixValue(entry.position)));
  }
  for (const PrefixEntry& entry : entries) filter_.Add(entry.hash);
  index_->Apply(std::move(batch));
  entries_put_.fetch_add(entries.size(), std::memory_order_relaxed);
  return Status::Ok();
}

Status Hints::Find(uint64_t hash, uint64_t position, bool memory_only,
                   std::vector<PrefixEntry>* found) const {
  const std::string prefix = PrefixKeysOf(hash);
  const auto scan =
      index_->NewScan({.end = std::string(kPrefixesEnd), .read = {.memory_only = memory_only}});
  size_t seen = 0;
  for (scan->Seek(prefix); scan->valid() && scan->key().starts_with(prefix) && seen < kHintScanMax;
       scan->Next(), ++seen) {
    const auto entry = GetPrefix(scan->key(), *scan->value());
    if (!entry.has_value()) return Status(StatusCode::kCorruption, "hints: no such record");
    if (entry->position == position) found->push_back(*entry);
  }
  return scan->status();
}

Status Hints::Flush() {
  CAIRN_RETURN_IF_ERROR(index_->Freeze(++flushes_).status());
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const auto flushed, index_->Flush());
    if (!flushed.has_value()) return Status::Ok();
  }
}

}  // namespace cairn::engine
