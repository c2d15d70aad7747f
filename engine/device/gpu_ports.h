// SPDX-License-Identifier: Apache-2.0
//
// GPUs by ordinal, each with the memory that views and rows of calls go through. Nothing of a
// device is taken before the first call that uses it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/io/world.h"
#include "cairn/gpu.h"
#include "cairn/kv_view.h"
#include "engine/device/device_staging.h"

namespace cairn::engine {

struct GpuPort {
  GpuPort(const Gpu& of, const std::shared_ptr<io::Scheduler>& scheduler);
  const Gpu gpu;
  const GpuWaits waits;
  DeviceStaging views, rows;
};

// Thread-safe.
class GpuPorts {
 public:
  GpuPorts(std::span<const Gpu> gpus, const std::shared_ptr<io::Scheduler>& scheduler);

  // The GPU whose memory the view names. kInvalidArgument: `owner` ("the store") has no such GPU;
  // `given` says where they are given.
  Result<GpuPort*> Find(const KvView& view, const std::string& owner,
                        const std::string& given) const;
  // At the end of their owner, which handles may outlive by far: frees the kept buffers.
  void Clear();

 private:
  std::vector<std::unique_ptr<GpuPort>> ports_;
};

// How many of a card's warps one launch may use, so that `at_once` launches leave the share that
// GpuOptions::processors_max says. At least one.
uint32_t WarpsOfLaunch(const Gpu& gpu, uint64_t at_once);

}  // namespace cairn::engine
