// SPDX-License-Identifier: Apache-2.0
#include "cairn/gpu_steps.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "base/codec/kv_copy.h"
#include "base/core/align.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/no_cancel.h"
#include "base/io/real_scheduler.h"
#include "engine/config/constants.h"
#include "engine/device/adopted_stream.h"
#include "engine/device/gpu_steps_state.h"

namespace cairn {

namespace {

constexpr uint32_t kSlotsMax = 1024;

Status Bad(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "gpu steps: " + what);
}

uint64_t SliceRoom(const Plane& plane, uint64_t count) {
  return AlignUp(SliceBytes(plane, count), uint64_t{gpu::kLargestUnit});
}

Status CheckView(const ModelSpec& model, const Gpu& gpu, const KvView& view) {
  CAIRN_RETURN_IF_ERROR(ValidateKvView(model, view, KvUse::kAppend));
  if (view.memory != MemoryKind::kCuda || view.device != gpu.ordinal()) {
    return Bad(std::string("the view's memory is ") + MemoryKindName(view.memory) + ", device " +
               std::to_string(view.device) + "; the GPU has ordinal " +
               std::to_string(gpu.ordinal()));
  }
  if (view.groups.empty()) return Bad("the view has no group");
  for (const GroupView& group : view.groups) {
    if (group.count == 0 || group.count != view.groups[0].count) {
      return Bad("group " + std::to_string(group.group) + " has " + std::to_string(group.count) +
                 " rows; all have as many, and one at least");
    }
    if (model.groups[group.group].retention.kind == Retention::kPerRequest) {
      return Bad("group " + std::to_string(group.group) + " keeps one state a request");
    }
    if (group.position != 0 || group.table.table_position != 0) {
      return Bad("group " + std::to_string(group.group) + ": a step's rows begin at position 0");
    }
  }
  return Status::Ok();
}

}  // namespace

GpuStepsState::GpuStepsState(const Gpu& gpu, const ModelSpec& model, uint32_t slots)
    : gpu_(gpu),
      model_(model),
      device_(*gpu.device()),
      waits_(gpu.device(), std::make_shared<io::RealScheduler>()),
      pool_(&waits_, {.bytes = 0, .kept_bytes = 0, .kept = 0}),
      slots_(slots) {}

// Enqueued steps have run: their memory is the caller's. Copies end here.
GpuStepsState::~GpuStepsState() {
  if (has_side_ && slots_[0].has_event && !waits_.Drain(side_, slots_[0].copied)) return;
  for (const Slot& slot : slots_) {
    if (slot.has_event) device_.Return(slot.copied);
  }
  if (has_side_) device_.Return(side_);
  views_ = nullptr;
  for (std::byte* const memory : {device_slots_, host_slots_, plan_, told_}) {
    if (memory != nullptr) device_.Free(memory);
  }
}

// In a child of fork() the memory, and the device, are the parent's.
void GpuStepsState::Destroy(GpuStepsState* state) {
  const io::NoCancel guard;
  if (!state->IsInChild()) delete state;
}

Result<std::shared_ptr<GpuStepsState>> GpuStepsState::Make(const Gpu& gpu, const ModelSpec& model,
                                                           const KvView& view, uint32_t slots) {
  if (slots == 0 || slots > kSlotsMax) {
    return Bad("slots is " + std::to_string(slots) + ", not 1 to " + std::to_string(kSlotsMax));
  }
  CAIRN_RETURN_IF_ERROR(CheckView(model, gpu, view));
  const std::shared_ptr<GpuStepsState> state(new GpuStepsState(gpu, model, slots), Destroy);
  CAIRN_ASSIGN_OR_RETURN(state->views_,
                         engine::GpuViews::Make(&state->waits_, &state->pool_, state->model_, view,
                                                KvUse::kAppend, [] { return Status::Ok(); }));
  // A captured launch waits for none of the store's events.
  CAIRN_RETURN_IF_ERROR(state->waits_.For(state->views_->copied(), io::kNoDeadline));
  CAIRN_RETURN_IF_ERROR(state->Init(view));
  return state;
}

