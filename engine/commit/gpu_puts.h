// SPDX-License-Identifier: Apache-2.0
//
// Layers of a draft on their way from a GPU: a job gathers each into the draft's staging memory
// once the event of the layer was reached.
//
// Thread-safe. Stop may wait; no lock may be held around it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/core/mutex.h"
#include "cairn/kv_view.h"
#include "engine/commit/ready_poller.h"
#include "engine/commit/staging.h"
#include "engine/commit/write_deps.h"

namespace cairn::engine {

class GpuPuts : public std::enable_shared_from_this<GpuPuts> {
 public:
  // `staging` lives until Stop returned.
  GpuPuts(const WriteDeps& deps, KvStaging* staging) : deps_(deps), staging_(staging) {}
  GpuPuts(const GpuPuts&) = delete;
  GpuPuts& operator=(const GpuPuts&) = delete;

  // A (validated) view of one group and one layer. Its arrays live until Stop, or until arrival()
  // has arrived. Errors: those of GpuSources::Open.
  Status Put(uint32_t layer, const KvView& view, uintptr_t ready);
  // A part of this layer is still on its way.
  bool IsPending(uint32_t group, uint32_t layer);
  // Arrives when everything that was put is in staging memory, with an error if a part of it cannot
  // be. From here on layers are gathered even while the store is closed.
  Arrival arrival();
  void Uncommit();  // It was not committed after all.
  // No layer that is still on its way is read after this, nor is its event polled.
  void Stop();

 private:
  struct Pending {
    uint64_t id = 0;
    uint64_t arrival = 0;  // Arrivals' number.
    uint32_t group = 0, layer = 0;
  };
  void Run(uint64_t id, const KvView& view, uint32_t layer, GpuSource* source);
  void End(uint64_t id, Status status, bool ran);
  bool HasEnded();
  Status Await(uint64_t deadline_ns, const std::function<bool()>& wanted);

  const WriteDeps& deps_;
  KvStaging* const staging_;
  Mutex mutex_;
  std::vector<Pending> pending_ CAIRN_GUARDED_BY(mutex_);
  uint64_t last_id_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint32_t running_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool stopped_ CAIRN_GUARDED_BY(mutex_) = false;
  bool committed_ CAIRN_GUARDED_BY(mutex_) = false;
  Status failed_ CAIRN_GUARDED_BY(mutex_);
  std::atomic<uint32_t> version_{0};  // Changes when one has ended.
};

}  // namespace cairn::engine
