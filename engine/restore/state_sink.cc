// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/state_sink.h"

#include <cstring>

namespace cairn::engine {

// Always checked, wherever it came from: a state is small.
Status StateSink::Record(const RecordJob& job, const ReadBytes& read, bool /*verify*/) {
  CAIRN_ASSIGN_OR_RETURN(const auto outline,
                         records_.outlines->Of(job, read.bytes(), records_.store));
  if (job.state_strip.value() >= outline->strip_count()) {
    return Status(StatusCode::kCorruption,
                  PlaceText(job.location) + ": a state's strip is missing");
  }
  const ReadRecord record(*outline, read.bytes(), job.read_offset, records_.store, /*verify=*/true);
  CAIRN_ASSIGN_OR_RETURN(const std::span<const std::byte> strip, record.Strip(*job.state_strip));
  const MutexLock lock(&mutex_);
  state_.assign(strip.begin(), strip.end());
  return Status::Ok();
}

Status StateSink::Frame(const FrameJob& job, const ReadBytes& stored) {
  return Add(open_[job.piece], job.slice, stored.bytes());
}

Status StateSink::Fragment(size_t piece, const ReadBytes& stored, uint64_t* /*first_position*/) {
  const OpenPiece& open = open_[piece];
  for (uint32_t slice = 0; slice < open.end_slice; ++slice) {
    const sstable::FrameEntry& entry = open.entry(slice, 0);
    CAIRN_RETURN_IF_ERROR(
        Add(open, slice,
            stored.bytes().subspan(entry.offset - open.fragment.offset, entry.stored_bytes)));
  }
  return Status::Ok();
}

// A state is stored as it is, in one page of frames, one behind the other.
Status StateSink::Add(const OpenPiece& open, uint32_t slice, std::span<const std::byte> stored) {
  CAIRN_RETURN_IF_ERROR(open.table->Verify(open.entry(slice, 0), stored));
  uint64_t at = 0, all = 0;
  for (uint32_t i = 0; i < open.end_slice; ++i) {
    if (i == slice) at = all;
    all += open.entry(i, 0).stored_bytes;
  }
  const MutexLock lock(&mutex_);
  state_.resize(all);
  std::memcpy(state_.data() + at, stored.data(), stored.size());
  return Status::Ok();
}

}  // namespace cairn::engine