Status GpuStepsState::Init(const KvView& view) {
  const MutexLock lock(&mutex_);
  CAIRN_RETURN_IF_ERROR(Allocate(view));
  Describe(view);
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) DescribeSlot(slot);
  return Status::Ok();
}

Status GpuStepsState::Allocate(const KvView& view) {
  size_t planes = 0;
  for (const GroupView& group : view.groups) {
    const LayerGroup& of = model_.groups[group.group];
    groups_.push_back({.group = group.group,
                       .count = static_cast<uint32_t>(group.count),
                       .rows_at = slot_bytes_,
                       .first_plane = planes});
    planes += of.planes.size();
    for (const Plane& plane : of.planes) slot_bytes_ += of.layers * SliceRoom(plane, group.count);
    groups_.back().there_at = slot_bytes_;
    slot_bytes_ = AlignUp(slot_bytes_ + group.count, gpu::kDeviceAlignment);
    for (const Plane& plane : of.planes) gather_.strips_count += of.layers * plane.heads;
  }
  stamp_at_ = slot_bytes_;
  slot_bytes_ += gpu::kDeviceAlignment;
  gather_.rows_count = static_cast<uint32_t>(groups_.size());
  indices_.resize(groups_[0].count);
  std::iota(indices_.begin(), indices_.end(), 0);
  const size_t slots = slots_.size();
  using gpu::Memory;
  CAIRN_ASSIGN_OR_RETURN(device_slots_, device_.Allocate(Memory::kDevice, slots * slot_bytes_));
  CAIRN_ASSIGN_OR_RETURN(host_slots_, device_.Allocate(Memory::kPinned, slots * slot_bytes_));
  CAIRN_ASSIGN_OR_RETURN(plan_, device_.Allocate(Memory::kDevice, sizeof(gpu::StepPlan)));
  const uint64_t told_bytes = (slots + 2) * sizeof(gpu::StepPlan) +
                              gather_.rows_count * sizeof(gpu::RowsThere) +
                              gather_.strips_count * sizeof(gpu::StripToGather);
  CAIRN_ASSIGN_OR_RETURN(told_, device_.Allocate(Memory::kPinned, told_bytes));
  CAIRN_ASSIGN_OR_RETURN(side_, device_.NewStream(gpu::Priority::kLow));
  has_side_ = true;
  for (Slot& slot : slots_) {
    CAIRN_ASSIGN_OR_RETURN(slot.copied, device_.NewEvent());
    slot.has_event = true;
  }
  // No plan, and no stamp.
  CAIRN_RETURN_IF_ERROR(device_.Fill(side_, {plan_, sizeof(gpu::StepPlan)}, std::byte{0}));
  CAIRN_RETURN_IF_ERROR(device_.Fill(side_, {device_slots_, slots * slot_bytes_}, std::byte{0}));
  CAIRN_RETURN_IF_ERROR(device_.Record(side_, slots_[0].copied));
  return waits_.For(slots_[0].copied, io::kNoDeadline);
}

