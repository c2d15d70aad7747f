// SPDX-License-Identifier: Apache-2.0
//
// The payloads of the appends in a record of several ops: their strips, in the order of the ops.
// Filled while the ops are decided, under the commit lock; published after it is released.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/commit/kv_layout.h"
#include "wal/log.h"

namespace cairn::engine {

class BatchPayloads {
 public:
  void Clear();  // For another try.
  // Adds an append to a branch of `length` tokens. Returns its lanes, with strips counted from the
  // first of the record. Copies the delta, and borrows the memory that it refers to.
  std::vector<LaneRange> Add(std::shared_ptr<const ModelSpec> model, const Delta& delta,
                             uint64_t length);
  // Call once all are added: nothing may be allocated between reserving and publishing.
  void Seal();
  std::span<const wal::Strip> strips() const { return strips_; }
  uint64_t last_kv_bytes() const { return payloads_.back()->kv_bytes(); }

  // REQUIRES: Seal. Copies everything into the record's memory.
  void Publish(wal::Log::Slot* slot, wal::Log* log);

 private:
  std::deque<Delta> deltas_;                              // Payloads refer to them,
  std::vector<std::shared_ptr<const ModelSpec>> models_;  // and to these.
  std::vector<std::unique_ptr<DeltaPayload>> payloads_;
  std::vector<wal::Strip> strips_;
  std::vector<uint64_t> hashes_, all_hashes_;
};

}  // namespace cairn::engine
