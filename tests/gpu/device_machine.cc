// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/core/check.h"
#include "base/io/world.h"
#include "tests/gpu/kernel_machine.h"

namespace cairn::testing {
namespace {

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) CheckFailed(result.status().ToString().c_str(), __FILE__, __LINE__);
  return *result;
}

void Must(const Status& status) {
  if (!status.ok()) CheckFailed(status.ToString().c_str(), __FILE__, __LINE__);
}

class DeviceMachine final : public KernelMachine {
 public:
  explicit DeviceMachine(gpu::Device& device)
      : device_(device),
        stream_(Must(device.NewStream(gpu::Priority::kLow))),
        end_(Must(device.NewEvent())) {}
  ~DeviceMachine() override {
    Clear();
    device_.Return(stream_);
    device_.Return(end_);
  }

  std::byte* Put(std::span<const std::byte> bytes, size_t skew) override {
    const size_t all = std::max<size_t>(1, bytes.size());
    std::byte* const at = Allocate(gpu::Memory::kDevice, all + skew) + skew;
    std::byte* const pinned = Allocate(gpu::Memory::kPinned, all);
    std::copy(bytes.begin(), bytes.end(), pinned);
    Copy(at, pinned, bytes.size());
    return at;
  }
  std::vector<std::byte> Get(const std::byte* at, size_t bytes) override {
    std::byte* const pinned = Allocate(gpu::Memory::kPinned, std::max<size_t>(1, bytes));
    Copy(pinned, at, bytes);
    End();
    return {pinned, pinned + bytes};
  }
  void Launch(gpu::Kernel kernel, const gpu::LaunchShape& shape,
              std::span<const std::byte> arguments) override {
    Must(device_.Launch(stream_, kernel, shape, arguments));
  }
  void Clear() override {
    End();
    for (std::byte* const at : memory_) device_.Free(at);
    memory_.clear();
  }

 private:
  std::byte* Allocate(gpu::Memory kind, size_t bytes) {
    memory_.push_back(Must(device_.Allocate(kind, bytes)));
    return memory_.back();
  }
  void Copy(std::byte* to, const std::byte* from, size_t bytes) {
    const gpu::CopyPiece piece{to, from, bytes};
    if (bytes > 0) Must(device_.Copy(stream_, {&piece, 1}));
  }
  void End() {
    Must(device_.Record(stream_, end_));
    Must(device_.Wait(end_, io::kNoDeadline));
  }

  gpu::Device& device_;
  gpu::Stream stream_;
  gpu::Event end_;
  std::vector<std::byte*> memory_;
};

}  // namespace

std::unique_ptr<KernelMachine> MakeDeviceMachine(gpu::Device& device) {
  return std::make_unique<DeviceMachine>(device);
}

}  // namespace cairn::testing
