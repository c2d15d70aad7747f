// SPDX-License-Identifier: Apache-2.0
#include "sstable/lookup_rounds.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/core/check.h"

namespace cairn::sstable {

LookupRounds::LookupRounds(std::span<const std::string_view> keys, const ReadOptions& options,
                           io::QueuePool* queues)
    : options_(options), queues_(queues) {
  const std::optional<std::string> absent;
  results_.reserve(keys.size());
  keys_.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    results_.emplace_back(absent);
    keys_.push_back({keys[i], i});
  }
  std::sort(keys_.begin(), keys_.end(), [](const Key& a, const Key& b) { return a.key < b.key; });
}

void LookupRounds::Settle(size_t key, LookupResult result) {
  CAIRN_CHECK(!keys_[key].settled);
  keys_[key].settled = true;
  results_[keys_[key].place] = std::move(result);
}

void LookupRounds::AskMemtable(const Memtable& memtable) {
  CAIRN_CHECK(wanted_.empty());  // The tables are older.
  std::erase_if(keys_, [&](const Key& key) {
    const std::optional<MaybeValue> found = memtable.Get(key.key);
    if (found && *found) results_[key.place] = std::optional<std::string>(**found);
    return found.has_value();
  });
}

void LookupRounds::AskTables(const Levels& levels) {
  FindPartitions(levels);
  Load(BlockKind::kPartition, &LookupRounds::AskFilters);
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.key, a.table) < std::tie(b.key, b.table);
  });
  while (ChooseBlocks()) Load(BlockKind::kData, &LookupRounds::AskRecords);
}

void LookupRounds::FindPartitions(const Levels& levels) {
  CAIRN_CHECK(wanted_.empty());  // They are asked once.
  CAIRN_CHECK(candidates_.empty());
  size_t newer = 0;
  for (size_t level = 0; level < kLevels; ++level) {
    const TableList& tables = levels[level];
    if (level == 0) {
      for (size_t i = 0; i < tables.size(); ++i) (void)AddPartitions(newer + i, *tables[i], 0);
    } else {
      for (size_t key = 0; key < keys_.size();) {
        const size_t i = FirstTableNotBefore(tables, keys_[key].key);
        if (i == tables.size()) break;
        const size_t behind = AddPartitions(newer + i, *tables[i], key);
        CAIRN_CHECK(behind > key);
        key = behind;
      }
    }
    newer += tables.size();
  }
}

// For the keys from `from` on that the table may have. Returns the first key behind the table.
size_t LookupRounds::AddPartitions(size_t number, const IndexTable& table, size_t from) {
  const auto first = std::partition_point(
      keys_.begin() + static_cast<ptrdiff_t>(from), keys_.end(),
      [&](const Key& key) { return key.key < std::string_view(table.info().smallest); });
  size_t begin = static_cast<size_t>(first - keys_.begin());
  while (begin < keys_.size() && keys_[begin].key <= std::string_view(table.info().largest)) {
    const auto partition = table.FindPartition(keys_[begin].key, &entry_);
    size_t end = begin + 1;
    if (partition.ok()) {
      CAIRN_CHECK(partition->has_value());  // The key is none that the table cannot have.
      while (end < keys_.size() && keys_[end].key <= std::string_view(entry_.key())) ++end;
      wanted_.push_back({number, &table, **partition, begin, end});
    } else {
      candidates_.push_back({begin, number, &table, {}, partition.status()});
    }
    begin = end;
  }
  return begin;
}

void LookupRounds::AskFilters(const Wanted& wanted, const Result<BlockView>& partition) {
  CAIRN_CHECK(wanted.begin < wanted.end);
  CAIRN_CHECK(wanted.end <= keys_.size());
  for (size_t key = wanted.begin; key < wanted.end; ++key) {
    if (!partition.ok()) {
      candidates_.push_back({key, wanted.table, wanted.of, {}, partition.status()});
      continue;
    }
    const auto block =
        wanted.of->FindBlock(keys_[key].key, *partition, wanted.block.offset, &entry_);
    if (!block.ok()) {
      candidates_.push_back({key, wanted.table, wanted.of, {}, block.status()});
    } else if (*block) {
      candidates_.push_back({key, wanted.table, wanted.of, **block, {}});
    }
  }
}

// Without asking filters: scans do not use them.
void LookupRounds::AddBlocks(const Wanted& wanted, const Result<BlockView>& partition) {
  if (!partition.ok()) return;
  for (size_t key = wanted.begin; key < wanted.end; ++key) {
    const auto block = wanted.of->BlockAt(keys_[key].key, *partition, wanted.block.offset, &entry_);
    if (block.ok()) candidates_.push_back({key, wanted.table, wanted.of, *block, {}});
  }
}

void LookupRounds::ReadAhead(const Levels& levels) {
  FindPartitions(levels);
  Load(BlockKind::kPartition, &LookupRounds::AddBlocks);
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.table, a.key) < std::tie(b.table, b.key);
  });
  wanted_.clear();
  for (const Candidate& at : candidates_) {
    if (!at.failure.ok()) continue;
    const bool same = !wanted_.empty() && wanted_.back().of == at.of;
    if (!same || wanted_.back().block != at.block) wanted_.push_back({at.table, at.of, at.block});
  }
  Load(BlockKind::kData, &LookupRounds::Leave);
}

