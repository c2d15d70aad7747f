// SPDX-License-Identifier: Apache-2.0
//
// What there is room for, and what the background may therefore take and should hurry with: of
// max_bytes and the disk (commit/ledger.h), and of the log's limit. Thread-safe, but for SetLog; it
// looks and changes nothing.
#pragma once

#include <cstdint>

#include "cairn/options.h"
#include "engine/commit/ledger.h"
#include "wal/log.h"

namespace cairn::engine {

class RoomGauge {
 public:
  // Both outlive this; segment_bytes is known when the log is.
  RoomGauge(const Options* options, const ByteLedger* ledger)
      : options_(*options), ledger_(*ledger) {}
  void SetLog(const wal::Log* log) { log_ = log; }

  uint64_t LogBytesMax() const;     // Behind three quarters of it the oldest is sealed.
  uint64_t LogBytesHeld() const;    // Where data is held.
  uint64_t LogBytesAtMost() const;  // What data could have of the log, if there was nothing else.
  uint64_t ShortSegments() const;   // How many there are more than full ones would be.
  bool LogIsLong() const;           // The oldest part of it should be sealed.
  bool DataIsShort() const;         // There is no room for another segment of it.
  uint64_t EvictionBegins() const;  // Of used bytes...
  uint64_t EvictionEnds() const;    // ...and so far down.
  uint64_t TableRawBytesMax() const;
  double Haste() const;

 private:
  const Options& options_;
  const ByteLedger& ledger_;
  const wal::Log* log_ = nullptr;
};

}  // namespace cairn::engine
