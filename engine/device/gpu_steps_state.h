// SPDX-License-Identifier: Apache-2.0
//
// The implementation of GpuSteps: the ring, and the state of each slot.
//
//   free      Begin gives it to a step, and puts the plan into the stream
//   begun     the step's kernel may write to it
//   copying   End has enqueued the copy to the host
//   left      its step was given up; free once neither kernel nor copy can touch it
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/core/mutex.h"
#include "cairn/gpu.h"
#include "cairn/gpu_steps.h"
#include "engine/device/device_staging.h"
#include "engine/device/gpu_views.h"
#include "engine/device/gpu_waits.h"

namespace cairn {

class [[gnu::visibility("hidden")]] GpuStepsState {
 public:
  static Result<std::shared_ptr<GpuStepsState>> Make(const Gpu& gpu, const ModelSpec& model,
                                                     const KvView& view, uint32_t slots);
  ~GpuStepsState();
  static void Destroy(GpuStepsState * state);
  GpuStepsState(const GpuStepsState&) = delete;
  GpuStepsState& operator=(const GpuStepsState&) = delete;

  Status Enqueue(uintptr_t stream);
  Result<uint32_t> Begin(uintptr_t stream);  // Returns the slot.
  Status End(uint32_t slot, uintptr_t done);
  Result<bool> Arrived(uint32_t slot);
  Status Wait(uint32_t slot, uint64_t timeout_ns);
  void Leave(uint32_t slot) noexcept;
  bool IsInChild() const { return waits_.scheduler().ProcessId() != process_id_; }
  // For a slot whose copy has arrived.
  Status FillRow(uint32_t slot, uint32_t row, uint64_t position, std::vector<GroupView> * groups);
  uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  enum class State : uint8_t { kFree, kBegun, kCopying };
  struct Slot {
    State state = State::kFree;
    bool left = false;
    bool arrived = false;
    bool has_event = false;
    uint32_t number = 0;  // The number of its step.
    gpu::Event copied{};
    // Planes of the rows on the host, by group.
    std::vector<std::vector<std::byte*>> bases{};
    std::vector<PlaneView> planes{};
  };
  GpuStepsState(const Gpu& gpu, const ModelSpec& model, uint32_t slots);
  Status Init(const KvView& view);
  Status Allocate(const KvView& view) CAIRN_REQUIRES(mutex_);
  void Describe(const KvView& view) CAIRN_REQUIRES(mutex_);
  void DescribeSlot(uint32_t index) CAIRN_REQUIRES(mutex_);
  bool HasRun(uint32_t number) const;
  bool IsReached(gpu::Event event);
  Status CheckStampLocked(const Slot& slot, uint32_t index) const CAIRN_REQUIRES(mutex_);
  void ReapLocked() CAIRN_REQUIRES(mutex_);
  std::byte* OnHost(uint32_t slot) const { return host_slots_ + slot * slot_bytes_; }

  const Gpu gpu_;
  const ModelSpec model_;
  gpu::Device& device_;
  const engine::GpuWaits waits_;
  const uint64_t process_id_ = waits_.scheduler().ProcessId();
  engine::DeviceStaging pool_;
  std::unique_ptr<engine::GpuViews> views_;
  struct Group {
    uint32_t group = 0;
    uint32_t count = 0;
    uint64_t rows_at = 0;   // In a slot: [plane][layer][head][row],
    uint64_t there_at = 0;  // and whether there is such a row, a byte each.
    size_t first_plane = 0;
  };
  std::vector<Group> groups_;
  uint64_t stamp_at_ = 0;  // In a slot: the number of the step whose rows it holds.
  uint64_t slot_bytes_ = 0;
  std::vector<int32_t> indices_;  // 0, 1, 2, ...: a row's table.

  // One piece of memory each.
  std::byte* device_slots_ = nullptr;
  std::byte* host_slots_ = nullptr;
  std::byte* plan_ = nullptr;  // The device's, for the step that runs next.
  std::byte* told_ = nullptr;  // Pinned: kernel arguments, a plan a slot, the last step saved.
  gpu::StepPlan* plans_ = nullptr;
  gpu::GatherStep gather_{};
  gpu::EndStep end_{};
  gpu::Stream side_{};
  bool has_side_ = false;

  Mutex mutex_;
  std::vector<Slot> slots_ CAIRN_GUARDED_BY(mutex_);
  uint32_t last_ CAIRN_GUARDED_BY(mutex_) = 0;  // Number of the last step; never 0 for one.
};

}  // namespace cairn
