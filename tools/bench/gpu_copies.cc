// SPDX-License-Identifier: Apache-2.0
//
// Copies between host and device by the size of their pieces, beside the largest and beside memcpy.
#include <algorithm>
#include <cstring>

#include "base/core/check.h"
#include "tools/bench/gpu_bench.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kPieceBytes[] = {4u << 10, 16u << 10, 64u << 10, 256u << 10, 2u << 20};
constexpr uint64_t kPiecesMax = 4096;  // In one call.

}  // namespace

Status BenchGpuCopies(GpuBench& bench) {
  const uint64_t bytes = bench.sizes().copied_bytes;
  CAIRN_ASSIGN_OR_RETURN(std::byte* const device, bench.Allocate(gpu::Memory::kDevice, bytes));
  CAIRN_ASSIGN_OR_RETURN(std::byte* const host, bench.Allocate(gpu::Memory::kPinned, bytes));
  CAIRN_ASSIGN_OR_RETURN(std::byte* const more, bench.Allocate(gpu::Memory::kPinned, bytes));
  CAIRN_RETURN_IF_ERROR(bench.Copy(device, host, bytes));
  CAIRN_RETURN_IF_ERROR(bench.Finish());

  // In, out and memcpy come first; the names of the others say their pieces.
  std::vector<Arm> arms;
  arms.push_back(bench.CopyArm("in", device, host, bytes, bytes));
  arms.push_back(bench.CopyArm("out", more, device, bytes, bytes));
  arms.push_back({.name = "memcpy", .bytes_per_op = bytes, .op = [=](double*) {
                    std::memcpy(more, host, bytes);
                    return Status::Ok();
                  }});
  for (const uint64_t piece : kPieceBytes) {
    const uint64_t some = std::min(bytes, piece * kPiecesMax);
    const std::string size = std::to_string(piece >> 10) + "k";
    arms.push_back(bench.CopyArm("in_" + size, device, host, some, piece));
    arms.push_back(bench.CopyArm("out_" + size, more, device, some, piece));
  }
  CAIRN_RETURN_IF_ERROR(bench.Run("copies", &arms));

  const Arm &in = arms[0], &out = arms[1], &copy = arms[2];
  bench.Value("memcpy_gb_per_s", copy.gb_per_s(), "from pinned memory to pinned, one thread");
  bench.Value("copy_in_gb_per_s", in.gb_per_s(), "host to device, one copy: the bus");
  bench.Value("copy_out_gb_per_s", out.gb_per_s(), "device to host, one copy");
  bench.AddRatio("copy_in_to_memcpy", RatioOfBytes(in, copy), "higher is better");
  for (size_t i = 3; i < arms.size(); ++i) {
    const Arm& whole = arms[i].name.starts_with("in") ? in : out;
    bench.Value("copy_" + arms[i].name + "_gb_per_s", arms[i].gb_per_s(),
                "in pieces of so many KiB, up to 4096 in a call");
    bench.AddRatio("copy_" + arms[i].name + "_to_whole", RatioOfBytes(arms[i], whole),
                   "to one copy; higher is better");
  }
  return Status::Ok();
}

}  // namespace cairn::bench
