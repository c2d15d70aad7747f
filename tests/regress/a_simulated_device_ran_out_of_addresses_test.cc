// SPDX-License-Identifier: Apache-2.0
//
// Memory freed by the simulated device keeps its addresses. Each block kept two mappings as well,
// of which a process may have 65,530, and each copy took 4 MiB: a model of 30 layers that attended
// through cairn.shadow ended after three steps, without a bound on its addresses after 17.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <vector>

#include "cairn/gpu.h"
#include "tests/support/status.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kPageBytes = 4096;

uint64_t AddressBytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * kPageBytes;
}

TEST(Regress, ASimulatedDeviceRanOutOfMappings) {
  ASSERT_OK_ASSIGN(const Gpu gpu, Gpu::Simulated(1));
  for (int i = 0; i < 70'000; ++i) {
    ASSERT_OK_ASSIGN(std::byte* const memory, gpu.Allocate(1));
    gpu.Free(memory);
  }
}

TEST(Regress, ASimulatedDeviceTookMegabytesForACopyOfAFewBytes) {
  ASSERT_OK_ASSIGN(const Gpu gpu, Gpu::Simulated(1));
  std::vector<std::byte> there(100, std::byte{7}), back(100);
  ASSERT_OK_ASSIGN(std::byte* const memory, gpu.Allocate(there.size()));
  const uint64_t before = AddressBytes();
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK(gpu.CopyIn(memory, there.data(), there.size()));
    ASSERT_OK(gpu.CopyOut(back.data(), memory, back.size()));
  }
  EXPECT_EQ(back, there);
  EXPECT_LE(AddressBytes(), before + 200 * 4 * kPageBytes);  // It was 200 * 4 MiB.
  gpu.Free(memory);
}

}  // namespace
}  // namespace cairn::testing