// The newest candidate of each unsettled key. False: there is no such key.
bool LookupRounds::ChooseBlocks() {
  asked_.clear();
  std::vector<Candidate> older;
  for (Candidate& candidate : candidates_) {
    if (keys_[candidate.key].settled) continue;
    if (!asked_.empty() && asked_.back().key == candidate.key) {
      older.push_back(std::move(candidate));
    } else if (!candidate.failure.ok()) {
      Settle(candidate.key, std::move(candidate.failure));
    } else {
      asked_.push_back(std::move(candidate));
    }
  }
  candidates_ = std::move(older);
  std::sort(asked_.begin(), asked_.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.table, a.key) < std::tie(b.table, b.key);
  });
  wanted_.clear();
  for (size_t i = 0; i < asked_.size(); ++i) {
    const Candidate& asked = asked_[i];
    if (wanted_.empty() || wanted_.back().of != asked.of || wanted_.back().block != asked.block) {
      wanted_.push_back({asked.table, asked.of, asked.block, i, i});
    }
    wanted_.back().end = i + 1;
  }
  return !asked_.empty();
}

void LookupRounds::AskRecords(const Wanted& wanted, const Result<BlockView>& data) {
  CAIRN_CHECK(wanted.begin < wanted.end);
  CAIRN_CHECK(wanted.end <= asked_.size());
  for (size_t i = wanted.begin; i < wanted.end; ++i) {
    const size_t key = asked_[i].key;
    if (!data.ok()) {
      Settle(key, data.status());
      continue;
    }
    auto found = wanted.of->FindRecord(keys_[key].key, *data, wanted.block.offset, &entry_);
    if (!found.ok()) {
      Settle(key, found.status());
    } else if (*found) {
      std::optional<std::string> value;
      if (!(*found)->tombstone) value = std::move((*found)->value);
      Settle(key, std::move(value));
    }
  }
}

// Each wanted block is used as soon as it is loaded, and then released.
void LookupRounds::Load(BlockKind kind, Use use) {
  misses_.clear();
  for (const Wanted& wanted : wanted_) {
    BlockView view;
    const auto cached = wanted.of->FindCached(wanted.block, kind, &view);
    if (!cached.ok()) {
      (this->*use)(wanted, cached.status());
    } else if (*cached != nullptr) {
      (this->*use)(wanted, view);
    } else {
      misses_.push_back(&wanted);
    }
  }
  if (!options_.memory_only && misses_.size() > 1) return ReadTogether(kind, use);
  for (const Wanted* wanted : misses_) {
    BlockView view;
    const auto block = wanted->of->Load(wanted->block, kind, options_, &view);
    (this->*use)(*wanted, block.ok() ? Result<BlockView>(view) : block.status());
  }
}

struct LookupRounds::Flight {
  io::Request request;
  AlignedBuffer block;
  const Wanted* wanted = nullptr;
};

void LookupRounds::ReadTogether(BlockKind kind, Use use) {
  std::vector<Flight> flights(std::min(misses_.size(), kLookupReads));
  std::vector<Flight*> idle;
  idle.reserve(flights.size());
  for (Flight& flight : flights) idle.push_back(&flight);
  uint64_t bytes = 0;                   // In flight.
  io::QueuePool::Lease queue(queues_);  // Last, as it is destroyed first and waits for reads.
  const auto finish_one = [&] {
    auto* const flight = static_cast<Flight*>(queue->Reap()->owner);
    idle.push_back(flight);
    CAIRN_CHECK(bytes >= flight->request.length);
    bytes -= flight->request.length;
    const Wanted& wanted = *flight->wanted;
    const Status& read = flight->request.status;
    BlockView view;
    if (read.ok()) wanted.of->CountRead(flight->request.length);
    const Result<CachedBlock> block =
        read.ok() ? wanted.of->TakeRead(wanted.block, kind, std::move(flight->block), &view) : read;
    (this->*use)(wanted, block.ok() ? Result<BlockView>(view) : block.status());
  };
  for (const Wanted* wanted : misses_) {
    const uint32_t length = wanted->block.bytes;
    while (idle.empty() || (bytes > 0 && bytes + length > kLookupReadBytes)) finish_one();
    AlignedBuffer block = wanted->of->NewBlock(wanted->block);
    while (block.empty() && queue->in_flight() > 0) {  // Ending reads may free memory.
      finish_one();
      block = wanted->of->NewBlock(wanted->block);
    }
    if (block.empty()) {
      (this->*use)(*wanted, wanted->of->OutOfMemory(length));
      continue;
    }
    Flight& flight = *idle.back();
    idle.pop_back();
    flight.wanted = wanted;
    flight.block = std::move(block);
    flight.request = {.kind = io::Request::Kind::kRead,
                      .file = wanted->of->file_.get(),
                      .data = flight.block.data(),
                      .length = length,
                      .offset = wanted->block.offset,
                      .owner = &flight};
    bytes += length;
    queue->Submit(&flight.request);
  }
  while (queue->in_flight() > 0) finish_one();
  CAIRN_CHECK(bytes == 0);
  CAIRN_CHECK(idle.size() == flights.size());
}

}  // namespace cairn::sstable
