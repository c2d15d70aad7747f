// SPDX-License-Identifier: Apache-2.0
//
// The implementation of KvCopier.
#pragma once

#include <memory>
#include <span>

#include "cairn/copy_kv.h"
#include "engine/device/gpu_ports.h"
#include "engine/device/kv_overlap.h"

namespace cairn::engine {

class [[gnu::visibility("hidden")]] KvCopierState {
 public:
  static Result<std::shared_ptr<const KvCopierState>> Make(
      const ModelSpec& from, const ModelSpec& to, std::span<const Gpu> gpus,
      std::shared_ptr<io::Scheduler> scheduler);

  Result<uint64_t> Copy(const KvView& from, const KvView& to, const CopyKvOptions& options) const;

 private:
  KvCopierState(const ModelSpec& from, const ModelSpec& to, KvOverlap overlap,
                std::span<const Gpu> gpus, std::shared_ptr<io::Scheduler> scheduler);
  Status FromGpu(const KvCut& cut, const CopyKvOptions& options) const;
  Status ToGpu(const KvCut& cut, const CopyKvOptions& options) const;
  uint64_t DeadlineNs(const CopyKvOptions& options) const;

  const ModelSpec from_, to_;
  const KvOverlap overlap_;
  const std::shared_ptr<io::Scheduler> scheduler_;
  const GpuPorts ports_;
};

}  // namespace cairn::engine
