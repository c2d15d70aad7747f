// SPDX-License-Identifier: Apache-2.0
//
// Layers of a draft on their way from a GPU: each is gathered into the draft's staging memory, by a
// job, when its event was reached.
//
// Thread-safe. Stop may wait; no lock may be held around it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/core/mutex.h"
#include "cairn/kv_view.h"
#include "engine/commit/arrivals.h"
#include "engine/commit/staging.h"
#include "engine/commit/write_means.h"

namespace cairn::engine {

class GpuPuts : public std::enable_shared_from_this<GpuPuts> {
 public:
  // `staging` lives until Stop returned.
  GpuPuts(const WriteMeans& means, KvStaging* staging) : means_(means), staging_(staging) {}
  GpuPuts(const GpuPuts&) = delete;
  GpuPuts& operator=(const GpuPuts&) = delete;

  // A (validated) view of one group and one layer. Its arrays live until Stop, or until arrival()
  // is there. Errors: those of GpuSources::Open.
  Status Put(uint32_t layer, const KvView& view, uintptr_t ready);
  // When all that was put is in staging memory. With an error if something cannot be.
  Arrival arrival();
  // Nothing of what is still to come is read any more.
  void Stop();

 private:
  void Run(const KvView& view, uint32_t layer, GpuSource* source);
  void End(Status status, bool ran);

  const WriteMeans& means_;
  KvStaging* const staging_;
  Mutex mutex_;
  bool stopped_ CAIRN_GUARDED_BY(mutex_) = false;
  uint32_t running_ CAIRN_GUARDED_BY(mutex_) = 0;
  Status failed_ CAIRN_GUARDED_BY(mutex_);
  std::atomic<uint32_t> pending_{0};
  std::atomic<uint32_t> version_{0};  // Changes when one has ended.
};

}  // namespace cairn::engine
