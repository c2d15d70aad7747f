// SPDX-License-Identifier: Apache-2.0
//
// Limits of an append, and the way that it goes: as one record, or in parts. Limits that do not
// depend on the store are in cairn/limits.h; the others follow from the largest record that the log
// takes:
//
//   record   payload (ids, KV)                  PayloadBytesMax, half of it at most
//            besides (spans, sampler, metadata) BesidesBytesMax, what that leaves
//
// Thread-safe, but for SetLog. Errors: kInvalidArgument, in words for the caller.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cairn/branch_types.h"
#include "cairn/model.h"
#include "cairn/options.h"
#include "engine/commit/kv_layout.h"
#include "wal/log.h"

namespace cairn::engine {

// Checks a delta as far as that is possible without the branch.
Status CheckShape(const ModelSpec& model, const Delta& delta, bool fill);

bool IsOnGpu(const Delta& delta);  // It has KV there.

// kConflict: the branch has another number of tokens than its caller expects.
Status CheckLength(uint64_t length, std::optional<uint64_t> expected);

uint64_t PayloadBytes(const ModelSpec& model, const Delta& delta);
// Bytes as namespaces count content of the log: ids and elements.
uint64_t RawBytes(const ModelSpec& model, const Delta& delta);

class AppendLimits {
 public:
  explicit AppendLimits(const Options* options) : options_(*options) {}
  AppendLimits(const AppendLimits&) = delete;
  AppendLimits& operator=(const AppendLimits&) = delete;

  // Call before anything else.
  void SetLog(const wal::Log* log) { log_ = log; }

  // Checks the limits that follow from this log.
  Status CheckFits(const ModelSpec& model, const Delta& delta) const;
  Status CheckPosition(uint64_t bytes) const;
  uint64_t PayloadBytesMax() const;  // Per record; a larger append is cut into parts.
  // How many appends of one token are coalesced at most, given their states.
  uint64_t CoalescedTokensMax(const ModelSpec& model) const;
  bool StatesFit(std::span<const DeltaState> some, std::span<const DeltaState> more) const;
  bool FitsRecord(const ModelSpec& model, const Delta& delta) const;  // In one piece.

 private:
  uint64_t BesidesBytesMax() const;  // Bytes of states and spans in a record.

  const Options& options_;
  const wal::Log* log_ = nullptr;
};

}  // namespace cairn::engine
