// SPDX-License-Identifier: Apache-2.0
//
// What the appends of a record of several ops carry: their strips, one op's behind the other's.
// Filled while the ops are decided, under the commit lock; published behind it.
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
  // An append to a branch of `length` tokens; its lanes, with strips counted from the record's
  // first. Copies the delta, and borrows what that refers to.
  std::vector<LaneRange> Add(std::shared_ptr<const ModelSpec> model, const Delta& delta,
                             uint64_t length);
  // Once all are added: from the reservation to publishing nothing may be allocated.
  void Seal();
  std::span<const wal::Strip> strips() const { return strips_; }
  uint64_t last_kv_bytes() const { return payloads_.back()->kv_bytes(); }

  // REQUIRES: Seal. Copies all of it to where the record lies.
  void Publish(wal::Log::Slot* slot, wal::Log* log);

 private:
  std::deque<Delta> deltas_;                              // Which payloads refer to,
  std::vector<std::shared_ptr<const ModelSpec>> models_;  // and these.
  std::vector<std::unique_ptr<DeltaPayload>> payloads_;
  std::vector<wal::Strip> strips_;
  std::vector<uint64_t> hashes_, all_hashes_;
};

}  // namespace cairn::engine
