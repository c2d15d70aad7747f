// SPDX-License-Identifier: Apache-2.0
//
// GPU memory as the target of restores, and as the source of appends. A store gets the GPUs that it
// may use in Options::gpus; a KvView with memory = kCuda then names memory of one of them, by its
// ordinal, and a Restore puts KV there: pages travel packed, and are unpacked on the card, straight
// into the caller's blocks.
//
//   Options options;
//   options.gpus = {*Gpu::Open()};
//   ...
//   view.memory = MemoryKind::kCuda;
//   request.into = &view;
//   branch.Restore(request);
//
// A Gpu is a handle that may be copied, and given to several stores; the device is let go of with
// the last handle and the last store that has it. All methods are thread-safe. A call leaves the
// thread's current device as it was. A device that fails with an error after which CUDA refuses
// everything is lost: each later call on it gives kIoError with the first cause, and the stores go
// on without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "cairn/status.h"

namespace cairn::gpu {
class Device;
}

namespace [[gnu::visibility("default")]] cairn {

// How one GPU is used. Copied by Open.
struct GpuOptions {
  uint32_t ordinal = 0;  // As CUDA counts them in this process.
  // How many of the card's processors unpacking may fill. The card spreads the work over all of
  // them; this bounds how much of it there is at a time. 0: a sixth of them, so that a model that
  // runs meanwhile loses 17 % of its issue slots at most while the bus is full.
  uint32_t processors_max = 0;
  // Host memory that every store with this GPU keeps pinned from its opening on: pages that
  // restores into the GPU, and Branch::Prefetch for it, read from tables stay there packed, and the
  // next restore copies them to the card instead of reading them. 0: none; else from 1 MiB. Part of
  // Options::max_memory_bytes, of which all GPUs of a store may have half. When the operating
  // system refuses to pin it the store does without, with one line to EventListener::on_event.
  uint64_t pinned_bytes = 0;
  // The most recently used branches keep the KV of their newest tokens there, this many each,
  // within half of pinned_bytes; where that is short the namespace that has most of it gives way.
  // `pinned_tokens_of` overrides the number for a model (ModelIdentity::name).
  uint64_t pinned_tokens = 4096;
  std::map<std::string, uint64_t> pinned_tokens_of{};
};

class Gpu {
 public:
  // One of this machine, in its primary context, which the caller's program shares. But for
  // pinned_bytes it takes no memory before the first restore into it. Blocking: it asks the driver.
  // Errors:
  //   kNotFound: there is no driver, no such device, or the library was built without CUDA.
  //   kIoError: what else the driver says.
  static Result<Gpu> Open(const GpuOptions& options = {});
  // A simulated device, for tests of code that restores into a GPU: the same kernels on the CPU,
  // with streams that run as late, and in as unlikely an order, as they may, by `seed`. Its memory
  // is that of Allocate alone; 64 MiB.
  static Result<Gpu> Simulated(uint64_t seed, uint32_t ordinal = 0);
  static Result<Gpu> Simulated(uint64_t seed, const GpuOptions& options);
  // For tests inside the library.
  Gpu(std::shared_ptr<gpu::Device> device, uint32_t ordinal) : device_(std::move(device)) {
    options_.ordinal = ordinal;
  }
  Gpu(std::shared_ptr<gpu::Device> device, GpuOptions options)
      : device_(std::move(device)), options_(std::move(options)) {}

  uint32_t ordinal() const { return options_.ordinal; }
  const GpuOptions& options() const { return options_; }
  // The card's name. Lives as long as this handle.
  const std::string& name() const;

  // --- Memory of the device, for programs that have no other means. Blocking.
  // The caller's, to be given to Free before the last handle of the device is gone. Aligned to 256
  // bytes, of undefined content. kOutOfMemory, kIoError.
  Result<std::byte*> Allocate(uint64_t bytes) const;
  // No restore may touch it any more. REQUIRES: Allocate gave it, else the process ends.
  void Free(std::byte* at) const;
  // From host to device or back; either side may be any memory of its kind. Goes through pinned
  // memory, 4 MiB at a time, in a stream of its own, and returns when it is done; it waits for no
  // stream of the caller's. kOutOfMemory, kIoError.
  Status CopyIn(std::byte* device, const std::byte* host, uint64_t bytes) const;
  Status CopyOut(std::byte* host, const std::byte* device, uint64_t bytes) const;

  // For the library.
  const std::shared_ptr<gpu::Device>& device() const { return device_; }

 private:
  std::shared_ptr<gpu::Device> device_;
  GpuOptions options_;
};

}  // namespace cairn
