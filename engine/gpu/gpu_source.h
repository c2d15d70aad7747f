// SPDX-License-Identifier: Apache-2.0
//
// KV that lies in the memory of a GPU, as the source of an append. Rows are gathered on the device
// (gather_save), copied to pinned memory, and from there to where they are wanted: a room after the
// other, two at a time, so that one is copied while the next is gathered.
//
// The caller's memory is only read, by streams of ours, at low priority; nothing that the caller
// enqueues waits for it. Algorithm: the "save" of serving engines that offload KV (vLLM's
// OffloadingConnector, LMCache), which gather blocks to a staging buffer and copy that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/io/world.h"
#include "cairn/gpu.h"
#include "cairn/kv_view.h"
#include "engine/gpu/gpu_ready.h"
#include "engine/gpu/gpu_rooms.h"
#include "engine/gpu/gpu_views.h"

namespace cairn::engine {

// One view. Thread-safe. No lock may be held around Gather, which waits for the device.
class GpuSource {
 public:
  // Rows of one plane of a layer, for positions [begin, begin + count) of the view. To `into`, in
  // host memory, [head][position][row].
  struct Slice {
    size_t group = 0;    // Index in KvView::groups.
    uint32_t layer = 0;  // Of the layers that the view describes.
    uint32_t plane = 0;
    uint64_t begin = 0, count = 0;
    std::byte* into = nullptr;
  };

  // Whether, and until, the caller's memory may be read.
  GpuReady& ready() { return ready_; }
  // What kernels know of the view. REQUIRES: it is ready. By one thread, before
  // Gather. Errors: GpuViews.
  Status Prepare();
  // REQUIRES: it is prepared. kInvalidArgument: a table on the device leads out of the view.
  // Whatever it returns, nothing reads the caller's memory any more for this call.
  Status Gather(std::span<const Slice> slices) const;

 private:
  friend class GpuSources;
  class Batch;
  GpuSource(const GpuWaits* waits, GpuRooms* views_rooms, GpuRooms* rooms, const ModelSpec& model,
            const KvView& view)
      : waits_(*waits),
        views_rooms_(views_rooms),
        rooms_(rooms),
        model_(model),
        view_(view),
        ready_(waits, "append") {}
  Status Add(const Slice& slice, Batch* next, Batch* flying) const;

  const GpuWaits& waits_;
  GpuRooms* const views_rooms_;
  GpuRooms* const rooms_;
  const ModelSpec& model_;
  const KvView view_;  // Its arrays are the caller's.
  GpuReady ready_;
  std::unique_ptr<GpuViews> views_;
};

// The GPUs of a store. Nothing of a device is taken before the first append from it.
class GpuSources {
 public:
  GpuSources(std::span<const Gpu> gpus, const io::World& world);
  ~GpuSources();
  GpuSources(const GpuSources&) = delete;
  GpuSources& operator=(const GpuSources&) = delete;

  // A (validated) view of GPU memory, and an event (GpuReady). The model, and the view's arrays,
  // outlive the source. Takes no memory of the device. kInvalidArgument: the store has no such GPU;
  // see GpuReady.
  Result<std::shared_ptr<GpuSource>> Open(const ModelSpec& model, const KvView& view,
                                          uintptr_t ready);
  // At the end of the store, which handles may outlive by far: rooms are kept no more.
  void Clear();

 private:
  struct Port;
  std::vector<std::unique_ptr<Port>> ports_;
};

}  // namespace cairn::engine
