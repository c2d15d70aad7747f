// SPDX-License-Identifier: Apache-2.0
//
// How much room there is, and so what the background may take and must hurry with: of max_bytes
// and the disk (commit/ledger.h), and of the log's limit. Thread-safe, except SetLog. Changes
// nothing.
#pragma once

#include <cstdint>

#include "cairn/options.h"
#include "engine/commit/ledger.h"
#include "wal/log.h"

namespace cairn::engine {

class SpaceGauge {
 public:
  // Both outlive this; segment_bytes is known once the log is open.
  SpaceGauge(const Options* options, const ByteLedger* ledger)
      : options_(*options), ledger_(*ledger) {}
  void SetLog(const wal::Log* log) { log_ = log; }

  uint64_t LogBytesMax() const;      // Beyond three quarters of it the oldest is sealed.
  uint64_t LogBytesHeld() const;     // At this length data is held.
  uint64_t DataBytesAtMost() const;  // All that content could ever get, in the log or in tables.
  uint64_t ShortSegments() const;    // How many segments more than if all were full.
  bool LogIsLong() const;            // The oldest part of it should be sealed.
  bool DataIsShort() const;          // There is no room for another segment of it.
  uint64_t EvictionBegins() const;   // From this many used bytes...
  uint64_t EvictionEnds() const;     // ...down to this many.
  uint64_t TableRawBytesMax() const;
  double Urgency() const;

 private:
  const Options& options_;
  const ByteLedger& ledger_;
  const wal::Log* log_ = nullptr;
};

}  // namespace cairn::engine
