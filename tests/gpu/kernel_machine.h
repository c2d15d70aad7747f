// SPDX-License-Identifier: Apache-2.0
//
// Where tests run kernels: memory, and launches that have ended when their results are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "gpu/device.h"
#include "gpu/kernels.h"

namespace cairn::testing {

class KernelMachine {
 public:
  virtual ~KernelMachine() = default;
  // Memory that kernels see, of just these bytes; it lives as long as the machine, or until Clear.
  // Its address is a multiple of 64 and `skew`.
  virtual std::byte* Put(std::span<const std::byte> bytes, size_t skew = 0) = 0;
  virtual std::vector<std::byte> Get(const std::byte* at, size_t bytes) = 0;
  virtual void Launch(gpu::Kernel kernel, const gpu::LaunchShape& shape,
                      std::span<const std::byte> arguments) = 0;
  virtual void Clear() = 0;

  template <typename T>
  T* PutAll(const std::vector<T>& items) {
    return reinterpret_cast<T*>(Put(std::as_bytes(std::span(items))));
  }
  template <typename T>
  std::vector<T> GetAll(const T* at, size_t count) {
    const std::vector<std::byte> bytes =
        Get(reinterpret_cast<const std::byte*>(at), count * sizeof(T));
    std::vector<T> items(count);
    if (count > 0) std::memcpy(items.data(), bytes.data(), bytes.size());
    return items;
  }
  template <typename K>
  void Launch(const K& arguments) {
    Launch(gpu::KernelOf<K>::kNumber, gpu::ShapeOf(arguments),
           std::as_bytes(std::span(&arguments, 1)));
  }
};

// A SimGrid, and the heap: a sanitizer sees each byte beyond.
std::unique_ptr<KernelMachine> MakeGridMachine(uint64_t seed);
// Any device, and its memory.
std::unique_ptr<KernelMachine> MakeDeviceMachine(gpu::Device& device);

}  // namespace cairn::testing
