// SPDX-License-Identifier: Apache-2.0
#include "engine/device/gpu_writer.h"

#include <algorithm>
#include <utility>

#include "base/core/align.h"
#include "base/core/mutation.h"
#include "engine/config/constants.h"
#include "engine/device/two_rooms.h"

namespace cairn::engine {

namespace {

// A room begins with a description and a fault for each stretch of rows.
constexpr uint64_t kOfStretch = sizeof(gpu::FrameToScatter) + sizeof(gpu::Fault);
constexpr uint64_t kStretchesEnd = (kGpuGatherStrips * kOfStretch + gpu::kDeviceAlignment - 1) /
                                   gpu::kDeviceAlignment * gpu::kDeviceAlignment;

}  // namespace

// The content of one room. Gives the room back when nothing uses it any more.
class GpuWriter::Batch {
 public:
  explicit Batch(const GpuWriter* writer) : writer_(*writer) {}
  ~Batch() { GiveBack(); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  void Swap(Batch* other) {
    std::swap(staged_, other->staged_);
    std::swap(rows_end_, other->rows_end_);
    std::swap(count_, other->count_);
  }

  // How many more rows of this size fit.
  uint64_t RowsLeft(uint64_t row_bytes) const {
    if (staged_.bytes == 0) {
      return std::max<uint64_t>(1, (kGpuGatherBytes - kStretchesEnd) / row_bytes);
    }
    if (count_ == kGpuGatherStrips) return 0;
    return (staged_.bytes - rows_end_) / row_bytes;
  }
  Status Add(const Rows& rows, const std::function<void(const Rows&)>& give) {
    const Slice& slice = *rows.slice;
    const GroupView& view = writer_.view_.groups[slice.group];
    const Plane& plane = writer_.model_.groups[view.group].planes[slice.plane];
    const PlaneView& plane_view = view.planes[slice.plane];
    const uint64_t bytes = rows.count * plane.row_bytes;
    if (staged_.bytes == 0) {
      CAIRN_ASSIGN_OR_RETURN(staged_, writer_.port_.rows.Take(kStretchesEnd + bytes));
      rows_end_ = kStretchesEnd;
    }
    Rows filled = rows;
    filled.bytes = {staged_.pinned + rows_end_, bytes};
    give(filled);
    const uint32_t index = writer_.views_->IndexOf(slice.group, slice.plane);
    const uint64_t begin = slice.begin + rows.first;
    new (Frames() + count_) gpu::FrameToScatter(
        gpu::DescribeRaw(static_cast<uint32_t>(rows.count),
                         plane.row_bytes / DtypeBytes(plane.dtype), staged_.on_device + rows_end_,
                         plane_view.layer_bases[slice.layer] +
                             static_cast<int64_t>(rows.head) * plane_view.head_stride,
                         writer_.views_->View(index), index,
                         gpu::DescribeRows(view, begin, begin, begin + rows.count)));
    ++count_;
    rows_end_ = std::min(AlignUp(rows_end_ + bytes, uint64_t{gpu::kLargestUnit}), staged_.bytes);
    return Status::Ok();
  }
  bool empty() const { return count_ == 0; }

  // Enqueues everything that was added.
  Status Launch() {
    gpu::Device& device = writer_.waits_.device();
    const gpu::CopyPiece rows{staged_.on_device + kStretchesEnd, staged_.pinned + kStretchesEnd,
                              rows_end_ - kStretchesEnd};
    CAIRN_RETURN_IF_ERROR(device.Copy(staged_.stream, {&rows, 1}));
    if (CAIRN_KEPT(kGpuViewsCopied)) {
      CAIRN_RETURN_IF_ERROR(device.StreamWait(staged_.stream, writer_.views_->copied()));
    }
    const uint32_t at_a_time = WarpsOfLaunch(writer_.port_.gpu, 2);
    for (uint32_t first = 0; first < count_; first += at_a_time) {
      gpu::DecodeScatter scatter;
      scatter.frames = Frames() + first;
      scatter.views = writer_.views_->on_device();
      scatter.faults = Faults() + first;
      scatter.count = std::min(at_a_time, count_ - first);
      CAIRN_RETURN_IF_ERROR(device.Launch(staged_.stream, scatter));
    }
    return device.Record(staged_.stream, staged_.copied);
  }

  // Waits for it.
  Status Collect() {
    if (count_ == 0) return Status::Ok();
    if (CAIRN_KEPT(kGpuBarrier)) {
      CAIRN_RETURN_IF_ERROR(writer_.waits_.For(staged_.copied, io::kNoDeadline));
    }
    for (uint32_t i = 0; i < count_; ++i) {
      if (Faults()[i] == gpu::Fault::kNone || !CAIRN_KEPT(kGpuFaults)) continue;
      // Rows as they are have no other faults.
      return Status(StatusCode::kCorruption, "gpu: a table on the device led out of the view");
    }
    GiveBack();
    return Status::Ok();
  }

 private:
  gpu::FrameToScatter* Frames() const {
    return reinterpret_cast<gpu::FrameToScatter*>(staged_.pinned);
  }
  gpu::Fault* Faults() const {
    return reinterpret_cast<gpu::Fault*>(staged_.pinned +
                                         kGpuGatherStrips * sizeof(gpu::FrameToScatter));
  }
  void GiveBack() {
    if (staged_.bytes != 0) writer_.port_.rows.Return(std::exchange(staged_, {}));
    count_ = 0;
  }

  const GpuWriter& writer_;
  DeviceStaging::Buffers staged_{};
  uint64_t rows_end_ = 0;  // In the room.
  uint32_t count_ = 0;
};

Result<std::unique_ptr<GpuWriter>> GpuWriter::Make(GpuPort* port, const ModelSpec& model,
                                                   const KvView& view, uintptr_t ready,
                                                   const std::string& call) {
  std::unique_ptr<GpuWriter> writer(new GpuWriter(port, model, view, call));
  CAIRN_RETURN_IF_ERROR(writer->ready_.Adopt(ready));
  return writer;
}

Status GpuWriter::Prepare() {
  CAIRN_ASSIGN_OR_RETURN(views_, GpuViews::Make(&waits_, &port_.views, model_, view_,
                                                KvUse::kRestore, [] { return Status::Ok(); }));
  return Status::Ok();
}

Status GpuWriter::Scatter(std::span<const Slice> slices,
                          const std::function<void(const Rows&)>& give) const {
  Batch next(this), flying(this);
  return PassThroughRooms(
      model_, view_, slices, &next, &flying,
      [&give](Batch* room, const Slice& slice, uint32_t head, uint64_t first, uint64_t rows) {
        return room->Add({.slice = &slice, .head = head, .first = first, .count = rows}, give);
      });
}

}  // namespace cairn::engine
