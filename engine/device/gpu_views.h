// SPDX-License-Identifier: Apache-2.0
//
// The kernels' description of the view of one call: for every plane of every group a PagedView, and
// the tables, in device memory. If the caller's table is on the device it is checked there before
// anything is written through it. If it is only read, the kernel reports entries that point
// outside.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cairn/kv_view.h"
#include "engine/device/device_staging.h"
#include "gpu/describe.h"

namespace cairn::engine {

class GpuViews {
 public:
  // The view is valid (ValidateKvView) and outlives this. `await_ready` is called before a table on
  // the device is checked. kInvalidArgument: such a table names something that does not exist, or
  // twice; a view larger than the memory of a device counts as such.
  static Result<std::unique_ptr<GpuViews>> Make(const GpuWaits* waits, DeviceStaging* pool,
                                                const ModelSpec& model, const KvView& view,
                                                KvUse use,
                                                const std::function<Status()>& await_ready);
  ~GpuViews();
  GpuViews(const GpuViews&) = delete;
  GpuViews& operator=(const GpuViews&) = delete;

  // By index in KvView::groups, and plane.
  uint32_t IndexOf(size_t group, size_t plane) const { return first_[group] + plane; }
  const gpu::PagedView& View(uint32_t index) const { return views_[index]; }
  const gpu::PagedView* on_device() const {
    return reinterpret_cast<const gpu::PagedView*>(staged_.on_device);
  }
  // When it is reached the memory of on_device() is filled: streams that read it wait for it.
  gpu::Event copied() const { return staged_.copied; }

 private:
  GpuViews(const GpuWaits* waits, DeviceStaging* pool) : waits_(*waits), pool_(pool) {}
  Status Fill(const ModelSpec& model, const KvView& view);
  Status CheckTables(const KvView& view);

  const GpuWaits& waits_;
  DeviceStaging* const pool_;
  DeviceStaging::Buffers staged_{};
  uint64_t check_at_ = 0;        // In the room: a verdict, and a bit for each entry seen.
  std::vector<uint32_t> first_;  // By group: the index of its first plane.
  std::vector<gpu::PagedView> views_;
};

}  // namespace cairn::engine
