// SPDX-License-Identifier: Apache-2.0
//
// Kernels by themselves: what decode_scatter unpacks and gather_save gathers, beside copies within
// the device's memory and over the bus, and what check_table takes.
#include <algorithm>
#include <numeric>
#include <optional>

#include "base/core/check.h"
#include "tools/bench/gpu_frames.h"

namespace cairn::bench {
namespace {

// A window of a restore: 2 MiB packed.
constexpr uint32_t kWindowFrames = 48;
// The KV of a decoded token: one row of 32 layers, K and V, 8 heads.
constexpr uint32_t kTokenStrips = 32 * 2 * kGpuHeads;

const GpuCoding kCodings[] = {
    {"raw", "as they are", FrameCodec::kRaw, {}},
    {"kv64", "kv64 as of V", FrameCodec::kKv64, {.flags = kFramePadded}},
    {"kv64s",
     "kv64 as of K: channel bases, folded signs",
     FrameCodec::kKv64,
     {.flags = kFramePadded | kFrameChannelBase | kFrameFoldedSigns}},
    {"int8", "a scale for each channel", FrameCodec::kInt8, {.scales = FrameScales::kChannel}}};

Result<gpu::GatherSave> MakeGather(GpuBench& bench, const PagedFrames& paged, uint32_t strips,
                                   uint32_t rows) {
  const LayerGroup group =
      LayerGroup::FullAttention(1, kGpuHeads, kGpuFrame.channels, kGpuFrame.dtype);
  CAIRN_ASSIGN_OR_RETURN(
      std::byte* const into,
      bench.Allocate(gpu::Memory::kDevice, uint64_t{strips} * rows * kGpuRowBytes));
  std::vector<gpu::StripToGather> described;
  for (uint32_t i = 0; i < strips; ++i) {
    described.push_back(gpu::DescribeStrip(group.planes[0], paged.Base(i % bench.sizes().frames),
                                           into + uint64_t{i} * rows * kGpuRowBytes, paged.plane(),
                                           0, paged.Rows(rows)));
  }
  gpu::GatherSave launch;
  CAIRN_ASSIGN_OR_RETURN(launch.strips, bench.PutAll(described));
  CAIRN_ASSIGN_OR_RETURN(launch.faults, bench.PutAll(std::vector<gpu::Fault>(strips)));
  launch.views = paged.views();
  launch.count = strips;
  return launch;
}

Arm GatherArm(GpuBench& bench, const std::string& name, const gpu::GatherSave& launch,
              uint32_t rows, uint32_t launches) {
  Arm arm{.name = name, .bytes_per_op = uint64_t{launches} * launch.count * rows * kGpuRowBytes};
  arm.op = [&bench, launch, launches](double*) {
    for (uint32_t i = 0; i < launches; ++i) {
      CAIRN_RETURN_IF_ERROR(bench.device().Launch(bench.stream(), launch));
    }
    return bench.Finish();
  };
  return arm;
}

// Copies within the device's memory; with a launch of `save` for each beside them, or not.
Arm LoopArm(GpuBench& bench, const std::string& name, std::byte* memory,
            const std::optional<gpu::GatherSave>& save) {
  const uint64_t half = bench.sizes().copied_bytes / 2;
  const uint32_t copies = 2 * bench.sizes().launches;
  Arm arm{.name = name, .bytes_per_op = copies * half};
  arm.op = [&bench, memory, half, copies, save](double*) {
    for (uint32_t i = 0; i < copies; ++i) {
      CAIRN_RETURN_IF_ERROR(bench.Copy(memory + half, memory, half));
      if (!save.has_value()) continue;
      CAIRN_RETURN_IF_ERROR(bench.device().Launch(bench.other_stream(), *save));
    }
    CAIRN_RETURN_IF_ERROR(bench.Finish());
    return save.has_value() ? bench.Finish(bench.other_stream()) : Status::Ok();
  };
  return arm;
}

Result<Arm> CheckTableArm(GpuBench& bench, const int32_t* entries) {
  const uint32_t count = bench.sizes().table_entries;
  const uint64_t seen_bytes = (count + 31) / 32 * sizeof(uint32_t);
  CAIRN_ASSIGN_OR_RETURN(std::byte* const seen, bench.Allocate(gpu::Memory::kDevice, seen_bytes));
  CAIRN_ASSIGN_OR_RETURN(gpu::TableVerdict* const verdict,
                         bench.PutAll(std::vector<gpu::TableVerdict>(1)));
  const gpu::CheckTable launch{.entries = entries,
                               .seen = reinterpret_cast<uint32_t*>(seen),
                               .verdict = verdict,
                               .end = count,
                               .entries_end = count};
  Arm arm{.name = "check_table", .bytes_per_op = count * sizeof(int32_t)};
  arm.op = [&bench, launch, seen, seen_bytes](double*) {
    CAIRN_RETURN_IF_ERROR(bench.device().Fill(bench.stream(), {seen, seen_bytes}, std::byte{0}));
    CAIRN_RETURN_IF_ERROR(bench.device().Launch(bench.stream(), launch));
    return bench.Finish();
  };
  return arm;
}

const Arm& Named(const std::vector<Arm>& arms, const std::string& name) {
  const auto found =
      std::find_if(arms.begin(), arms.end(), [&](const Arm& arm) { return arm.name == name; });
  CAIRN_CHECK(found != arms.end());
  return *found;
}

// The ceilings, and what is not decoding.
Status MakeArms(GpuBench& bench, const PagedFrames& paged, std::vector<Arm>* arms) {
  const GpuSizes& sizes = bench.sizes();
  CAIRN_ASSIGN_OR_RETURN(std::byte* const memory,
                         bench.Allocate(gpu::Memory::kDevice, sizes.copied_bytes));
  CAIRN_ASSIGN_OR_RETURN(std::byte* const pinned,
                         bench.Allocate(gpu::Memory::kPinned, sizes.copied_bytes));
  arms->push_back(bench.CopyArm("bus", memory, pinned, sizes.copied_bytes, sizes.copied_bytes));
  CAIRN_ASSIGN_OR_RETURN(const gpu::GatherSave gather,
                         MakeGather(bench, paged, sizes.frames, kGpuFrame.rows));
  CAIRN_ASSIGN_OR_RETURN(const gpu::GatherSave save, MakeGather(bench, paged, kTokenStrips, 1));
  arms->push_back(LoopArm(bench, "loop", memory, {}));
  arms->push_back(LoopArm(bench, "loop beside", memory, save));
  arms->push_back(GatherArm(bench, "gather", gather, kGpuFrame.rows, sizes.launches));
  arms->push_back(GatherArm(bench, "save", save, 1, 1));

  std::vector<int32_t> table(sizes.table_entries);
  std::iota(table.rbegin(), table.rend(), 0);
  CAIRN_ASSIGN_OR_RETURN(int32_t* const entries, bench.PutAll(table));
  CAIRN_ASSIGN_OR_RETURN(Arm check, CheckTableArm(bench, entries));
  arms->push_back(std::move(check));
  const uint64_t bytes = table.size() * sizeof(int32_t);
  arms->push_back(
      bench.CopyArm("table out", pinned, reinterpret_cast<std::byte*>(entries), bytes, bytes));
  return Status::Ok();
}

void Tell(GpuBench& bench, const std::vector<Arm>& arms) {
  const Arm &bus = Named(arms, "bus"), &loop = Named(arms, "loop"), &save = Named(arms, "save");
  const Arm &gather = Named(arms, "gather"), &check = Named(arms, "check_table");
  bench.Value("bus_gb_per_s", bus.gb_per_s(), "host to device, one copy, between these arms");
  bench.Value("device_copy_gb_per_s", loop.gb_per_s(), "within the device's memory, bytes written");
  bench.Value("gather_gb_per_s", gather.gb_per_s(), "gather_save of 256 rows a strip");
  bench.AddRatio("gather_to_device_copy", RatioOfBytes(gather, loop), "higher is better");
  bench.Value("gather_token_us", save.p50_us(), "a token's 512 rows of 256 B, called to ended");
  bench.AddRatio("loop_beside_gather_token", RatioOfP50(Named(arms, "loop beside"), loop),
                 "copies within the memory at its full rate, a token gathered beside each, to "
                 "those alone; lower is better");
  bench.Value("check_table_us", check.p50_us(),
              "of " + std::to_string(bench.sizes().table_entries) + " entries, called to ended");
  bench.AddRatio("check_table_to_copy_out", RatioOfP50(check, Named(arms, "table out")),
                 "to copying that table to the host; lower is better");
}

void TellDecoding(GpuBench& bench, const std::vector<Arm>& arms, const GpuCoding& coding,
                  double packed_share) {
  const Arm& arm = Named(arms, coding.name);
  const std::string name = std::string("decode_") + coding.name;
  bench.Value(name + "_gb_per_s", arm.gb_per_s(),
              std::string("of output, the whole device; ") + coding.meaning);
  bench.Value(name + "_packed_share", packed_share, "bytes packed to bytes unpacked");
  Ratio to_bus = RatioOfBytes(arm, Named(arms, "bus"));
  for (double* const value : {&to_bus.value, &to_bus.min, &to_bus.max}) *value *= packed_share;
  bench.AddRatio(name + "_to_bus", to_bus,
                 "to what the bus brings, packed; at 5 a fifth of the device keeps up with it");
  bench.AddRatio(name + "_to_device_copy", RatioOfBytes(arm, Named(arms, "loop")),
                 "higher is better");
  if (coding.codec != FrameCodec::kKv64) return;
  bench.Value(name + "_window_us", Named(arms, std::string(coding.name) + " window").p50_us(),
              "so many frames as a restore brings at once, called to ended");
}

}  // namespace

Status BenchGpuKernels(GpuBench& bench) {
  const uint32_t frames = bench.sizes().frames, launches = bench.sizes().launches;
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec model, ModelOfTokenBytes(128 << 10));
  const KvPool source(model, Layout::kNhd, kGpuFrame.rows, /*seed=*/1);
  PagedFrames paged;
  CAIRN_RETURN_IF_ERROR(paged.Make(bench, frames));
  std::vector<Arm> arms;
  CAIRN_RETURN_IF_ERROR(MakeArms(bench, paged, &arms));
  std::vector<double> packed_shares;
  for (const GpuCoding& coding : kCodings) {
    PackedFrames packed;
    CAIRN_RETURN_IF_ERROR(packed.Make(bench, paged, source, coding, frames));
    packed_shares.push_back(packed.packed_share());
    arms.push_back(packed.MakeArm(bench, coding.name, frames, launches));
    if (coding.codec != FrameCodec::kKv64) continue;
    arms.push_back(packed.MakeArm(bench, std::string(coding.name) + " window",
                                  std::min(kWindowFrames, frames), 1));
  }
  CAIRN_RETURN_IF_ERROR(bench.Run("kernels", &arms));
  Tell(bench, arms);
  for (size_t i = 0; i < std::size(kCodings); ++i) {
    TellDecoding(bench, arms, kCodings[i], packed_shares[i]);
  }
  return Status::Ok();
}

}  // namespace cairn::bench
