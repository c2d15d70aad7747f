// SPDX-License-Identifier: Apache-2.0
//
// gpu: what copies, kernels and restores reach of what the bus, the card's memory and the disk
// give.
#include "tools/bench/gpu_bench.h"

#include <algorithm>
#include <cstring>

#include "base/core/check.h"
#include "tools/gpu_name.h"

namespace cairn::bench {
namespace {

constexpr uint32_t kParts = 3;

}  // namespace

Result<std::unique_ptr<GpuBench>> GpuBench::Open(const Config& config, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(Gpu gpu, OpenGpu(config.gpu_device));
  const bool simulated = config.gpu_device == "simulated";
  std::unique_ptr<GpuBench> bench(new GpuBench(config, std::move(gpu), simulated, report));
  gpu::Device& device = bench->device();
  CAIRN_ASSIGN_OR_RETURN(bench->stream_, device.NewStream(gpu::Priority::kLow));
  CAIRN_ASSIGN_OR_RETURN(bench->other_stream_, device.NewStream(gpu::Priority::kLow));
  CAIRN_ASSIGN_OR_RETURN(bench->end_, device.NewEvent());
  const gpu::DeviceInfo& info = device.info();
  report->Machine("gpu", simulated ? "simulated: no figure says anything of a card" : info.name);
  report->Machine("gpu_processors", info.processors);
  report->Machine("gpu_memory_bytes", info.memory_bytes);
  return bench;
}

GpuBench::GpuBench(const Config& config, Gpu gpu, bool simulated, Report* report)
    : config_(config),
      gpu_(std::move(gpu)),
      sizes_(simulated ? kSimulatedSizes : kCardSizes),
      prefix_(simulated ? "simulated_" : ""),
      report_(report) {
  config_.seconds /= kParts;
  if (config.session_bytes != 0) sizes_.session_bytes = config.session_bytes;
}

GpuBench::~GpuBench() { FreeAll(); }

Result<std::byte*> GpuBench::Allocate(gpu::Memory kind, uint64_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(std::byte* const at, device().Allocate(kind, bytes));
  memory_.push_back(at);
  if (kind == gpu::Memory::kPinned) std::memset(at, 1, bytes);
  return at;
}

void GpuBench::FreeAll() {
  for (std::byte* const at : memory_) device().Free(at);
  memory_.clear();
}

Status GpuBench::Copy(std::byte* to, const std::byte* from, uint64_t bytes) {
  const gpu::CopyPiece piece{to, from, bytes};
  return device().Copy(stream_, {&piece, 1});
}

Result<std::byte*> GpuBench::Put(std::span<const std::byte> bytes) {
  CAIRN_ASSIGN_OR_RETURN(std::byte* const at, Allocate(gpu::Memory::kDevice, bytes.size()));
  CAIRN_RETURN_IF_ERROR(gpu_.CopyIn(at, bytes.data(), bytes.size()));
  return at;
}

// Without the sleep that Device::Wait has between its looks, which is a hundredth of a batch.
Status GpuBench::Finish(gpu::Stream stream) {
  CAIRN_RETURN_IF_ERROR(device().Record(stream, end_));
  for (bool reached = false; !reached;) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    CAIRN_ASSIGN_OR_RETURN(reached, device().Reached(end_));
  }
  return Status::Ok();
}

Arm GpuBench::CopyArm(const std::string& name, std::byte* to, const std::byte* from, uint64_t bytes,
                      uint64_t piece_bytes) {
  std::vector<gpu::CopyPiece> pieces;
  for (uint64_t at = 0; at < bytes; at += piece_bytes) {
    pieces.push_back({to + at, from + at, std::min(piece_bytes, bytes - at)});
  }
  Arm arm{.name = name, .bytes_per_op = bytes};
  arm.op = [this, pieces](double*) {
    CAIRN_RETURN_IF_ERROR(device().Copy(stream_, pieces));
    return Finish();
  };
  return arm;
}

Status GpuBench::Run(const std::string& title, std::vector<Arm>* arms) {
  std::vector<Arm*> all;
  for (Arm& arm : *arms) all.push_back(&arm);
  return RunInterleaved(config_, title, all);
}

Status RunGpu(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const auto bench, GpuBench::Open(config, report));
  CAIRN_RETURN_IF_ERROR(BenchGpuCopies(*bench));
  bench->FreeAll();
  CAIRN_RETURN_IF_ERROR(BenchGpuKernels(*bench));
  bench->FreeAll();
  return BenchGpuRestores(*bench, scratch);
}

}  // namespace cairn::bench
