// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <new>

#include "gpu/sim_kernels.h"
#include "tests/gpu/kernel_machine.h"

namespace cairn::testing {
namespace {

constexpr size_t kAlignment = 64;

class GridMachine final : public KernelMachine {
 public:
  explicit GridMachine(uint64_t seed) : grid_(seed) {}

  std::byte* Put(std::span<const std::byte> bytes, size_t skew) override {
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, std::max<size_t>(1, skew + bytes.size())) != 0) {
      throw std::bad_alloc();
    }
    blocks_.emplace_back(memory);
    std::byte* const at = static_cast<std::byte*>(memory) + skew;
    std::copy(bytes.begin(), bytes.end(), at);
    return at;
  }
  std::vector<std::byte> Get(const std::byte* at, size_t bytes) override {
    return {at, at + bytes};
  }
  void Launch(gpu::Kernel kernel, const gpu::LaunchShape& shape,
              std::span<const std::byte> arguments) override {
    gpu::RunOnHost(grid_, kernel, shape, arguments);
  }
  void Clear() override { blocks_.clear(); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  gpu::SimGrid grid_;
  std::vector<std::unique_ptr<void, Free>> blocks_;
};

}  // namespace

std::unique_ptr<KernelMachine> MakeGridMachine(uint64_t seed) {
  return std::make_unique<GridMachine>(seed);
}

}  // namespace cairn::testing
