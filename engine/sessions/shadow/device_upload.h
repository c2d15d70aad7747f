// SPDX-License-Identifier: Apache-2.0
//
// Bytes of the host on their way to a device, through pinned memory: while one half is copied the
// other is filled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/gpu_waits.h"

namespace cairn::engine {

class DeviceUpload {
 public:
  // Takes the memory. `waits` outlives this.
  static Result<std::unique_ptr<DeviceUpload>> Make(const GpuWaits* waits);
  ~DeviceUpload();  // Waits for what is under way.
  DeviceUpload(const DeviceUpload&) = delete;
  DeviceUpload& operator=(const DeviceUpload&) = delete;

  // Copied from `bytes` at once, to the device later.
  Status Add(std::byte* to, std::span<const std::byte> bytes);
  Status Finish();  // The device has all.
  // It could not be found out whether copies have ended: what they write must never be used again.
  bool is_lost() const { return is_lost_; }

 private:
  struct Half {
    std::byte* at = nullptr;
    size_t used = 0;
    gpu::Event copied{};
    bool has_event = false;
  };
  explicit DeviceUpload(const GpuWaits* waits) : waits_(*waits) {}
  Status Open();
  Status Send();

  const GpuWaits& waits_;
  gpu::Stream stream_{};
  bool has_stream_ = false;
  std::array<Half, 2> halves_;
  size_t filling_ = 0;
  bool is_lost_ = false;
  std::vector<gpu::CopyPiece> pieces_;  // Those in the half that is filled.
};

}  // namespace cairn::engine
