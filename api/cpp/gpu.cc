// SPDX-License-Identifier: Apache-2.0
#include "cairn/gpu.h"

#include <algorithm>
#include <cstring>

#include "base/core/check.h"
#include "base/io/real_scheduler.h"
#include "gpu/device.h"
#include "gpu/sim_device.h"
#if CAIRN_WITH_CUDA
#include "gpu/cuda/cuda_device.h"
#endif

namespace cairn {

namespace {

// Copies through pinned memory, a little at a time.
class Bounce {
 public:
  explicit Bounce(gpu::Device* device) : device_(device) {}
  ~Bounce() {
    if (pinned_ != nullptr) device_->Free(pinned_);
    if (has_event_) device_->Return(event_);
    if (has_stream_) device_->Return(stream_);
  }
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;

  Status Run(std::byte* device, std::byte* host, uint64_t bytes, bool in) {
    CAIRN_ASSIGN_OR_RETURN(stream_, device_->NewStream(gpu::Priority::kLow));
    has_stream_ = true;
    CAIRN_ASSIGN_OR_RETURN(event_, device_->NewEvent());
    has_event_ = true;
    // The simulated device never reuses memory: take no more than needed.
    const uint64_t room = std::clamp<uint64_t>(bytes, 1, kBytes);
    CAIRN_ASSIGN_OR_RETURN(pinned_, device_->Allocate(gpu::Memory::kPinned, room));
    for (uint64_t done = 0; done < bytes;) {
      const uint64_t some = std::min(kBytes, bytes - done);
      if (in) std::memcpy(pinned_, host + done, some);
      const gpu::CopyPiece piece = in ? gpu::CopyPiece{device + done, pinned_, some}
                                      : gpu::CopyPiece{pinned_, device + done, some};
      CAIRN_RETURN_IF_ERROR(device_->Copy(stream_, {&piece, 1}));
      Status ended = device_->Record(stream_, event_);
      if (ended.ok()) ended = device_->Wait(event_, io::kNoDeadline);
      if (!ended.ok()) {
        pinned_ = nullptr;  // The copy may still use it.
        return ended;
      }
      if (!in) std::memcpy(host + done, pinned_, some);
      done += some;
    }
    return Status::Ok();
  }

 private:
  static constexpr uint64_t kBytes = 4u << 20;
  gpu::Device* const device_;
  std::byte* pinned_ = nullptr;
  gpu::Stream stream_;
  gpu::Event event_;
  bool has_stream_ = false, has_event_ = false;
};

}  // namespace

Result<Gpu> Gpu::Open(const GpuOptions& options) {
#if CAIRN_WITH_CUDA
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<gpu::Device> device,
                         gpu::OpenCudaDevice(std::make_shared<io::RealScheduler>(),
                                             static_cast<int>(options.ordinal)));
  return Gpu(std::move(device), options);
#else
  return Status(StatusCode::kNotFound,
                "gpu " + std::to_string(options.ordinal) + ": the library was built without CUDA");
#endif
}

Result<Gpu> Gpu::Simulated(uint64_t seed, uint32_t ordinal) {
  GpuOptions options;
  options.ordinal = ordinal;
  return Simulated(seed, options);
}

Result<Gpu> Gpu::Simulated(uint64_t seed, const GpuOptions& options) {
  return Gpu(gpu::MakeSimDevice(std::make_shared<io::RealScheduler>(), {.seed = seed}), options);
}

const std::string& Gpu::name() const { return device_->info().name; }

Result<std::byte*> Gpu::Allocate(uint64_t bytes) const {
  return device_->Allocate(gpu::Memory::kDevice, bytes);
}

void Gpu::Free(std::byte* at) const { device_->Free(at); }

Status Gpu::CopyIn(std::byte* device, const std::byte* host, uint64_t bytes) const {
  return Bounce(device_.get()).Run(device, const_cast<std::byte*>(host), bytes, /*in=*/true);
}

Status Gpu::CopyOut(std::byte* host, const std::byte* device, uint64_t bytes) const {
  return Bounce(device_.get()).Run(const_cast<std::byte*>(device), host, bytes, /*in=*/false);
}

}  // namespace cairn
