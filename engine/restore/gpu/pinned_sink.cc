// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/gpu/pinned_sink.h"

#include "engine/restore/plan/sink_parts.h"

namespace cairn::engine {

Status PinnedSink::Frame(const FrameJob& job, const ReadBytes& stored) {
  const OpenPiece& open = open_[job.piece];
  CAIRN_RETURN_IF_ERROR(open.table->Verify(open.entry(job.slice, job.page), stored.bytes()));
  fill_.Keep(job, stored.bytes());
  return Status::Ok();
}

Status PinnedSink::Fragment(size_t piece, const ReadBytes& stored, uint64_t* first_position) {
  return VisitFragment(
      open_[piece], piece, stored, first_position,
      [this](const FrameJob& job, const ReadBytes& frame) { return Frame(job, frame); });
}

}  // namespace cairn::engine
