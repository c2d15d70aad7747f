// SPDX-License-Identifier: Apache-2.0
//
// Shared by the parts of `cairn-bench gpu`: the device, its memory, and batches that end.
//
// Times are the host's, around batches that take milliseconds. A simulated device is ten thousand
// times slower than a card, so it gets little to do; its figures mean nothing, and all their names
// begin with "simulated_".
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "cairn/gpu.h"
#include "gpu/device.h"
#include "tools/bench/bench.h"
#include "tools/bench/kv_source.h"

namespace cairn::bench {

// How much each part moves. On a card a batch takes milliseconds, and exceeds what caches hold.
struct GpuSizes {
  uint64_t copied_bytes;   // The largest copy.
  uint32_t frames;         // Frames per launch, 64 KiB unpacked each.
  uint32_t launches;       // A batch.
  uint32_t table_entries;  // That check_table looks at.
  uint64_t session_bytes;  // That is restored.
};
inline constexpr GpuSizes kCardSizes = {256u << 20, 4096, 8, 1u << 20, 1u << 30};
inline constexpr GpuSizes kSimulatedSizes = {1u << 20, 8, 1, 1000, 2u << 20};

class GpuBench {
 public:
  // Config::gpu_device: "simulated", "cuda:0". kInvalidArgument for other names, kNotFound where
  // there is no such device.
  static Result<std::unique_ptr<GpuBench>> Open(const Config& config, Report* report);
  ~GpuBench();
  GpuBench(const GpuBench&) = delete;
  GpuBench& operator=(const GpuBench&) = delete;

  const Config& config() const { return config_; }  // The time that a part has.
  const GpuSizes& sizes() const { return sizes_; }
  bool is_simulated() const { return !prefix_.empty(); }
  const Gpu& gpu() const { return gpu_; }
  gpu::Device& device() const { return *gpu_.device(); }
  gpu::Stream stream() const { return stream_; }
  gpu::Stream other_stream() const { return other_stream_; }

  // Freed when the part is over (FreeAll). Pinned memory has been touched.
  Result<std::byte*> Allocate(gpu::Memory kind, uint64_t bytes);
  void FreeAll();
  Status Copy(std::byte* to, const std::byte* from, uint64_t bytes);
  // Device memory with these bytes.
  Result<std::byte*> Put(std::span<const std::byte> bytes);
  template <typename T>
  Result<T*> PutAll(const std::vector<T>& items) {
    CAIRN_ASSIGN_OR_RETURN(std::byte* const at, Put(std::as_bytes(std::span(items))));
    return reinterpret_cast<T*>(at);
  }
  // Waits until all work enqueued in a stream has ended.
  Status Finish(gpu::Stream stream);
  Status Finish() { return Finish(stream_); }

  // An arm that copies pieces one behind the other, `bytes` in all, in one call.
  Arm CopyArm(const std::string& name, std::byte* to, const std::byte* from, uint64_t bytes,
              uint64_t piece_bytes);
  Status Run(const std::string& title, std::vector<Arm>* arms);

  // Reports it under a name that includes the device.
  void Value(const std::string& name, double value, const std::string& meaning) {
    report_->Value(prefix_ + name, value, meaning);
  }
  void AddRatio(const std::string& name, const Ratio& ratio, const std::string& meaning) {
    report_->AddRatio(prefix_ + name, ratio, meaning);
  }
  Report* report() const { return report_; }

 private:
  GpuBench(const Config& config, Gpu gpu, bool simulated, Report* report);

  Config config_;
  const Gpu gpu_;
  GpuSizes sizes_;
  const std::string prefix_;
  Report* const report_;
  gpu::Stream stream_, other_stream_;
  gpu::Event end_;
  std::vector<std::byte*> memory_;
};

// The parts. Each measures its own ceiling between its arms.
Status BenchGpuCopies(GpuBench& bench);
Status BenchGpuKernels(GpuBench& bench);
Status BenchGpuRestores(GpuBench& bench, const std::string& scratch);
// Runs `cairn-bench shadow-step`.
Status BenchShadowStep(GpuBench& bench, const std::string& scratch);

}  // namespace cairn::bench