// Layout of `told_`: a plan for each slot, an empty one, the number of the last step, rows, strips.
void GpuStepsState::Describe(const KvView& view) {
  plans_ = reinterpret_cast<gpu::StepPlan*>(told_);
  gpu::StepPlan* const last = plans_ + slots_.size() + 1;
  auto* const rows = reinterpret_cast<gpu::RowsThere*>(last + 1);
  auto* const strips = reinterpret_cast<gpu::StripToGather*>(rows + gather_.rows_count);
  std::uninitialized_fill_n(plans_, slots_.size() + 2, gpu::StepPlan{0});
  size_t strip = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const GroupView& group = view.groups[i];
    const LayerGroup& of = model_.groups[group.group];
    const gpu::WantedRows wanted = gpu::DescribeRows(group, 0, 0, group.count);
    std::byte* at = device_slots_ + groups_[i].rows_at;
    for (uint32_t p = 0; p < of.planes.size(); ++p) {
      const Plane& plane = of.planes[p];
      const uint32_t index = views_->IndexOf(i, p);
      for (uint32_t layer = 0; layer < of.layers; ++layer, at += SliceRoom(plane, group.count)) {
        for (uint32_t head = 0; head < plane.heads; ++head) {
          const PlaneView& from = group.planes[p];
          new (strips + strip++) gpu::StripToGather(gpu::DescribeStrip(
              plane, from.layer_bases[layer] + static_cast<int64_t>(head) * from.head_stride,
              at + head * group.count * plane.row_bytes, views_->View(index), index, wanted));
        }
      }
    }
    new (rows + i)
        gpu::RowsThere{.there = reinterpret_cast<uint8_t*>(device_slots_ + groups_[i].there_at),
                       .wanted = wanted,
                       .view = views_->IndexOf(i, 0)};
  }
  gather_.strips = strips;
  gather_.rows = rows;
  gather_.views = views_->on_device();
  gather_.plan = end_.plan = reinterpret_cast<gpu::StepPlan*>(plan_);
  gather_.slot_bytes = end_.slot_bytes = slot_bytes_;
  end_.stamp = reinterpret_cast<uint32_t*>(device_slots_ + stamp_at_);
  end_.told = reinterpret_cast<uint32_t*>(last);
}

void GpuStepsState::DescribeSlot(uint32_t index) {
  Slot& slot = slots_[index];
  for (const Group& group : groups_) {
    const LayerGroup& of = model_.groups[group.group];
    std::byte* at = OnHost(index) + group.rows_at;
    for (const Plane& plane : of.planes) {
      std::vector<std::byte*>& bases = slot.bases.emplace_back();
      for (uint32_t layer = 0; layer < of.layers; ++layer, at += SliceRoom(plane, group.count)) {
        bases.push_back(at);
      }
      slot.planes.push_back({.token_stride = plane.row_bytes,
                             .head_stride = static_cast<int64_t>(group.count * plane.row_bytes)});
    }
  }
  for (size_t i = 0; i < slot.planes.size(); ++i) slot.planes[i].layer_bases = slot.bases[i];
}

Status GpuStepsState::Enqueue(uintptr_t handle) {
  engine::AdoptedStream adopted(&device_);
  CAIRN_ASSIGN_OR_RETURN(const gpu::Stream stream, adopted.Adopt(handle));
  CAIRN_RETURN_IF_ERROR(device_.Launch(stream, gather_));
  return device_.Launch(stream, end_);
}

// The device's report may be old, but never ahead. A step that was begun and not launched counts as
// run once a later one has run.
bool GpuStepsState::HasRun(uint32_t number) const {
  const uint32_t told = std::atomic_ref<uint32_t>(*end_.told).load(std::memory_order_acquire);
  return told != 0 && static_cast<int32_t>(told - number) >= 0;
}

bool GpuStepsState::IsReached(gpu::Event event) {
  const Result<bool> reached =
      CatchBadAlloc([&]() -> Result<bool> { return device_.Reached(event); });
  return reached.ok() && *reached;
}

void GpuStepsState::ReapLocked() {
  for (Slot& slot : slots_) {
    if (!slot.left) continue;
    const bool ended =
        slot.state == State::kBegun ? HasRun(slot.number) : slot.arrived || IsReached(slot.copied);
    if (!ended) continue;
    slot.state = State::kFree;
    slot.left = slot.arrived = false;
  }
}

Result<uint32_t> GpuStepsState::Begin(uintptr_t handle) {
  CAIRN_RETURN_IF_ERROR(device_.lost());
  const MutexLock lock(&mutex_);
  ReapLocked();
  const auto free = std::find_if(slots_.begin(), slots_.end(),
                                 [](const Slot& slot) { return slot.state == State::kFree; });
  // Without a slot the plan is empty: the plan of a step that was never launched must not be used.
  const auto index = static_cast<uint32_t>(free - slots_.begin());
  const uint32_t number = last_ + 1 == 0 ? 1 : last_ + 1;
  // A plan is read when the copy runs: it must not change until the slot is free again.
  if (free != slots_.end()) plans_[index] = number | uint64_t{index} << 32;
  engine::AdoptedStream adopted(&device_);
  CAIRN_ASSIGN_OR_RETURN(const gpu::Stream stream, adopted.Adopt(handle));
  const gpu::CopyPiece piece{plan_, reinterpret_cast<const std::byte*>(plans_ + index),
                             sizeof(gpu::StepPlan)};
  CAIRN_RETURN_IF_ERROR(device_.Copy(stream, {&piece, 1}));
  if (free == slots_.end()) return Status(StatusCode::kBusy, "gpu steps: no slot is free");
  last_ = number;
  free->state = State::kBegun;
  free->number = number;
  return index;
}

