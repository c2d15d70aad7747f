// SPDX-License-Identifier: Apache-2.0
//
// What stands behind ShadowSession: a shadow on the device, and a sparse session for what it
// chooses.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/io/executor.h"
#include "cairn/shadow_session.h"
#include "engine/shadow/shadow_builder.h"
#include "engine/shadow/shadow_memory.h"
#include "engine/sparse/sparse_arena.h"
#include "engine/sparse/sparse_session.h"
#include "engine/sparse/sparse_source.h"

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
  Status Prefetch(uint32_t layer, const uint32_t* chunks, uint32_t count, uint32_t stride);
  Status Save();

  const SparseArenaState& arena() const { return *arena_; }
  const ShadowInfo& info() const { return info_; }
  uint64_t device_bytes() const;
  SparseStats stats() const { return fetches_ == nullptr ? SparseStats() : fetches_->stats(); }

 private:
  // What was chosen for a layer lies in memory that all share: of one layer at a time.
  enum class Step : uint8_t { kNone, kSelected, kFetched };
  struct Layer {
    gpu::Event ended{};
    bool has_event = false;
    uint32_t appended = 0;  // Tokens.
    Step step = Step::kNone;
    SparseView values{};  // Of the last fetch.
  };

  explicit ShadowSessionState(std::shared_ptr<SparseArenaState> arena) : arena_(std::move(arena)) {}
  Status Open(BranchId branch, const ShadowOptions& options);
  Status OpenFetches(const ShadowOptions& options);
  Status FindTable(const ShadowOptions& options, engine::DerivedTables::Found* found);
  Status Load(const ShadowOptions& options);
  Status LoadTable(const ShadowOptions& options, engine::DeviceUpload* upload);
  Status LoadNewest(engine::DeviceUpload * upload) const;
  Status CheckLayer(uint32_t layer) const;
  engine::ShadowMeans ShadowMeansOf() const;
  template <typename Enqueue>
  Status OnStream(uint32_t layer, uintptr_t handle, const Enqueue& enqueue);

  const std::shared_ptr<SparseArenaState> arena_;
  const engine::GpuWaits& waits_ = arena_->waits();
  const uint64_t process_id_ = waits_.scheduler().ProcessId();
  std::shared_ptr<const engine::SparseSource> source_;
  engine::ShadowShape shape_;
  ShadowInfo info_;
  uint32_t query_heads_ = 0, append_tokens_ = 0;
  uint64_t taken_bytes_ = 0;                     // Of the arena's room on the device.
  std::shared_ptr<SparseSessionState> fetches_;  // Null: attention is dense.
  std::unique_ptr<engine::ShadowMemory> memory_;

  mutable io::Turn turn_{waits_.scheduler()};
  // By turn_.
  bool is_lost_ = false;  // What was enqueued cannot be waited for.
  std::vector<Layer> layers_;
};

}  // namespace cairn
