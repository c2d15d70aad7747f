// SPDX-License-Identifier: Apache-2.0
//
// Gathers the encoded state of one mark: a strip of a record, or all frames of a fragment.
#pragma once

#include <vector>

#include "base/core/mutex.h"
#include "engine/restore/plan/sink.h"
#include "engine/restore/plan/sink_parts.h"

namespace cairn::engine {

class StateSink final : public RestoreSink {
 public:
  // `open`: the fragment of a state in a table, else empty. A state in a record is what its job
  // names.
  StateSink(const RecordDeps& records, std::span<const OpenPiece> open)
      : records_(records), open_(open) {}

  Status Record(const RecordJob& job, const ReadBytes& record, bool verify) override;
  Status Frame(const FrameJob& job, const ReadBytes& stored) override;
  Status Fragment(size_t piece, const ReadBytes& stored, uint64_t* first_position) override;
  // The page cache holds no states.
  uint64_t Unpacked(const FrameJob& /*job*/, const ReadBytes& /*raw*/) override { return 0; }
  void LayerDone(size_t /*layer*/) override {}
  bool Reclaim(uint64_t /*deadline_ns*/) override { return false; }
  Status WindowDone(size_t /*buffer*/) override { return Status::Ok(); }
  Status Finish() override { return Status::Ok(); }
  Delivered delivered() const override { return {}; }

  // Call after everything was delivered.
  std::vector<std::byte> Take() {
    const MutexLock lock(&mutex_);
    return std::move(state_);
  }

 private:
  Status Add(const OpenPiece& open, uint32_t slice, std::span<const std::byte> stored);

  const RecordDeps records_;
  const std::span<const OpenPiece> open_;
  Mutex mutex_;  // Frames come from several threads.
  std::vector<std::byte> state_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