Status GpuStepsState::End(uint32_t index, uintptr_t done) {
  const MutexLock lock(&mutex_);
  Slot& slot = slots_[index];
  if (slot.state != State::kBegun) {
    return Status(StatusCode::kInvalidState, "gpu steps: End was called before");
  }
  CAIRN_ASSIGN_OR_RETURN(const gpu::Event behind, device_.AdoptEvent(done));
  const Status enqueued = [&]() -> Status {
    if (CAIRN_KEPT(kGpuStepRun)) CAIRN_RETURN_IF_ERROR(device_.StreamWait(side_, behind));
    // The stamp is copied first: if it is the step's, so are all rows copied after it.
    std::byte* const slot_at = device_slots_ + index * slot_bytes_;
    const gpu::CopyPiece stamp{OnHost(index) + stamp_at_, slot_at + stamp_at_, sizeof(uint32_t)};
    const gpu::CopyPiece rows{OnHost(index), slot_at, stamp_at_};
    CAIRN_RETURN_IF_ERROR(device_.Copy(side_, {&stamp, 1}));
    CAIRN_RETURN_IF_ERROR(device_.Copy(side_, {&rows, 1}));
    return device_.Record(side_, slot.copied);
  }();
  device_.Return(behind);
  if (enqueued.ok()) slot.state = State::kCopying;
  return enqueued;
}

// Checks that the copied rows are of this step.
Status GpuStepsState::CheckStampLocked(const Slot& slot, uint32_t index) const {
  uint32_t stamp = 0;
  std::memcpy(&stamp, OnHost(index) + stamp_at_, sizeof stamp);
  if (stamp == slot.number || !CAIRN_KEPT(kGpuStepStamp)) return Status::Ok();
  return Status(StatusCode::kInvalidState,
                "gpu steps: the step did not run between Begin and the event given to End");
}

Result<bool> GpuStepsState::Arrived(uint32_t index) {
  const MutexLock lock(&mutex_);
  Slot& slot = slots_[index];
  if (slot.state != State::kCopying) return false;
  if (!slot.arrived && CAIRN_KEPT(kGpuGathered)) {
    CAIRN_ASSIGN_OR_RETURN(const bool reached, device_.Reached(slot.copied));
    if (!reached) return false;
  }
  slot.arrived = true;
  CAIRN_RETURN_IF_ERROR(CheckStampLocked(slot, index));
  return true;
}

Status GpuStepsState::Wait(uint32_t index, uint64_t timeout_ns) {
  gpu::Event copied;
  {
    const MutexLock lock(&mutex_);
    if (slots_[index].state != State::kCopying) {
      return Status(StatusCode::kInvalidState, "gpu steps: End was not called, or failed");
    }
    copied = slots_[index].copied;
  }
  const uint64_t now_ns = waits_.scheduler().MonotonicNs();
  const uint64_t deadline_ns =
      timeout_ns > io::kNoDeadline - now_ns ? io::kNoDeadline : now_ns + timeout_ns;
  if (CAIRN_KEPT(kGpuGathered)) CAIRN_RETURN_IF_ERROR(waits_.For(copied, deadline_ns));
  const MutexLock lock(&mutex_);
  slots_[index].arrived = true;
  return CheckStampLocked(slots_[index], index);
}

void GpuStepsState::Leave(uint32_t index) noexcept {
  const MutexLock lock(&mutex_);
  slots_[index].left = true;
  ReapLocked();
}

