// SPDX-License-Identifier: Apache-2.0
//
// A window of a delta whose KV lies in the memory of a GPU, copied into staging memory: the result
// is a delta like any other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "cairn/branch_types.h"
#include "cairn/model.h"
#include "engine/commit/kv_layout.h"
#include "engine/commit/staging.h"
#include "engine/device/gpu_source.h"

namespace cairn::engine {

class StagedWindow {
 public:
  // Room for windows of this size (WindowKvBytes). kBusy when there is none now,
  // kOutOfMemory.
  static Result<std::shared_ptr<StagedWindow>> Make(StagingPool* pool, uint64_t bytes);
  ~StagedWindow();
  StagedWindow(const StagedWindow&) = delete;
  StagedWindow& operator=(const StagedWindow&) = delete;

  uint64_t bytes() const { return buffer_.size(); }

  // Replaces the previous content. Waits for the device; the source must be ready. Model and delta
  // outlive this.
  Status Gather(const GpuSource& source, const ModelSpec& model, const Delta& delta,
                const DeltaWindow& window);
  // The delta, with the KV of the window, until the next Gather. Views are in the order of the
  // delta.
  const Delta& delta() const { return delta_; }

 private:
  StagedWindow() = default;
  StagingPool* pool_ = nullptr;
  AlignedBuffer buffer_;
  std::vector<std::vector<std::byte*>> bases_;  // One for each plane of each view.
  std::vector<PlaneView> planes_;
  std::vector<GroupView> groups_;
  KvView view_;
  Delta delta_;
};

}  // namespace cairn::engine
