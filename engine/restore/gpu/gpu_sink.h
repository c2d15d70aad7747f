// SPDX-License-Identifier: Apache-2.0
//
// The sink of a restore into the memory of a GPU. A window that was read is checked on the host,
// copied packed as it is by one copy, and unpacked on the device by one launch, straight into the
// caller's blocks. Rows from the hot tail or the page cache, which are in host memory already, are
// gathered into pinned memory and go the same way. Frames in the GPU's pinned memory go from there,
// a window's worth at a time; frames that are read are added to it on the way.
//
//   described    frames and rows of a window          several threads, each its own window
//   launched     copy, decode_scatter, rotate_keys,   when the window is done: gpu_ring.h
//                event
//   ended        faults are checked, layers reported  by the thread that sees the event reached
//   again        unpacked on the host, launched raw   once, after a failure, if the caller
//                                                     asked for it: gpu_fallback.h
//
// A layer is reported enqueued when everything that it waits for was launched, and complete when
// that has ended without a fault. Token ids go to host memory at once.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/core/mutex.h"
#include "engine/commit/kv_layout.h"
#include "engine/device/gpu_ready.h"
#include "engine/device/gpu_views.h"
#include "engine/restore/gpu/gpu_target.h"
#include "engine/restore/gpu/gpu_turns.h"
#include "engine/restore/gpu/pinned_fill.h"
#include "engine/restore/plan/layer_counts.h"
#include "engine/restore/plan/layer_words.h"
#include "engine/restore/plan/sink.h"
#include "engine/restore/plan/sink_parts.h"

namespace cairn::engine {

class GpuSink final : public RestoreSink, public PinnedTaker {
 public:
  struct Deps {
    GpuTarget* target = nullptr;     // Windows of this restore are read into its pinned buffers.
    std::function<bool()> wanted{};  // Whether the restore is still wanted.
    uint64_t deadline_ns = io::kNoDeadline;
  };
  // As HostSink. `request.into` is on the target's device. kInvalidArgument: see GpuViews; and for
  // events of another device.
  static Result<std::unique_ptr<GpuSink>> Make(const Deps& deps, const RestorePlan& plan,
                                               const RestoreRequest& request,
                                               const RecordDeps& records, LayerWords* layers,
                                               std::span<const OpenPiece> open);
  ~GpuSink() override;

  Status Record(const RecordJob& job, const ReadBytes& record, bool verify) override;
  Status Frame(const FrameJob& job, const ReadBytes& stored) override;
  Status Fragment(size_t piece, const ReadBytes& stored, uint64_t* first_position) override;
  uint64_t Unpacked(const FrameJob& job, const ReadBytes& raw) override;
  Status WindowDone(size_t buffer) override;
  void LayerDone(size_t layer) override;
  bool Reclaim(uint64_t deadline_ns) override;
  Status Finish() override;
  Delivered delivered() const override { return delivered_.Total(); }

  // --- PinnedTaker
  Result<uint64_t> Pinned(const FrameJob& job, const ReadBytes& stored) override;
  Status PinnedDone() override;

 private:
  // A stretch of host memory that one copy moves.
  struct Run {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
  };
  // Goes to the device with one copy and one launch. Until then payloads are host addresses.
  struct Load {
    std::vector<gpu::FrameToScatter> frames;
    std::vector<gpu::RowsToTurn> turned;                            // Of these frames.
    std::vector<std::pair<LayerCounts::Target*, uint32_t>> pieces;  // By layer of the view.
    std::vector<Run> runs;          // One, for a window or gathered rows.
    std::vector<BufferHold> holds;  // On the window, or on pinned groups; or
    ReadBuffer staged;              // the gathered rows.
    uint64_t staged_bytes = 0;
    bool enqueued = false;                          // Its layers were reported; and
    bool again = false;                             // it was unpacked on the host.
    bool of_cache = false;                          // From the pinned cache.
    void Cover(std::span<const std::byte> bytes);   // By its one run.
    void Follow(std::span<const std::byte> bytes);  // By the last run, or another.
    uint64_t bytes() const;                         // Sums over all runs.
    // Offset of each run when all lie behind each other, and the end. Each run keeps its present
    // alignment.
    std::vector<uint64_t> Places() const;
  };
  // A place in the caller's memory.
  struct Head {
    LayerCounts::Target* target = nullptr;
    uint32_t layer = 0;  // Index in the view.
    std::byte* base = nullptr;
    uint32_t view = 0;  // Index of the PagedView.
    uint32_t plane_index = 0;
    const Plane* plane = nullptr;
  };
  // Frames of a piece of a layer, and their rows that are turned.
  struct Frames {
    std::vector<gpu::FrameToScatter> scattered;
    std::vector<gpu::RowsToTurn> turned;
    std::vector<std::span<const std::byte>> covered;  // Their stored bytes, in a window.
  };
  struct Page {
    Head at;
    Frames frames;       // One.
    uint64_t bytes = 0;  // Wanted bytes of KV.
  };

