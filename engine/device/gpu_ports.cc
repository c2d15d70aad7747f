// SPDX-License-Identifier: Apache-2.0
#include "engine/device/gpu_ports.h"

#include <algorithm>

#include "engine/config/constants.h"

namespace cairn::engine {

GpuPort::GpuPort(const Gpu& of, const std::shared_ptr<io::Scheduler>& scheduler)
    : gpu(of),
      waits(of.device(), scheduler),
      views(&waits,
            {.bytes = kGpuStagingBytes, .kept_bytes = kGpuStagingKeptBytes, .kept = kGpuSlots}),
      rows(&waits, {.bytes = kGpuGatherBytes,
                    .kept_bytes = kGpuGatherBytes,
                    .kept = kGpuGatherRoomsShare * scheduler->Cores()}) {}

GpuPorts::GpuPorts(std::span<const Gpu> gpus, const std::shared_ptr<io::Scheduler>& scheduler) {
  for (const Gpu& gpu : gpus) ports_.push_back(std::make_unique<GpuPort>(gpu, scheduler));
}

Result<GpuPort*> GpuPorts::Find(const KvView& view, const std::string& owner,
                                const std::string& given) const {
  const auto port = std::find_if(ports_.begin(), ports_.end(), [&](const auto& one) {
    return one->gpu.ordinal() == view.device;
  });
  if (view.memory == MemoryKind::kCuda && port != ports_.end()) return port->get();
  return Status(StatusCode::kInvalidArgument, std::string("kv view: memory is ") +
                                                  MemoryKindName(view.memory) + ", device is " +
                                                  std::to_string(view.device) + "; " + owner +
                                                  " has no such GPU (" + given + ")");
}

void GpuPorts::Clear() {
  for (const auto& port : ports_) {
    port->views.Clear();
    port->rows.Clear();
  }
}

uint32_t WarpsOfLaunch(const Gpu& gpu, uint64_t at_once) {
  const uint32_t all = gpu.device()->info().processors;
  const uint32_t share = (all - 1) / kGpuProcessorsShare + 1;
  const uint32_t processors =
      gpu.options().processors_max == 0 ? share : std::min(gpu.options().processors_max, all);
  return std::max<uint32_t>(1,
                            static_cast<uint32_t>(processors * gpu::kWarpsOfProcessor / at_once));
}

}  // namespace cairn::engine
