// SPDX-License-Identifier: Apache-2.0
//
// Looks up many keys in the tables of an index, in rounds: the reads of one round are issued
// together, and a round begins when all reads of the one before have ended.
//   1. the partitions that may know a key, of every table and level: their filters say which data
//      blocks may hold it
//   2. of each key the newest of these blocks
//   3. for the keys that it does not hold (a filter lets 0.8 % of absent keys pass) the next newer
//      one, and so on
// Keys are processed in their order, so those in one block share its cache look-up, its read and
// its check. A failed block counts for a key where LsmIndex::Get would have met it: after the newer
// tables, and not at all when one of those has the key.
//
// Memory: lists that grow, of 32 bytes for each key, 64 for each data block that a filter passes
// for a key and 48 for each wanted block; at most kLookupReads blocks being read, which the
// cache then owns; and the answers, whose values are allocations unless short. One thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/io/queue_pool.h"
#include "sstable/index_table.h"
#include "sstable/memtable.h"
#include "sstable/merge_job.h"

namespace cairn::sstable {

// Nothing: the key is absent or deleted.
using LookupResult = Result<std::optional<std::string>>;

class LookupRounds {
 public:
  // The referenced arguments outlive this.
  LookupRounds(std::span<const std::string_view> keys, const ReadOptions& options,
               io::QueuePool* queues);
  LookupRounds(const LookupRounds&) = delete;
  LookupRounds& operator=(const LookupRounds&) = delete;

  // Call from the newest to the oldest; then the tables, once.
  void AskMemtable(const Memtable& memtable);
  void AskTables(const Levels& levels);
  // Instead of all that: reads the blocks where the keys are or would be, two rounds, and looks
  // nothing up. Errors are not reported: the later read meets them.
  void ReadAhead(const Levels& levels);
  // In the order of the keys that were given.
  std::vector<LookupResult> TakeResults() { return std::move(results_); }

 private:
  struct Key {
    std::string_view key;
    size_t place = 0;  // Index in the caller's order.
    bool settled = false;
  };
  // A data block that may hold a key, or the error that hides whether it does.
  struct Candidate {
    size_t key = 0;    // Index in keys_.
    size_t table = 0;  // Number of newer tables.
    const IndexTable* of = nullptr;
    BlockHandle block;
    Status failure;
  };
  // A block and who needs it: [begin, end) of the keys, or of asked_.
  struct Wanted {
    size_t table = 0;
    const IndexTable* of = nullptr;
    BlockHandle block;
    size_t begin = 0, end = 0;
  };
  struct Flight;
  using Use = void (LookupRounds::*)(const Wanted&, const Result<BlockView>&);

  void Settle(size_t key, LookupResult result);
  void FindPartitions(const Levels& levels);
  size_t AddPartitions(size_t number, const IndexTable& table, size_t from);
  void AskFilters(const Wanted& wanted, const Result<BlockView>& partition);
  void AddBlocks(const Wanted& wanted, const Result<BlockView>& partition);
  void Leave(const Wanted&, const Result<BlockView>&) {}
  bool ChooseBlocks();
  void AskRecords(const Wanted& wanted, const Result<BlockView>& data);
  void Load(BlockKind kind, Use use);
  void ReadTogether(BlockKind kind, Use use);

  const ReadOptions options_;
  io::QueuePool* const queues_;
  std::vector<LookupResult> results_;
  std::vector<Key> keys_;  // Sorted; those that no memtable has.
  std::vector<Candidate> candidates_;
  std::vector<Candidate> asked_;       // In this round: one for each unsettled key.
  std::vector<Wanted> wanted_;         // In this round.
  std::vector<const Wanted*> misses_;  // Those that are not in the cache.
  BlockIterator entry_;
};

}  // namespace cairn::sstable
