// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/sparse/sparse_arena.h"

#include <string>
#include <utility>

#include "engine/config/constants.h"

namespace cairn {

SparseArenaState::SparseArenaState(Deps deps, const Gpu& gpu,
                                   std::unique_ptr<engine::PinnedArena> pinned,
                                   uint64_t device_bytes)
    : deps_(std::move(deps)),
      gpu_(gpu),
      waits_(gpu.device(), deps_.write->world.scheduler),
      device_bytes_max_(device_bytes),
      pool_(std::move(pinned), deps_.write->world.scheduler.get(), deps_.reads),
      background_(*deps_.write->world.scheduler, "cairn-sparse", 1,
                  io::ThreadPriority::kInherited) {}

Result<std::shared_ptr<SparseArenaState>> SparseArenaState::Make(
    Deps deps, const Gpu& gpu, const SparseArenaOptions& options) {
  if (options.pinned_bytes < engine::kSparsePinnedBytesMin) {
    return Status(
        StatusCode::kInvalidArgument,
        "sparse: pinned_bytes is " + std::to_string(options.pinned_bytes) + ", less than 1 MiB");
  }
  CAIRN_ASSIGN_OR_RETURN(auto pinned,
                         engine::PinnedArena::Make(gpu.device(), deps.write->options->allocator,
                                                   options.pinned_bytes));
  return std::make_shared<SparseArenaState>(std::move(deps), gpu, std::move(pinned),
                                            options.device_bytes);
}

Status SparseArenaState::TakeDeviceBytes(uint64_t bytes) {
  uint64_t used = device_bytes_.load();
  do {
    if (bytes > device_bytes_max_ - used) {
      return Status(StatusCode::kOutOfMemory,
                    "sparse: the session needs " + std::to_string(bytes) +
                        " bytes of the device; of the arena's device_bytes, " +
                        std::to_string(device_bytes_max_) + ", " +
                        std::to_string(device_bytes_max_ - used) + " are left");
    }
  } while (!device_bytes_.compare_exchange_weak(used, used + bytes));
  deps_.totals->device_bytes.fetch_add(bytes);
  return Status::Ok();
}

void SparseArenaState::ReturnDeviceBytes(uint64_t bytes) {
  device_bytes_.fetch_sub(bytes);
  deps_.totals->device_bytes.fetch_sub(bytes);
}

}  // namespace cairn
