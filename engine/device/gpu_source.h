// SPDX-License-Identifier: Apache-2.0
//
// KV in the memory of a GPU, as the source of an append. Rows are gathered on the device
// (gather_save), copied to pinned memory, and from there to their target: one room after the other,
// two at a time, so that one is copied while the next is gathered.
//
// The caller's memory is only read, by the store's own streams, at low priority; no work of the
// caller waits for it. Algorithm: the "save" of serving engines that offload KV (vLLM's
// OffloadingConnector, LMCache), which gather blocks to a staging buffer and copy that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/io/world.h"
#include "cairn/gpu.h"
#include "cairn/kv_view.h"
#include "engine/device/gpu_ports.h"
#include "engine/device/gpu_ready.h"
#include "engine/device/gpu_views.h"

namespace cairn::engine {

// One view. Thread-safe. No lock may be held around Gather, which waits for the device.
class GpuSource {
 public:
  // Rows of one plane of a layer, for positions [begin, begin + count) of the view, into `into` in
  // host memory: [head][position][row].
  struct Slice {
    size_t group = 0;    // Index in KvView::groups.
    uint32_t layer = 0;  // Index among the layers that the view describes.
    uint32_t plane = 0;
    uint64_t begin = 0, count = 0;
    std::byte* into = nullptr;
  };
  // Rows of one head, of positions from `first` of the slice on, which follow each other in pinned
  // memory. It is used again when the call returns.
  struct Rows {
    const Slice* slice = nullptr;
    uint32_t head = 0;
    uint64_t first = 0, count = 0;
    std::span<const std::byte> bytes{};
  };

  // Takes a (validated) view of the port's memory, and an event (GpuReady). The model, the view's
  // arrays and the port outlive the source. `call` is named in errors.
  static Result<std::shared_ptr<GpuSource>> Make(GpuPort* port, const ModelSpec& model,
                                                 const KvView& view, uintptr_t ready,
                                                 const std::string& call);

  // Whether the caller's memory may be read, and waiting for it.
  GpuReady& ready() { return ready_; }
  // Makes the kernels' description of the view. REQUIRES: it is ready. By one thread, before
  // Gather. Errors: GpuViews.
  Status Prepare();
  // REQUIRES: it is prepared. kInvalidArgument: a table on the device points outside the view.
  // Whatever it returns, nothing reads the caller's memory for this call any more.
  Status Gather(std::span<const Slice> slices) const;
  // The same, but rows go to `take` instead of Slice::into.
  Status Gather(std::span<const Slice> slices, const std::function<void(const Rows&)>& take) const;

 private:
  class Batch;
  GpuSource(GpuPort* port, const ModelSpec& model, const KvView& view, const std::string& call)
      : port_(*port), waits_(port->waits), model_(model), view_(view), ready_(&waits_, call) {}

  GpuPort& port_;
  const GpuWaits& waits_;
  const ModelSpec& model_;
  const KvView view_;  // Its arrays are the caller's.
  GpuReady ready_;
  std::unique_ptr<GpuViews> views_;
};

// The GPUs of a store. Nothing of a device is taken before the first append from it.
class GpuSources {
 public:
  GpuSources(std::span<const Gpu> gpus, const io::World& world) : ports_(gpus, world.scheduler) {}

  // As GpuSource::Make. kInvalidArgument: the store has no such GPU; see GpuReady.
  Result<std::shared_ptr<GpuSource>> Open(const ModelSpec& model, const KvView& view,
                                          uintptr_t ready);
  // At the end of the store.
  void Clear() { ports_.Clear(); }

 private:
  GpuPorts ports_;
};

}  // namespace cairn::engine
