// SPDX-License-Identifier: Apache-2.0
//
// The sink of a prefetch for a GPU: frames go into pinned memory, and no further.
#pragma once

#include "engine/restore/gpu/pinned_fill.h"
#include "engine/restore/plan/sink.h"

namespace cairn::engine {

class PinnedSink final : public RestoreSink, public PinnedTaker {
 public:
  PinnedSink(PinnedCache* cache, const RestorePlan& plan, std::span<const OpenPiece> open)
      : open_(open), fill_(cache, plan, open, /*ahead=*/true) {}

  Status Record(const RecordJob& /*job*/, const ReadBytes& /*record*/, bool /*verify*/) override {
    return Status::Ok();
  }
  Status Frame(const FrameJob& job, const ReadBytes& stored) override;
  Status Fragment(size_t piece, const ReadBytes& stored, uint64_t* first_position) override;
  uint64_t Unpacked(const FrameJob& /*job*/, const ReadBytes& /*raw*/) override { return 0; }
  Status WindowDone(size_t /*buffer*/) override { return Status::Ok(); }
  void LayerDone(size_t /*layer*/) override {}
  bool Reclaim(uint64_t /*deadline_ns*/) override { return false; }
  Status Finish() override { return Status::Ok(); }
  Delivered delivered() const override { return {}; }

  // --- PinnedTaker: a frame that is pinned needs nothing.
  Result<uint64_t> Pinned(const FrameJob& /*job*/, const ReadBytes& /*stored*/) override {
    return uint64_t{0};
  }
  Status PinnedDone() override { return Status::Ok(); }

 private:
  const std::span<const OpenPiece> open_;
  PinnedFill fill_;
};

}  // namespace cairn::engine
