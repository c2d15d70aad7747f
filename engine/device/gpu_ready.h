// SPDX-License-Identifier: Apache-2.0
//
// An event of the caller's, after which memory of a GPU may be used. The host waits for it, so that
// no stream of the store waits on the device for work that may take long.
//
// Thread-safe, but for Adopt. No lock may be held around Await. Errors are those of the device.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "engine/device/gpu_waits.h"

namespace cairn::engine {

class GpuReady {
 public:
  // `call`: the waiting call, in errors.
  GpuReady(const GpuWaits* waits, std::string call) : waits_(*waits), call_(std::move(call)) {}
  ~GpuReady();
  GpuReady(const GpuReady&) = delete;
  GpuReady& operator=(const GpuReady&) = delete;

  // Once. 0: there is no event, so it counts as reached. kInvalidArgument: of another device.
  Status Adopt(uintptr_t handle);
  // Never blocks. True also if Await would fail at once.
  bool Reached();
  // Waits until `deadline_ns` (kDeadlineExceeded), and only while `wanted`, if set, is true
  // (kCancelled).
  Status Await(uint64_t deadline_ns, const std::function<bool()>& wanted);

 private:
  const GpuWaits& waits_;
  const std::string call_;
  bool has_event_ = false;
  gpu::Event event_{};
  std::atomic<bool> reached_{true};
};

}  // namespace cairn::engine
