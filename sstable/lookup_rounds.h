// SPDX-License-Identifier: Apache-2.0
//
// Looks for many keys in the tables of an index, in rounds: what a round needs of the device is
// read together, and a round begins when the one before has all it read.
//   1. the partitions that may know a key, of every table and level: their filters say which data
//      blocks may hold it
//   2. of each key the newest of these blocks
//   3. for the keys that it does not hold (a filter lets 0.8 % of absent keys pass) the next newer
//      one, and so on
// Keys are worked on in their order, so those of one block share its search in the cache, its read
// and its check. What fails of a key's blocks counts where LsmIndex::Get would have met it: behind
// the newer tables, and not at all when one of those has the key.
//
// Memory: lists that grow, of 32 bytes for each key, 64 for each data block that a filter passes
// for one and 48 for each block that is wanted; the blocks that are being read, at most
// kLookupReads, which then are the cache's; and of each key its answer, whose value is an
// allocation if it is not short. One thread at a time.
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
  // What the arguments name outlives this.
  LookupRounds(std::span<const std::string_view> keys, const ReadOptions& options,
               io::QueuePool* queues);
  LookupRounds(const LookupRounds&) = delete;
  LookupRounds& operator=(const LookupRounds&) = delete;

  // From the newest to the oldest; then the tables, once.
  void AskMemtable(const Memtable& memtable);
  void AskTables(const Levels& levels);
  // Instead of all that: reads where the keys are or would be, two rounds, and asks nothing. What
  // fails is met by who reads it then.
  void ReadAhead(const Levels& levels);
  // In the order of the keys that were given.
  std::vector<LookupResult> TakeResults() { return std::move(results_); }

 private:
  struct Key {
    std::string_view key;
    size_t place = 0;  // Among those that were given.
    bool settled = false;
  };
  // A data block that may hold a key, or why that cannot be said.
  struct Candidate {
    size_t key = 0;    // Among keys_.
    size_t table = 0;  // How many newer tables there are.
    const IndexTable* of = nullptr;
    BlockHandle block;
    Status failure;
  };
  // A block, and who needs it: [begin, end) of the keys, or of those that are asked for.
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
  std::vector<Key> keys_;  // In order; those that no memtable knew.
  std::vector<Candidate> candidates_;
  std::vector<Candidate> asked_;       // In this round: one for each key that goes on.
  std::vector<Wanted> wanted_;         // In this round.
  std::vector<const Wanted*> misses_;  // Of these, not in the cache.
  BlockIterator entry_;
};

}  // namespace cairn::sstable