  GpuSink(const Deps& deps, const RestorePlan& plan, const RestoreRequest& request,
          const RecordDeps& records, LayerWords* layers, std::span<const OpenPiece> open);
  Status Adopt(const RestoreRequest& request);
  // Call before anything touches the caller's memory: waits on the host for the caller's event, so
  // that flying slots never wait for something that may take long.
  Status AwaitReady();
  Head HeadAt(LayerCounts::Target* target, uint32_t model_layer, uint32_t plane,
              uint32_t head) const;
  gpu::WantedRows Wanted(const LayerCounts::Target& target, uint64_t row0, uint64_t first,
                         uint64_t end) const;
  Result<Page> Describe(const FrameJob& job, std::span<const std::byte> stored,
                        LayerCounts::Target* target);
  // Notes a frame whose wanted rows begin with `position` of their source.
  void Note(const gpu::FrameToScatter& frame, const Head& at, int64_t shift, uint64_t position,
            std::vector<gpu::RowsToTurn>* turned) const;
  // A piece of a layer, in a window.
  void Add(const ReadBytes& from, const Frames& frames, const Head& at);
  // Copies rows that lie in no window into pinned memory: all of a piece of a layer, so that the
  // piece waits for one launch only. Payloads point to where the rows are now.
  Status Stage(const Frames& frames, const Head& of);
  Status FlushStaged();
  Status Launch(Load load);
  Status Fly(Load load);
  Status Enqueue(const Load& load, GpuRing::Slot* slot);
  Status EnqueueTurns(const Load& load, GpuRing::Slot* slot);
  void Ended(Load* load, const Status& status, std::span<const gpu::Fault> faults);
  Status Enqueued(Load* load, gpu::Event done);
  bool MayFallBack(const Load& load) const;
  Result<Load> UnpackedOnHost(const Load& load);
  // Launches a load that ended with a fault and was unpacked on the host. False: there is none.
  bool FlyAgain();
  struct OfRecord;
  Status RecordKv(const RecordPiece& piece, const LaneRange& range, const ReadRecord& record,
                  const ReadBytes& read);
  void DescribeRows(const RecordSlice& slice, const std::byte* rows, OfRecord* of) const;
  Status DescribePacked(const RecordSlice& slice, OfRecord* of) const;
  Status DescribeUnpacked(const RecordSlice& slice, OfRecord* of) const;
  Status TokenFrame(const FrameJob& job, const ReadBytes& stored) const;

  const Deps deps_;
  const KvView* const into_;
  size_t layer_count_ = 0;  // Counts those of all groups of the view.
  const RecordDeps records_;
  const TokenRows tokens_;
  LayerWords* const layers_;
  const std::span<const OpenPiece> open_;
  LayerCounts counts_;  // Pieces that have not ended.
  std::unique_ptr<GpuViews> views_;
  std::unique_ptr<GpuTurns> turns_;   // Null: nothing is turned.
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
  // By layer of all groups: pieces that are still to be launched.
  std::vector<uint64_t> not_launched_ CAIRN_GUARDED_BY(mutex_);
  Status failed_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
