// SPDX-License-Identifier: Apache-2.0
//
// Records on their way to a GPU. Rows and frames of a window go as they lie; of records in memory,
// frames are unpacked first, since what is staged goes as rows.
#include <algorithm>
#include <functional>

#include "engine/restore/gpu/gpu_sink.h"

namespace cairn::engine {

// What a piece wants of a range, and what was described of a layer so far.
struct GpuSink::OfRecord {
  LayerCounts::Target* target;
  const RecordPiece& piece;
  const LaneRange& range;
  Frames frames{};
  std::vector<std::byte> unpacked{};  // The layer, if it is packed and not in a window.
};

Status GpuSink::Record(const RecordJob& job, const ReadBytes& read, bool verify) {
  const auto kv = [&](const RecordPiece& piece, const LaneRange& range, const ReadRecord& record) {
    return RecordKv(piece, range, record, read);
  };
  const auto ids = [&](const RecordPiece& piece, const LaneRange& range, const ReadRecord& record) {
    return tokens_.OfRecord(piece, range, record);
  };
  return VisitRecord(job, read.bytes(), records_, verify, ids, kv);
}

Status GpuSink::RecordKv(const RecordPiece& piece, const LaneRange& range, const ReadRecord& record,
                         const ReadBytes& read) {
  OfRecord of{counts_.TargetOf(piece.view), piece, range};
  CAIRN_CHECK(of.target != nullptr);
  const std::vector<Plane>& planes = of.target->group->planes;
  const auto describe = [&](const RecordSlice& slice) -> Status {
    const Plane& plane = planes[slice.at.plane];
    if (slice.frames == nullptr) {
      DescribeRows(slice, slice.rows, &of);
      of.frames.covered.push_back({slice.rows, SliceBytes(plane, range.count)});
    } else if (read.of_window()) {
      CAIRN_RETURN_IF_ERROR(DescribePacked(slice, &of));
    } else {
      CAIRN_RETURN_IF_ERROR(DescribeUnpacked(slice, &of));
    }
    delivered_.Add(plane, SliceBytes(plane, piece.end - piece.begin), /*of_frame=*/false,
                   piece.counts_as_exact());
    if (slice.at.plane + 1 != planes.size()) return Status::Ok();
    const Head at = HeadAt(of.target, slice.at.layer, slice.at.plane, 0);
    if (read.of_window()) {
      Add(read, of.frames, at);
    } else {
      CAIRN_RETURN_IF_ERROR(Stage(of.frames, at));
    }
    of.frames = {};
    return Status::Ok();
  };
  return VisitSlices(*of.target, range, record, std::ref(describe));
}

// `rows`: of all heads and positions of the range.
void GpuSink::DescribeRows(const RecordSlice& slice, const std::byte* rows, OfRecord* of) const {
  const RecordPiece& piece = of->piece;
  const Plane& plane = of->target->group->planes[slice.at.plane];
  const auto first = static_cast<uint32_t>(piece.begin - of->range.begin);
  const auto count = static_cast<uint32_t>(piece.end - piece.begin);
  const gpu::WantedRows wanted = Wanted(*of->target, piece.Target(piece.begin), 0, count);
  const uint32_t channels = plane.row_bytes / static_cast<uint32_t>(DtypeBytes(plane.dtype));
  for (uint32_t head = 0; head < plane.heads; ++head) {
    const Head at = HeadAt(of->target, slice.at.layer, slice.at.plane, head);
    const std::byte* const of_head =
        rows + (uint64_t{head} * of->range.count + first) * plane.row_bytes;
    of->frames.scattered.push_back(gpu::DescribeRaw(count, channels, of_head, at.base,
                                                    views_->View(at.view), at.view, wanted));
    Note(of->frames.scattered.back(), at, piece.shift, piece.begin, &of->frames.turned);
  }
}

// A frame of several heads is described once for each: the kernel unpacks a frame for one head, and
// skips the rows of the others.
Status GpuSink::DescribePacked(const RecordSlice& slice, OfRecord* of) const {
  const RecordPiece& piece = of->piece;
  const LaneRange& range = of->range;
  const Plane& plane = of->target->group->planes[slice.at.plane];
  const WantedOfSlice all{0, plane.heads, piece.begin - range.begin, piece.end - range.begin};
  const auto describe = [&](const SliceFrames::Frame& frame,
                            std::span<const std::byte> stored) -> Status {
    const WantedOfSlice here = all.In(frame);
    if (here.empty()) return Status::Ok();
    for (uint32_t i = 0; i < frame.heads; ++i) {
      const Head at = HeadAt(of->target, slice.at.layer, slice.at.plane, frame.first_head + i);
      const uint64_t before = i * frame.positions;  // Rows of other heads.
      const gpu::WantedRows wanted =
          Wanted(*of->target, piece.Target(range.begin + frame.first) - before,
                 before + here.first - frame.first, before + here.end - frame.first);
      const auto described = gpu::DescribeFrame(frame.shape, stored, stored.data(), at.base,
                                                views_->View(at.view), at.view, wanted);
      if (!described.ok()) return slice.Damaged(described.status());
      of->frames.scattered.push_back(*described);
      Note(*described, at, piece.shift, range.begin + here.first, &of->frames.turned);
    }
    of->frames.covered.push_back(stored);
    return Status::Ok();
  };
  return VisitFrames(slice, plane, range.count, describe);
}

Status GpuSink::DescribeUnpacked(const RecordSlice& slice, OfRecord* of) const {
  const std::vector<Plane>& planes = of->target->group->planes;
  uint64_t offset = 0, bytes = 0;  // The slice lies there in its layer.
  for (size_t i = 0; i < planes.size(); ++i) {
    if (i == slice.at.plane) offset = bytes;
    bytes += SliceBytes(planes[i], of->range.count);
  }
  of->unpacked.resize(bytes);  // Keeps its place while a layer is described.
  const std::span<std::byte> rows =
      std::span(of->unpacked).subspan(offset, SliceBytes(planes[slice.at.plane], of->range.count));
  CAIRN_RETURN_IF_ERROR(UnpackSlice(slice, planes[slice.at.plane], of->range.count, rows));
  DescribeRows(slice, rows.data(), of);
  return Status::Ok();
}

}  // namespace cairn::engine