Status GpuStepsState::FillRow(uint32_t index, uint32_t row, uint64_t position,
                              std::vector<GroupView>* groups) {
  const MutexLock lock(&mutex_);
  const Slot& slot = slots_[index];
  if (row >= indices_.size()) {
    return Bad("row " + std::to_string(row) + " of " + std::to_string(indices_.size()));
  }
  for (const Group& group : groups_) {
    if (OnHost(index)[group.there_at + row] == std::byte{0}) {
      return Bad("row " + std::to_string(row) + ": the table of group " +
                 std::to_string(group.group) + " named no place in that step");
    }
    GroupView& view = groups->emplace_back();
    view.group = group.group;
    view.position = position;
    view.count = 1;
    view.table.kind = TableKind::kSlots;
    view.table.entries = &indices_[row];
    view.table.count = 1;
    view.table.table_position = position;
    view.planes =
        std::span(slot.planes).subspan(group.first_plane, model_.groups[group.group].planes.size());
  }
  return Status::Ok();
}

// ---------------------------------------------------------------- the handles

namespace {

Status NoStep() { return Status(StatusCode::kInvalidState, "gpu steps: an empty step"); }

// Common to all calls.
template <typename Call>
auto OnState(const std::shared_ptr<GpuStepsState>& state, const Call& call) -> decltype(call()) {
  if (state == nullptr) return NoStep();
  if (state->IsInChild()) {
    return Status(StatusCode::kInvalidState, "gpu steps: used after fork(), in the child");
  }
  const io::NoCancel guard;
  return CatchBadAlloc(call);
}

void Leave(const std::shared_ptr<GpuStepsState>& state, uint32_t slot) noexcept {
  if (state != nullptr && !state->IsInChild()) state->Leave(slot);
}

}  // namespace

GpuStep::~GpuStep() { Leave(state_, slot_); }

GpuStep& GpuStep::operator=(GpuStep&& other) noexcept {
  if (this == &other) return *this;
  Leave(state_, slot_);
  state_ = std::move(other.state_);
  slot_ = other.slot_;
  rows_ = std::move(other.rows_);
  return *this;
}

Status GpuStep::End(uintptr_t done) {
  return OnState(state_, [&]() -> Status { return state_->End(slot_, done); });
}

Result<bool> GpuStep::Arrived() const {
  return OnState(state_, [&]() -> Result<bool> { return state_->Arrived(slot_); });
}

Status GpuStep::Wait(uint64_t timeout_ns) const {
  return OnState(state_, [&]() -> Status { return state_->Wait(slot_, timeout_ns); });
}

Result<const KvView*> GpuStep::Row(uint32_t row, uint64_t position) {
  return OnState(state_, [&]() -> Result<const KvView*> {
    CAIRN_ASSIGN_OR_RETURN(const bool arrived, state_->Arrived(slot_));
    if (!arrived) return Status(StatusCode::kBusy, "gpu steps: the step has not arrived");
    auto view = std::make_unique<RowView>();
    CAIRN_RETURN_IF_ERROR(state_->FillRow(slot_, row, position, &view->groups));
    view->kv.groups = view->groups;
    rows_.push_back(std::move(view));
    return &rows_.back()->kv;
  });
}

Result<GpuSteps> GpuSteps::Make(const Gpu& gpu, const ModelSpec& model, const KvView& view,
                                const GpuStepsOptions& options) {
  const io::NoCancel guard;
  return CatchBadAlloc([&]() -> Result<GpuSteps> {
    CAIRN_ASSIGN_OR_RETURN(auto state, GpuStepsState::Make(gpu, model, view, options.slots));
    return GpuSteps(std::move(state));
  });
}

Status GpuSteps::Enqueue(uintptr_t stream) {
  return OnState(state_, [&]() -> Status { return state_->Enqueue(stream); });
}

Result<GpuStep> GpuSteps::Begin(uintptr_t stream) {
  return OnState(state_, [&]() -> Result<GpuStep> {
    CAIRN_ASSIGN_OR_RETURN(const uint32_t slot, state_->Begin(stream));
    return GpuStep(state_, slot);
  });
}

uint64_t GpuSteps::slot_bytes() const { return state_->slot_bytes(); }

}  // namespace cairn
