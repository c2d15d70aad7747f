// SPDX-License-Identifier: Apache-2.0
//
// Puts what a restore finds into the memory of a GPU. What was read into a window is checked on the
// host, copied as it is, packed, by one copy, and unpacked on the device by one launch, straight
// into the caller's blocks. Rows that are in host memory already, of the hot tail or of the page
// cache, are gathered into pinned memory and go the same way. Frames that lie in the GPU's pinned
// memory go from there, a window's worth at a time; what is read comes into it on the way.
//
//   described    frames and rows of a window          several threads, each its own window
//   launched     copy, decode_scatter, event          when the window is done: gpu_ring.h
//   ended        faults are looked at, layers told    by the thread that sees the event reached
//   again        unpacked on the host, launched raw   once, after a failure, where the caller wants
//                                                     that: gpu_fallback.h
//
// A layer is told enqueued when all that it waits for was launched, and complete when that has
// ended without a fault. Token ids go to host memory at once.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/core/mutex.h"
#include "engine/commit/kv_layout.h"
#include "engine/gpu/gpu_ready.h"
#include "engine/gpu/gpu_views.h"
#include "engine/restore/gpu_target.h"
#include "engine/restore/layer_counts.h"
#include "engine/restore/layer_words.h"
#include "engine/restore/pinned_fill.h"
#include "engine/restore/sink.h"
#include "engine/restore/sink_parts.h"

namespace cairn::engine {

class GpuSink final : public RestoreSink, public PinnedTaker {
 public:
  struct Means {
    GpuTarget* target = nullptr;     // Windows of this restore are read into its pinned buffers.
    std::function<bool()> wanted{};  // Whether anybody still waits for the restore.
    uint64_t deadline_ns = io::kNoDeadline;
  };
  // As HostSink. `request.into` is of the target's device. kInvalidArgument: see GpuViews; and
  // events that are not the device's.
  static Result<std::unique_ptr<GpuSink>> Make(const Means& means, const RestorePlan& plan,
                                               const RestoreRequest& request, const StoreId& store,
                                               LayerWords* layers, std::span<const OpenPiece> open);
  ~GpuSink() override;

  Status Record(const RecordJob& job, const ReadBytes& record, bool verify) override;
  Status Frame(const FrameJob& job, const ReadBytes& stored) override;
  Status Fragment(size_t piece, const ReadBytes& stored, uint64_t* first_position) override;
  uint64_t Unpacked(const FrameJob& job, const ReadBytes& raw) override;
  Status WindowDone(size_t buffer) override;
  void LayerDone(size_t layer) override;
  bool TakeBack(uint64_t deadline_ns) override;
  Status Finish() override;
  Delivered delivered() const override { return delivered_.Total(); }

  // --- PinnedTaker
  Result<uint64_t> Pinned(const FrameJob& job, const ReadBytes& stored) override;
  Status PinnedDone() override;

 private:
  // Host memory that is copied at once.
  struct Run {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
  };
  // What goes to the device with one copy and one launch. Payloads are host addresses until then.
  struct Load {
    std::vector<gpu::FrameToScatter> frames;
    std::vector<std::pair<LayerCounts::Target*, uint32_t>> pieces;  // By layer of the view.
    std::vector<Run> runs;          // Of a window, or of what was gathered, one.
    std::vector<BufferHold> holds;  // On the window, or on what is pinned; or
    ReadBuffer staged;              // what was gathered.
    uint64_t staged_bytes = 0;
    bool enqueued = false;                          // Its layers were told; and
    bool again = false;                             // it was unpacked on the host.
    bool of_cache = false;                          // From the pinned cache.
    void Cover(std::span<const std::byte> bytes);   // By its one run.
    void Follow(std::span<const std::byte> bytes);  // By the last run, or another.
    uint64_t bytes() const;                         // Of all runs.
    // Where the runs come to lie behind each other, one a run, and the end: each has the alignment
    // that it has now.
    std::vector<uint64_t> Places() const;
  };
  // A place in the caller's memory.
  struct Head {
    LayerCounts::Target* target = nullptr;
    uint32_t layer = 0;  // Of the view.
    std::byte* base = nullptr;
    uint32_t view = 0;  // Index of the PagedView.
    const Plane* plane = nullptr;
  };
  struct Page {
    Head at;
    gpu::FrameToScatter frame;
    uint64_t bytes = 0;  // Of KV that are wanted.
  };

  GpuSink(const Means& means, const RestorePlan& plan, const RestoreRequest& request,
          const StoreId& store, LayerWords* layers, std::span<const OpenPiece> open);
  Status Adopt(const RestoreRequest& request);
  // Before anything of the caller's is touched: its event was reached. The host waits, so that what
  // flies never waits for what may take long.
  Status AwaitReady();
  Head HeadAt(LayerCounts::Target* target, uint32_t model_layer, uint32_t plane,
              uint32_t head) const;
  gpu::WantedRows Wanted(const LayerCounts::Target& target, uint64_t row0, uint64_t first,
                         uint64_t end) const;
  Result<Page> Describe(const FrameJob& job, std::span<const std::byte> stored,
                        LayerCounts::Target* target);
  // A piece of a layer, in a window.
  void Add(const ReadBytes& from, std::span<const std::span<const std::byte>> covered,
           std::span<const gpu::FrameToScatter> frames, const Head& at);
  // Rows that no window holds are copied into pinned memory: all of a piece of a layer, so that one
  // launch is all that the piece waits for. Payloads are where they are now.
  Status Stage(std::span<const gpu::FrameToScatter> frames, const Head& of);
  Status FlushStaged();
  Status Launch(Load load);
  Status Fly(Load load);
  Status Enqueue(const Load& load, GpuRing::Slot* slot);
  void Ended(Load* load, const Status& status, std::span<const gpu::Fault> faults);
  Status Enqueued(Load* load, gpu::Event done);
  bool MayFallBack(const Load& load) const;
  Result<Load> UnpackedOnHost(const Load& load);
  // What ended with a fault, and is unpacked now. False: there is none.
  bool FlyAgain();
  Status RecordKv(const RecordPiece& piece, const LaneRange& range, const ReadRecord& record,
                  const ReadBytes& read);
  Status TokenFrame(const FrameJob& job, const ReadBytes& stored) const;

  const Means means_;
  const KvView* const into_;
  size_t layer_count_ = 0;  // Of all groups of the view.
  const StoreId store_;
  const TokenRows tokens_;
  LayerWords* const layers_;
  const std::span<const OpenPiece> open_;
  LayerCounts counts_;  // Of pieces that have not ended.
  std::unique_ptr<GpuViews> views_;
  std::unique_ptr<PinnedFill> fill_;  // Null: there is no pinned memory.
  Load pinned_;                       // The driving thread's.
  DeliveredCount delivered_;
  std::atomic<uint32_t> in_flight_{0};

  // The caller's events, adopted.
  bool has_behind_ = false;
  GpuReady ready_;
  bool falls_back_ = false;               // GpuSync::fall_back_to_host.
  std::vector<gpu::Event> layer_events_;  // By layer, or empty.
  gpu::Stream behind_{};                  // Waits for all that was launched.

  Mutex mutex_;
  std::map<size_t, Load> windows_ CAIRN_GUARDED_BY(mutex_);  // By buffer, until WindowDone.
  Load staged_ CAIRN_GUARDED_BY(mutex_);
  std::vector<Load> again_ CAIRN_GUARDED_BY(mutex_);  // To go again; counts as in flight.
  // By layer of all groups: pieces that were not launched.
  std::vector<uint64_t> not_launched_ CAIRN_GUARDED_BY(mutex_);
  Status failed_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
