// SPDX-License-Identifier: Apache-2.0
//
// Everything that is read back: restores of one branch or of many sources, prefetches, states, and
// the reads of the space thread. It owns what reading needs and keeps for the next read: buffers,
// the page cache, open tables; and the pins on what is being read.
//
//   plan     under the lock of the tree, which ReaderCallbacks takes; pinned there
//   tiers    read-ahead records, hot tail, page cache, files (page_tier.h), each asked in order
//   sink     where the bytes go (sink.h)
//
// Thread-safe. Calls wait for reads, so no lock may be held around them. Errors: those of
// Branch::Restore.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/block_arena.h"
#include "base/core/histogram.h"
#include "base/core/memory_budget.h"
#include "base/io/executor.h"
#include "base/io/file_cache.h"
#include "cairn/metrics.h"
#include "engine/config/memory_parts.h"
#include "engine/restore/file_tier.h"
#include "engine/restore/gpu/gpu_target.h"
#include "engine/restore/pins.h"
#include "engine/restore/plan/page_cache.h"
#include "engine/restore/plan/read_ahead_buffer.h"
#include "engine/restore/plan/read_pool.h"
#include "engine/restore/plan/record_outline.h"
#include "engine/restore/plan/restore_item.h"
#include "engine/restore/plan/sink_parts.h"
#include "engine/restore/tables.h"
#include "wal/log.h"

namespace cairn::engine {

// Services that reading needs from the store.
class ReaderCallbacks {
 public:
  using Visitor = std::function<Status(const Tree&, const Head&)>;
  virtual ~ReaderCallbacks() = default;

  // Calls `look` under the lock of the tree, with the branch and its path in memory; or returns the
  // reason why that is impossible. `used`: it counts as a read of the branch if `look` succeeds.
  virtual Status VisitBranch(BranchId id, bool used, const Visitor& visit) = 0;
  // The same for the path that ends with all of a node. kNotFound.
  virtual Status VisitNode(NodeId id, const Visitor& visit) = 0;

  // A read-only store may read beside a writer: it then takes a new look at the files.
  virtual bool read_only() const = 0;
  virtual Status FollowWriter() = 0;
  virtual Result<bool> WriterLives() = 0;

  // Waits as the background's rate demands.
  virtual Status Pace(uint64_t bytes) = 0;
};

// Counters of all reads. Failed restores are counted by cause; restores that were refused for their
// arguments are not counted.
struct ReaderCounters {
  std::atomic<uint64_t> restores{0};
  // Read by completed restores.
  std::atomic<uint64_t> hot_records{0}, hot_bytes{0}, log_records{0}, log_bytes{0};
  std::atomic<uint64_t> cached_frames{0}, cached_bytes{0}, frames{0}, frame_bytes{0};
  std::atomic<uint64_t> pinned_frames{0}, pinned_bytes{0};
  std::atomic<uint64_t> failed_corruption{0}, failed_io{0}, failed_memory{0}, failed_deadline{0},
      failed_cancelled{0}, failed_other{0};
  std::atomic<uint64_t> prefetches{0}, prefetches_failed{0};
  Histogram latency;  // The latency of completed restores.
};

class Reader {
 public:
  // Names a state of a branch.
  struct StateOf {
    BranchId branch{};
    bool sampler = false;   // Else the metadata.
    uint64_t position = 0;  // The newest at or before it.
  };
  struct State {
    uint64_t position = 0;
    std::vector<std::byte> encoded;
  };
  // Used from Start on.
  struct Deps {
    ReaderCallbacks* callbacks = nullptr;
    wal::Log* log = nullptr;
    io::Executor* executor = nullptr;    // Helps callers.
    io::Executor* background = nullptr;  // Helps the space thread.
    uint32_t threads = 1;                // Threads of each executor.
  };

  // `pin_ended`: see Pins.
  Reader(const io::World& world, BlockArena* arena, const MemoryParts& memory,
         std::span<const Gpu> gpus, MemoryBudget* budget, std::function<void()> pin_ended);
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  void Start(const Deps& deps) { deps_ = deps; }
  // Sets up pinned memory of GPUs whose options ask for it. `tell` receives a line for each that
  // cannot have it.
  void OpenPinned(const std::function<void(const std::string& line)>& tell);
  // Frees what is kept for the next read: memory, open files, queues.
  void ReleaseCaches();
  // A caller, not the background, writes to the log or restores.
  void RecordUse() { used_ns_.store(world_.scheduler->MonotonicNs(), std::memory_order_relaxed); }
  // Others wait for the background now, more than it delays them.
  void Hurry(bool hurries) { hurries_.store(hurries, std::memory_order_relaxed); }
  // The background should ask little of the device at a time, since others use it.
  bool IsQuiet() const {
    return !hurries_.load(std::memory_order_relaxed) &&
           world_.scheduler->MonotonicNs() <
               used_ns_.load(std::memory_order_relaxed) + kSpaceAloneNs;
  }

