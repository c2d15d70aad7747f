// SPDX-License-Identifier: Apache-2.0
#include "engine/device/kv_copier.h"

#include <string>
#include <utility>
#include <vector>

#include "base/codec/kv_copy.h"
#include "engine/device/gpu_source.h"
#include "engine/device/gpu_writer.h"

namespace cairn::engine {

namespace {

constexpr char kCall[] = "copy of KV";

Status BadCopy(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, std::string(kCall) + ": " + what);
}

// From here on a copy writes past the caches: what it copies would not stay in one anyway. Half the
// L2 and L3 that a core of a server has for itself.
constexpr uint64_t kStreamedBytes = 4u << 20;

void OnHost(const KvCut& cut) {
  const bool stream = cut.bytes() >= kStreamedBytes;
  for (size_t i = 0; i < cut.pieces().size(); ++i) {
    const KvCut::Piece& piece = cut.pieces()[i];
    const LayerGroup& group = cut.model().groups[i];
    const GroupView& from = cut.from().groups[i];
    const GroupView& to = cut.to().groups[i];
    const std::vector<PairedRun> runs = PairRuns(PositionMap(from, piece.begin, piece.count),
                                                 PositionMap(to, piece.begin, piece.count));
    for (uint32_t layer = 0; layer < group.layers; ++layer) {
      for (size_t plane = 0; plane < group.planes.size(); ++plane) {
        CopySlice(group.planes[plane], from.planes[plane], to.planes[plane], layer, runs, stream);
      }
    }
  }
}

// All slices of a copy, each a plane of a layer.
template <typename Slice>
std::vector<Slice> SlicesOf(const KvCut& cut) {
  std::vector<Slice> slices;
  for (size_t i = 0; i < cut.pieces().size(); ++i) {
    const LayerGroup& group = cut.model().groups[i];
    for (uint32_t layer = 0; layer < group.layers; ++layer) {
      for (uint32_t plane = 0; plane < group.planes.size(); ++plane) {
        Slice& slice = slices.emplace_back();
        slice.group = i;
        slice.layer = layer;
        slice.plane = plane;
        slice.begin = cut.pieces()[i].begin;
        slice.count = cut.pieces()[i].count;
      }
    }
  }
  return slices;
}

// The places of each piece in the host's view.
std::vector<PositionMap> MapsOf(const KvCut& cut, const KvView& view) {
  std::vector<PositionMap> maps;
  for (size_t i = 0; i < cut.pieces().size(); ++i) {
    maps.emplace_back(view.groups[i], cut.pieces()[i].begin, cut.pieces()[i].count);
  }
  return maps;
}

}  // namespace

Result<std::shared_ptr<const KvCopierState>> KvCopierState::Make(
    const ModelSpec& from, const ModelSpec& to, std::span<const Gpu> gpus,
    std::shared_ptr<io::Scheduler> scheduler) {
  CAIRN_ASSIGN_OR_RETURN(KvOverlap overlap, KvOverlap::Make(from, to));
  return std::shared_ptr<const KvCopierState>(
      new KvCopierState(from, to, std::move(overlap), gpus, std::move(scheduler)));
}

KvCopierState::KvCopierState(const ModelSpec& from, const ModelSpec& to, KvOverlap overlap,
                             std::span<const Gpu> gpus, std::shared_ptr<io::Scheduler> scheduler)
    : from_(from),
      to_(to),
      overlap_(std::move(overlap)),
      scheduler_(std::move(scheduler)),
      ports_(gpus, scheduler_) {}

Result<uint64_t> KvCopierState::Copy(const KvView& from, const KvView& to,
                                     const CopyKvOptions& options) const {
  const Status from_is = ValidateKvView(from_, from, KvUse::kRestore);
  if (!from_is.ok()) return from_is.WithContext("`from`");
  const Status to_is = ValidateKvView(to_, to, KvUse::kRestore);
  if (!to_is.ok()) return to_is.WithContext("`to`");
  const bool from_gpu = from.memory == MemoryKind::kCuda, to_gpu = to.memory == MemoryKind::kCuda;
  if (from_gpu && to_gpu) return BadCopy("both views are of GPU memory; copy through the host");
  if (!from_gpu && !to_gpu && options.gpu_ready != 0) {
    return BadCopy("gpu_ready is given, and no view is of GPU memory");
  }
  KvCut cut;
  CAIRN_RETURN_IF_ERROR(cut.Fill(overlap_, from, to));
  if (cut.pieces().empty()) return 0;
  if (from_gpu) {
    CAIRN_RETURN_IF_ERROR(FromGpu(cut, options));
  } else if (to_gpu) {
    CAIRN_RETURN_IF_ERROR(ToGpu(cut, options));
  } else {
    OnHost(cut);
  }
  return cut.bytes();
}

uint64_t KvCopierState::DeadlineNs(const CopyKvOptions& options) const {
  const uint64_t now_ns = scheduler_->MonotonicNs();
  return options.timeout_ns > UINT64_MAX - now_ns ? io::kNoDeadline : now_ns + options.timeout_ns;
}

Status KvCopierState::FromGpu(const KvCut& cut, const CopyKvOptions& options) const {
  CAIRN_ASSIGN_OR_RETURN(GpuPort * port, ports_.Find(cut.from(), "the copier", "KvCopier::Make"));
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<GpuSource> source,
                         GpuSource::Make(port, cut.model(), cut.from(), options.gpu_ready, kCall));
  CAIRN_RETURN_IF_ERROR(source->ready().Await(DeadlineNs(options), nullptr));
  CAIRN_RETURN_IF_ERROR(source->Prepare());
  const std::vector<PositionMap> maps = MapsOf(cut, cut.to());
  const auto slices = SlicesOf<GpuSource::Slice>(cut);
  return source->Gather(slices, [&](const GpuSource::Rows& rows) {
    const GpuSource::Slice& slice = *rows.slice;
    ScatterHead(cut.model().groups[slice.group].planes[slice.plane],
                cut.to().groups[slice.group].planes[slice.plane], slice.layer, rows.head,
                maps[slice.group].entries().subspan(rows.first, rows.count), rows.bytes.data());
  });
}

Status KvCopierState::ToGpu(const KvCut& cut, const CopyKvOptions& options) const {
  CAIRN_ASSIGN_OR_RETURN(GpuPort * port, ports_.Find(cut.to(), "the copier", "KvCopier::Make"));
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<GpuWriter> writer,
                         GpuWriter::Make(port, cut.model(), cut.to(), options.gpu_ready, kCall));
  CAIRN_RETURN_IF_ERROR(writer->ready().Await(DeadlineNs(options), nullptr));
  CAIRN_RETURN_IF_ERROR(writer->Prepare());
  const std::vector<PositionMap> maps = MapsOf(cut, cut.from());
  const auto slices = SlicesOf<GpuWriter::Slice>(cut);
  return writer->Scatter(slices, [&](const GpuWriter::Rows& rows) {
    const GpuWriter::Slice& slice = *rows.slice;
    GatherHead(cut.model().groups[slice.group].planes[slice.plane],
               cut.from().groups[slice.group].planes[slice.plane], slice.layer, rows.head,
               maps[slice.group].entries().subspan(rows.first, rows.count), rows.bytes.data());
  });
}

}  // namespace cairn::engine
