// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/idle_device.h"

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "base/core/aligned_buffer.h"

namespace cairn::bench {
namespace {

class IdleDevice final : public gpu::Device {
 public:
  const gpu::DeviceInfo& info() const override { return info_; }

  Result<std::byte*> Allocate(gpu::Memory, uint64_t bytes) override {
    AlignedBuffer memory =
        AlignedBuffer::TryAllocate(Allocator::Default(), bytes, gpu::kDeviceAlignment);
    if (memory.empty()) return Status(StatusCode::kOutOfMemory, "no memory for the idle device");
    std::byte* const at = memory.data();
    const std::lock_guard lock(mutex_);
    memory_.emplace(at, std::move(memory));
    return at;
  }
  void Free(std::byte* at) override {
    const std::lock_guard lock(mutex_);
    memory_.erase(at);
  }
  Status Register(std::span<std::byte>) override { return Status::Ok(); }
  void Unregister(std::span<std::byte>) override {}

  Result<gpu::Stream> NewStream(gpu::Priority) override { return gpu::Stream{++next_}; }
  Result<gpu::Stream> AdoptStream(uintptr_t) override { return gpu::Stream{++next_}; }
  Result<gpu::Event> NewEvent() override { return gpu::Event{++next_}; }
  Result<gpu::Event> AdoptEvent(uintptr_t) override { return gpu::Event{++next_}; }
  Result<bool> IsCaptured(gpu::Stream) override { return false; }
  void Return(gpu::Stream) override {}
  void Return(gpu::Event) override {}

  Status Copy(gpu::Stream, std::span<const gpu::CopyPiece>) override { return Status::Ok(); }
  Status Fill(gpu::Stream, std::span<std::byte>, std::byte) override { return Status::Ok(); }
  using Device::Launch;
  Status Launch(gpu::Stream, gpu::Kernel, const gpu::LaunchShape&,
                std::span<const std::byte>) override {
    return Status::Ok();
  }
  Status Record(gpu::Stream, gpu::Event) override { return Status::Ok(); }
  Status StreamWait(gpu::Stream, gpu::Event) override { return Status::Ok(); }
  Status SetWord(gpu::Stream, uint32_t*, uint32_t) override { return Status::Ok(); }
  Status AwaitWord(gpu::Stream, const uint32_t*, uint32_t) override { return Status::Ok(); }

  Result<bool> Reached(gpu::Event) override { return true; }
  Status Wait(gpu::Event, uint64_t) override { return Status::Ok(); }
  Status lost() const override { return Status::Ok(); }

 private:
  const gpu::DeviceInfo info_{.name = "idle", .processors = 1, .memory_bytes = uint64_t{1} << 40};
  std::mutex mutex_;
  std::map<std::byte*, AlignedBuffer> memory_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace

std::shared_ptr<gpu::Device> MakeIdleDevice() { return std::make_shared<IdleDevice>(); }

}  // namespace cairn::bench