  // Restores all items: one plan, one pipeline, one deadline for all. Results are in the items.
  void Restore(std::span<RestoreItem> items, uint64_t deadline_ns);
  // Loads what tables have of [begin, end) into the page cache, or into the pinned memory of a GPU,
  // as far as it fits.
  Status Prefetch(BranchId id, const PrefetchRequest& request);
  // kInvalidArgument: there is no such GPU.
  Result<GpuTarget*> FindGpu(uint32_t ordinal, const char* what) const;
  // kNotFound: the branch has no state that early.
  Result<State> ReadState(const StateOf& state);

  // Passes each record of the log, as the device has it, to `check`, from several threads. Returns,
  // by record, the result of `check` or why the record cannot be read. Neighbours are read
  // together, and one by one where that fails.
  using CheckRecord = std::function<Status(size_t index, std::span<const std::byte> record)>;
  std::vector<Status> CheckRecords(std::span<const wal::Location> records,
                                   const CheckRecord& check);

  // --- For the space thread, which alone gives back the files that it reads, so they need no pin.
  // `read_ahead` holds records that were read ahead.
  Status ReadPlan(RestorePlan plan, const RestoreRequest& request,
                  const ReadAheadBuffer* read_ahead);
  Result<std::vector<std::byte>> ReadMark(uint64_t node, bool sampler, const Mark& mark,
                                          const ReadAheadBuffer* read_ahead);
  // Reads the records of the buffer, if there is more than one. A record that cannot be read is not
  // in it.
  void Fill(ReadAheadBuffer* read_ahead);
  // Whether a record is in the memory of the log. One that is not has reached the device.
  bool IsHot(const wal::Location& location, uint32_t bytes);

  Pins& pins() { return pins_; }
  const Pins& pins() const { return pins_; }
  TableSet& tables() { return tables_; }
  const TableSet& tables() const { return tables_; }
  // The table is to be deleted: drops everything that is kept of it.
  void ForgetTable(uint64_t number);
  io::FileCache& open_files() { return open_files_; }
  PageCache& page_cache() { return page_cache_; }
  const PageCache& page_cache() const { return page_cache_; }
  // Adds figures of the pinned memory of all GPUs to `metrics`.
  void AddPinned(StoreMetrics* metrics) const;
  ReaderCounters& counters() { return counters_; }

 private:
  struct Attempt;
  using Pinned = std::unique_ptr<Pins::Pin>;
  Status PlanItem(RestoreItem* item, ItemRun* run, std::vector<Pinned>* pins);
  Status TryItems(Attempt* attempt, uint64_t* places);
  void ReportResult(uint64_t started_ns, ItemRun* run, RestoreItem* item);
  void CountFailed(StatusCode code);
  Status FindFragments(const RestoreRequest& request, ItemRun* run);
  Status FindGpu(const RestoreRequest& request, std::span<const ItemRun> others, ItemRun* run);
  Status OpenItem(const RestoreRequest& request, LayerWords* layers, ReadFor why,
                  uint64_t deadline_ns, ItemRun* run);
  void Run(std::span<ItemRun> items, ReadFor why, const ReadAheadBuffer* read_ahead,
           uint64_t deadline_ns);
  void CheckSome(std::span<const wal::Location> records, size_t first, const CheckRecord& check,
                 std::span<Status> found);
  Result<std::vector<std::byte>> ReadMarkFor(ReadFor why, uint64_t node, bool sampler,
                                             const Mark& mark, const ReadAheadBuffer* read_ahead);
  // Runs `call`, which sets a hash of the places that it reads from. If a writer has removed them,
  // the present state is looked at and `call` runs again, a few times; then kStale. An error that
  // it meets twice in the same places is returned.
  Status WhileFilesMove(const std::function<Status(uint64_t* places)>& call);
  ReadDeps DepsFor(ReadFor why, uint64_t deadline_ns);
  RecordDeps Records() { return {tables_.context().store, &outlines_}; }

  const io::World world_;
  const Allocator allocator_;
  const Allocator page_allocator_;  // For memory kept for the next restore.
  std::atomic<uint64_t> used_ns_{0};
  std::atomic<bool> hurries_{false};
  Deps deps_;
  Pins pins_;
  io::FileCache open_files_;
  TableSet tables_;
  ReadPool read_pool_;
  PageCache page_cache_;
  RecordOutlines outlines_;
  std::vector<std::unique_ptr<GpuTarget>> gpus_;
  ReaderCounters counters_;
};

}  // namespace cairn::engine
