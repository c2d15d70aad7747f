// SPDX-License-Identifier: Apache-2.0
//
// The implementation of SparseArena: the pool of pages, the device memory, and the thread that
// reads pages in the background.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/io/executor.h"
#include "cairn/gpu.h"
#include "cairn/sparse.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/write_deps.h"
#include "engine/device/gpu_waits.h"
#include "engine/restore/derived_tables.h"
#include "engine/sessions/sparse/page_pool.h"
#include "engine/sessions/sparse/sparse_counters.h"

namespace cairn {

class [[gnu::visibility("hidden")]] SparseArenaState final {
 public:
  // `keep` holds all of it.
  struct Deps {
    const engine::WriteDeps* write = nullptr;
    engine::CoalescedAppends* coalesced = nullptr;
    engine::BranchReads* reads = nullptr;
    engine::DerivedTables* derived = nullptr;
    engine::SparseTotals* totals = nullptr;
    std::shared_ptr<const void> owner{};
  };
  static Result<std::shared_ptr<SparseArenaState>> Make(Deps deps, const Gpu& gpu,
                                                        const SparseArenaOptions& options);
  SparseArenaState(Deps deps, const Gpu& gpu, std::unique_ptr<engine::PinnedArena> pinned,
                   uint64_t device_bytes);

  const Deps& deps() const { return deps_; }
  const engine::GpuWaits& waits() const { return waits_; }
  gpu::Device& device() const { return *gpu_.device(); }
  engine::PagePool& pool() { return pool_; }
  io::Executor& background() { return background_; }

  // Device memory for a session. kOutOfMemory.
  Status TakeDeviceBytes(uint64_t bytes);
  void ReturnDeviceBytes(uint64_t bytes);
  uint64_t device_bytes() const { return device_bytes_.load(); }
  uint64_t pinned_bytes() const { return pool_.used_bytes(); }

  engine::SparseCounters& counters() { return counters_; }  // Over all sessions.

 private:
  const Deps deps_;
  const Gpu gpu_;
  const engine::GpuWaits waits_;
  const uint64_t device_bytes_max_;
  std::atomic<uint64_t> device_bytes_{0};
  engine::SparseCounters counters_;
  engine::PagePool pool_;
  io::Executor background_;  // Stops first. Sessions await their jobs, so none is left by then.
};

}  // namespace cairn
