// SPDX-License-Identifier: Apache-2.0
//
// The state behind ShadowSession: a shadow on the device, and a sparse session for the chunks that
// it chooses.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/io/executor.h"
#include "cairn/shadow_session.h"
#include "engine/sessions/shadow/session_vectors.h"
#include "engine/sessions/shadow/shadow_builder.h"
#include "engine/sessions/shadow/shadow_memory.h"
#include "engine/sessions/shadow/shadow_parts.h"
#include "engine/sessions/sparse/sparse_arena.h"
#include "engine/sessions/sparse/sparse_session.h"
#include "engine/sessions/sparse/sparse_source.h"

namespace cairn {

class [[gnu::visibility("hidden")]] ShadowSessionState final {
 public:
  static Result<std::shared_ptr<ShadowSessionState>> Make(
      std::shared_ptr<SparseArenaState> arena, BranchId branch, const ShadowOptions& options);
  ~ShadowSessionState();
  static void Destroy(ShadowSessionState * state);
  ShadowSessionState(const ShadowSessionState&) = delete;
  ShadowSessionState& operator=(const ShadowSessionState&) = delete;

  Status Select(const ShadowQuery& query);
  Status Fetch(const ShadowFetch& fetch);
  Status Rebuild(uint32_t layer, uintptr_t stream);
  Result<ShadowView> View(uint32_t layer) const;
  Status Append(const ShadowRows& rows);
  Status Extend(uint64_t end);
  Status Prefetch(uint32_t layer, const uint32_t* chunks, uint32_t count, uint32_t stride);
  Status Save();

  const SparseArenaState& arena() const { return *arena_; }
  ShadowInfo info() const;
  uint64_t device_bytes() const;
  SparseStats stats() const;

 private:
  // A layer's selection lies in memory that all layers share: one layer at a time.
  enum class Step : uint8_t { kNone, kSelected, kFetched };
  struct Layer {
    gpu::Event ended{};
    bool has_event = false;
    uint32_t appended = 0;  // Tokens.
    Step step = Step::kNone;
    SparseView values{};  // What the last fetch returned.
  };

  ShadowSessionState(std::shared_ptr<SparseArenaState> arena, const ShadowOptions& options)
      : arena_(std::move(arena)), options_(options) {}
  Status Open(BranchId branch);
  Status OpenFetches();
  Status OpenLowRank(engine::ShadowCapacity * room);
  SparseOptions FetchOptions() const;
  Status FindTable(engine::DerivedTables::Found * found);
  Status Load();
  Status LoadAll(engine::DeviceUpload * upload);
  using Put = std::function<Status(engine::DeviceUpload*)>;
  Status Upload(const Put& put);
  using TableWork = std::function<Status(sstable::SnapshotTable*)>;
  using Undo = std::function<Status()>;
  Status WithTable(const TableWork& work, const Undo& undo);
  Status LoadTable(engine::DeviceUpload * upload);
  Status LoadFrames(sstable::SnapshotTable * table, engine::DeviceUpload * upload);
  Status LoadNewest(engine::DeviceUpload * upload) const;
  Status Reset(std::shared_ptr<const engine::SparseSource> * source, engine::ShadowShape * shape,
               bool* renew);
  Status FitLowRank(bool* renew);
  bool HasLongerTable() const;
  Status Grow(engine::DeviceUpload * upload);
  Status PutChunks(size_t row, engine::DeviceUpload * upload);
  Status CheckLayer(uint32_t layer) const;
  Status CheckWhole() const;
  // The tokens that are always attended to, but for the newest.
  uint64_t always_tokens() const {
    return uint64_t{shape_.always_chunks()} * shape_.spec.chunk_tokens;
  }
  template <typename Enqueue>
  Status OnStream(uint32_t layer, uintptr_t handle, const Enqueue& enqueue);

  const std::shared_ptr<SparseArenaState> arena_;
  const engine::GpuWaits& waits_ = arena_->waits();
  const uint64_t process_id_ = waits_.scheduler().ProcessId();
  const ShadowOptions options_;
  uint64_t taken_bytes_ = 0;  // Its part of the arena's room on the device.
  std::unique_ptr<engine::ShadowMemory> memory_;

  mutable io::Turn turn_{waits_.scheduler()};
  // By turn_, once it is open.
  std::shared_ptr<const engine::SparseSource> source_;
  engine::ShadowShape shape_, most_;  // The present one; that of the longest context.
  ShadowInfo info_;
  std::shared_ptr<SparseSessionState> fetches_;  // Null: attention is dense.
  std::optional<engine::AlwaysChunks> always_;
  std::optional<engine::SessionVectors> low_rank_;  // None: keys are not low-rank.
  uint32_t rank_ = 0;                               // The rank that there is room for.
  bool is_whole_ = false;                           // Else Extend failed half way.
  bool is_lost_ = false;                            // Enqueued work cannot be waited for.
  std::vector<Layer> layers_;
};

}  // namespace cairn
