// SPDX-License-Identifier: Apache-2.0
#include "engine/device/gpu_source.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/core/align.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/config/constants.h"
#include "engine/device/two_rooms.h"

namespace cairn::engine {

namespace {

constexpr uint64_t kTold = sizeof(gpu::StripToGather) + sizeof(gpu::Fault);
constexpr uint64_t kRowsAt = (kGpuGatherStrips * kTold + gpu::kDeviceAlignment - 1) /
                             gpu::kDeviceAlignment * gpu::kDeviceAlignment;

}  // namespace

// The content of one room. Returns the room when nothing uses it any more.
class GpuSource::Batch {
 public:
  Batch(const GpuSource* source, const std::function<void(const Rows&)>* take)
      : source_(*source), take_(*take) {}
  ~Batch() { ReturnRoom(); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  void Swap(Batch* other) {
    std::swap(staged_, other->staged_);
    std::swap(rows_end_, other->rows_end_);
    strips_.swap(other->strips_);
  }

  // How many more rows of this size fit.
  uint64_t RowsLeft(uint64_t row_bytes) const {
    if (staged_.bytes == 0) return std::max<uint64_t>(1, (kGpuGatherBytes - kRowsAt) / row_bytes);
    if (strips_.size() == kGpuGatherStrips) return 0;
    return (staged_.bytes - rows_end_) / row_bytes;
  }
  Status Add(const Slice& slice, uint32_t head, uint64_t first, uint64_t rows) {
    const GroupView& view = source_.view_.groups[slice.group];
    const Plane& plane = source_.model_.groups[view.group].planes[slice.plane];
    const PlaneView& plane_view = view.planes[slice.plane];
    const uint64_t bytes = rows * plane.row_bytes;
    if (staged_.bytes == 0) {
      CAIRN_ASSIGN_OR_RETURN(staged_, source_.port_.rows.Take(kRowsAt + bytes));
      rows_end_ = kRowsAt;
    }
    const uint32_t index = source_.views_->IndexOf(slice.group, slice.plane);
    const uint64_t begin = slice.begin + first;
    new (Strips() + strips_.size()) gpu::StripToGather(gpu::DescribeStrip(
        plane,
        plane_view.layer_bases[slice.layer] + static_cast<int64_t>(head) * plane_view.head_stride,
        staged_.on_device + rows_end_, source_.views_->View(index), index,
        gpu::DescribeRows(view, begin, begin, begin + rows)));
    strips_.push_back(
        {{.slice = &slice, .head = head, .first = first, .count = rows}, rows_end_, bytes});
    rows_end_ = std::min(AlignUp(rows_end_ + bytes, uint64_t{gpu::kLargestUnit}), staged_.bytes);
    return Status::Ok();
  }
  bool empty() const { return strips_.empty(); }

  // Enqueues everything that was added.
  Status Launch() {
    gpu::Device& device = source_.waits_.device();
    gpu::GatherSave gather;
    gather.strips = Strips();
    gather.views = source_.views_->on_device();
    gather.faults = Faults();
    gather.count = static_cast<uint32_t>(strips_.size());
    if (CAIRN_KEPT(kGpuViewsCopied)) {
      CAIRN_RETURN_IF_ERROR(device.StreamWait(staged_.stream, source_.views_->copied()));
    }
    CAIRN_RETURN_IF_ERROR(device.Launch(staged_.stream, gather));
    const gpu::CopyPiece rows{staged_.pinned + kRowsAt, staged_.on_device + kRowsAt,
                              rows_end_ - kRowsAt};
    CAIRN_RETURN_IF_ERROR(device.Copy(staged_.stream, {&rows, 1}));
    return device.Record(staged_.stream, staged_.copied);
  }

  // Waits for it, and copies the rows to their targets.
  Status Collect() {
    if (strips_.empty()) return Status::Ok();
    if (CAIRN_KEPT(kGpuGathered)) {
      CAIRN_RETURN_IF_ERROR(source_.waits_.For(staged_.copied, io::kNoDeadline));
    }
    for (size_t i = 0; i < strips_.size(); ++i) {
      Strip& strip = strips_[i];
      if (Faults()[i] != gpu::Fault::kNone && CAIRN_KEPT(kGpuFaults)) {
        return Status(StatusCode::kInvalidArgument,
                      "kv view: group " +
                          std::to_string(source_.view_.groups[strip.rows.slice->group].group) +
                          ": the table on the device leads out of its blocks");
      }
      strip.rows.bytes = {staged_.pinned + strip.rows_at, strip.bytes};
      take_(strip.rows);
    }
    ReturnRoom();
    return Status::Ok();
  }

 private:
  struct Strip {
    Rows rows{};
    uint64_t rows_at = 0;  // In the room.
    uint64_t bytes = 0;
  };
  gpu::StripToGather* Strips() const {
    return reinterpret_cast<gpu::StripToGather*>(staged_.pinned);
  }
  gpu::Fault* Faults() const {
    return reinterpret_cast<gpu::Fault*>(staged_.pinned +
                                         kGpuGatherStrips * sizeof(gpu::StripToGather));
  }
  void ReturnRoom() {
    if (staged_.bytes != 0) source_.port_.rows.Return(std::exchange(staged_, {}));
    strips_.clear();
  }

  const GpuSource& source_;
  const std::function<void(const Rows&)>& take_;
  DeviceStaging::Buffers staged_{};
  uint64_t rows_end_ = 0;  // In the room.
  std::vector<Strip> strips_;
};

Status GpuSource::Prepare() {
  if (views_ != nullptr) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(views_, GpuViews::Make(&waits_, &port_.views, model_, view_,
                                                KvUse::kAppend, [] { return Status::Ok(); }));
  return Status::Ok();
}

Status GpuSource::Gather(std::span<const Slice> slices) const {
  return Gather(slices, [&](const Rows& rows) {
    const Slice& slice = *rows.slice;
    const uint32_t row_bytes =
        model_.groups[view_.groups[slice.group].group].planes[slice.plane].row_bytes;
    std::memcpy(slice.into + (rows.head * slice.count + rows.first) * row_bytes, rows.bytes.data(),
                rows.bytes.size());
  });
}

Status GpuSource::Gather(std::span<const Slice> slices,
                         const std::function<void(const Rows&)>& take) const {
  Batch next(this, &take), flying(this, &take);
  return PassThroughRooms(model_, view_, slices, &next, &flying,
                          [](Batch* room, const Slice& slice, uint32_t head, uint64_t first,
                             uint64_t rows) { return room->Add(slice, head, first, rows); });
}

Result<std::shared_ptr<GpuSource>> GpuSource::Make(GpuPort* port, const ModelSpec& model,
                                                   const KvView& view, uintptr_t ready,
                                                   const std::string& call) {
  const auto source = std::shared_ptr<GpuSource>(new GpuSource(port, model, view, call));
  CAIRN_RETURN_IF_ERROR(source->ready_.Adopt(ready));
  return source;
}

Result<std::shared_ptr<GpuSource>> GpuSources::Open(const ModelSpec& model, const KvView& view,
                                                    uintptr_t ready) {
  CAIRN_ASSIGN_OR_RETURN(GpuPort * port, ports_.Find(view, "the store", "Options::gpus"));
  return GpuSource::Make(port, model, view, ready, "append");
}

}  // namespace cairn::engine
