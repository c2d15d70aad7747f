// SPDX-License-Identifier: Apache-2.0
//
// The implementation of SparseSession. One fetch at a time:
//
//   enqueued   the pieces go to the device, slots are found, pieces are gathered; then an event
//   looked at  strict: when the event is reached; relaxed: by a later fetch
//   read       pages of faults, by the caller (strict) or in the background; enqueued again
//
// Captured fetches are enqueued once, into a graph of the caller; its replays are looked at like
// relaxed fetches (sparse_session_replay.cc).
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/io/executor.h"
#include "cairn/sparse.h"
#include "engine/sessions/sparse/background_reads.h"
#include "engine/sessions/sparse/sparse_arena.h"
#include "engine/sessions/sparse/sparse_memory.h"
#include "engine/sessions/sparse/sparse_source.h"

namespace cairn {

class [[gnu::visibility("hidden")]] SparseSessionState final : public engine::PageUser {
 public:
  // `source` replaces options.end and the branch.
  static Result<std::shared_ptr<SparseSessionState>> Make(
      std::shared_ptr<SparseArenaState> arena, std::shared_ptr<const engine::SparseSource> source,
      const SparseOptions& options);
  ~SparseSessionState() override;
  static void Destroy(SparseSessionState * state);
  SparseSessionState(const SparseSessionState&) = delete;
  SparseSessionState& operator=(const SparseSessionState&) = delete;

  Result<SparseView> Fetch(const SparseWanted& wanted);
  Status Prefetch(const SparseWanted& wanted);
  Result<SparseView> Capture(const SparseWanted& wanted);
  // `sessions`: each once, in an order that all callers have.
  static Status Replay(std::span<SparseSessionState* const> sessions, uintptr_t stream,
                       const std::function<Status()>& launch);
  Status Save();
  // Null: the branch has no tokens any more.
  Status Extend(std::shared_ptr<const engine::SparseSource> source);
  Status AwaitEnqueued();  // REQUIRES: nobody fetches.
  BranchId branch() const { return branch_; }
  uint32_t pieces() const;
  uint64_t device_bytes() const { return memory_->device_bytes(); }
  const SparseArenaState& arena() const { return *arena_; }
  SparseStats stats() const { return counters_.Stats(); }

  // --- PageUser
  void Map(size_t index, std::byte * page) override;
  bool TakeUsed(size_t index) override;
  Status AwaitReaders(size_t index) override;
  bool Has(const engine::PageKey& key) const override;

 private:
  struct Layer {
    gpu::Event ended{};
    bool has_event = false;
    bool is_spoiled = false;   // Slots may claim pieces that were never copied there.
    bool is_pending = false;   // A relaxed fetch of it was not checked yet.
    bool is_captured = false;  // Replays fetch captured_count pieces per head. By both turns.
    uint32_t captured_count = 0;
  };

  SparseSessionState(std::shared_ptr<SparseArenaState> arena,
                     std::shared_ptr<const engine::SparseSource> source)
      : arena_(std::move(arena)), branch_(source->branch()), source_(std::move(source)) {}
  static Status Bad(const std::string& what);
  Status Open(const SparseOptions& options);
  Status CheckWanted(const SparseWanted& wanted) const;
  Status Warm();
  Status WarmLayer(uint32_t layer, std::span<const std::vector<uint32_t>> heads,
                   gpu::Stream stream);
  Status AwaitStaging(const SparseWanted& wanted);
  Status Stage(const SparseWanted& wanted);
  std::vector<gpu::CopyPiece> PiecesToDevice(const SparseWanted& wanted, const uint32_t* counts)
      const;
  Status Enqueue(const SparseWanted& wanted, gpu::Stream stream, bool with_pieces);
  Status EnqueueKernels(const SparseWanted& wanted, gpu::Stream stream,
                        std::span<const gpu::CopyPiece> copies);
  Result<SparseView> FetchStaged(const SparseWanted& wanted, gpu::Stream stream);
  Result<SparseView> FetchSome(const SparseWanted& wanted, gpu::Stream stream);
  SparseView ViewOf(uint32_t layer) const;
  Status ReportWrong(uint32_t layer) const;
  // Pages that the layer's last fetch lacked, and how many pieces these were.
  std::set<size_t> FaultsOf(uint32_t layer, uint64_t * pieces) const;
  Status BringPages(std::span<const size_t> pages, uint64_t timeout_ns);
  // A layer's work, and replays that fetch for it, take these.
  Status WasRewound() const;  // REQUIRES: the turn.
  Status AwaitLayer(uint32_t layer, uint64_t deadline_ns = io::kNoDeadline) const;
  Result<bool> HasEnded(uint32_t layer) const;
  Status LookAtPending(bool is_replay = false);
  bool NoteFaults(uint32_t layer, bool is_last);
  Status PrepareReplay();
  Status BeginReplay(gpu::Stream stream);
  Status EndReplay(gpu::Stream stream, bool is_launched);
  Status SendPieces(uint32_t pieces);

  size_t IndexOf(uint32_t layer, uint32_t head, uint32_t page) const {
    return (size_t{layer} * layout_.heads + head) * layout_.pages + page;
  }
  uint32_t LayerOf(size_t index) const {
    return static_cast<uint32_t>(index / (size_t{layout_.heads} * layout_.pages));
  }
  size_t InLayer(size_t index) const { return index % (size_t{layout_.heads} * layout_.pages); }
  bool IsMapped(size_t index) const;
  engine::PageKey KeyOf(size_t index) const;
  void Count(std::atomic<uint64_t> engine::SparseCounters::*counter, uint64_t more);

  const std::shared_ptr<SparseArenaState> arena_;
  const engine::GpuWaits& waits_ = arena_->waits();
  const uint64_t process_id_ = waits_.scheduler().ProcessId();
  const BranchId branch_;
  // Both change only while nobody fetches and no job runs. Prefetch reads layout_.pieces.
  std::shared_ptr<const engine::SparseSource> source_;
  mutable engine::SparseLayout layout_;
  uint64_t taken_bytes_ = 0;  // Its part of the arena's room on the device.
  std::unique_ptr<engine::SparseMemory> memory_;
  engine::SparseCounters counters_;

  io::Turn turn_{waits_.scheduler()};  // Held by the fetching thread.
  // Held by the enqueuing thread, up to the event: else a page that no table names any more might
  // not be waited for long enough.
  io::Turn enqueue_turn_{waits_.scheduler()};
  bool is_lost_ = false;       // Enqueued work cannot be waited for. By enqueue_turn_.
  std::vector<Layer> layers_;  // By turn_; the events, by enqueue_turn_.
  gpu::Event replayed_{};      // Behind the last replay; made by the first capture. As layers_.
  bool has_replayed_event_ = false;
  bool has_sent_pieces_ = true;  // Else the device may take pieces beyond the last. By turn_.
  uint32_t look_from_ = 0;       // The first layer that found no room in reads_. By turn_.

  engine::BackgroundReads reads_{&waits_.scheduler(), &arena_->background(),
                                 [this](std::span<const size_t> pages) {
                                   const io::Turn::Holder turn(arena_->pool().turn());
                                   return BringPages(pages, UINT64_MAX);
                                 }};
};

}  // namespace cairn
