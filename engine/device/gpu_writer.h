// SPDX-License-Identifier: Apache-2.0
//
// KV in the memory of a GPU, as the target of a copy: GpuSource the other way round. Rows of the
// host are put into pinned memory, copied to the device, and scattered from there (decode_scatter,
// as rows of the log are restored): one room after the other, two at a time, so that one is filled
// while the other is scattered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "cairn/kv_view.h"
#include "engine/device/gpu_ports.h"
#include "engine/device/gpu_ready.h"
#include "engine/device/gpu_views.h"

namespace cairn::engine {

// One view. Thread-safe, but for Prepare. No lock may be held around Scatter, which waits for the
// device.
class GpuWriter {
 public:
  // Rows of one plane of a layer, for positions [begin, begin + count) of the view.
  struct Slice {
    size_t group = 0;    // Index in KvView::groups.
    uint32_t layer = 0;  // Index among the layers that the view describes.
    uint32_t plane = 0;
    uint64_t begin = 0, count = 0;
  };
  // Rows of one head, of positions from `first` of the slice on, to be put into `bytes`, where they
  // follow each other.
  struct Rows {
    const Slice* slice = nullptr;
    uint32_t head = 0;
    uint64_t first = 0, count = 0;
    std::span<std::byte> bytes{};
  };

  // Takes a (validated) view of the port's memory, and an event (GpuReady). The model, the view's
  // arrays and the port outlive the writer. `call` is named in errors.
  static Result<std::unique_ptr<GpuWriter>> Make(GpuPort* port, const ModelSpec& model,
                                                 const KvView& view, uintptr_t ready,
                                                 const std::string& call);

  // Whether the caller's memory may be written, and waiting for it.
  GpuReady& ready() { return ready_; }
  // Makes the kernels' description of the view. REQUIRES: it is ready. By one thread, before
  // Scatter. Errors: GpuViews.
  Status Prepare();
  // REQUIRES: it is prepared. kCorruption: a table on the device has changed since. However it
  // ends, nothing touches the caller's memory for this call any more.
  Status Scatter(std::span<const Slice> slices, const std::function<void(const Rows&)>& give) const;

 private:
  class Batch;
  GpuWriter(GpuPort* port, const ModelSpec& model, const KvView& view, const std::string& call)
      : port_(*port), waits_(port->waits), model_(model), view_(view), ready_(&waits_, call) {}

  GpuPort& port_;
  const GpuWaits& waits_;
  const ModelSpec& model_;
  const KvView view_;  // Its arrays are the caller's.
  GpuReady ready_;
  std::unique_ptr<GpuViews> views_;
};

}  // namespace cairn::engine
