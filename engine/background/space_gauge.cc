// SPDX-License-Identifier: Apache-2.0
#include "engine/background/space_gauge.h"

#include <algorithm>

#include "engine/background/rate_limiter.h"
#include "engine/config/constants.h"
#include "wal/constants.h"

namespace cairn::engine {

uint64_t SpaceGauge::LogBytesMax() const {
  return std::max(std::min(options_.log_bytes_max, ledger_.data_bytes_max() / kLogShareAtCap),
                  kLogSegmentsMin * options_.segment_bytes);
}

// Not the share of a cap: there the cap itself holds appends, with kNoSpace, and room may be made
// for them.
uint64_t SpaceGauge::LogBytesHeld() const {
  return std::max(options_.log_bytes_max, kLogSegmentsMin * options_.segment_bytes);
}

uint64_t SpaceGauge::DataBytesAtMost() const {
  const uint64_t ballast = wal::kBallastSegments * options_.segment_bytes;
  return ledger_.data_bytes_max() - std::min(ledger_.data_bytes_max(), ballast);
}

uint64_t SpaceGauge::ShortSegments() const {
  const wal::Log::Counters log = log_->counters();
  return log.segments_live - log.segment_bytes_live / options_.segment_bytes;
}

bool SpaceGauge::LogIsLong() const {
  return DataIsShort() || log_->counters().segment_bytes_live > UrgencyBegins(LogBytesMax()) ||
         ShortSegments() > UrgencyBegins(kShortSegmentsMax);
}

bool SpaceGauge::DataIsShort() const {
  return ledger_.room(wal::Purpose::kData) < options_.segment_bytes ||
         log_->counters().disk_is_full;
}

uint64_t SpaceGauge::EvictionBegins() const {
  return ledger_.data_bytes_max() - ledger_.data_bytes_max() / kEvictionBeginsShare;
}
uint64_t SpaceGauge::EvictionEnds() const {
  return ledger_.data_bytes_max() - ledger_.data_bytes_max() / kEvictionEndsShare;
}

// Bytes for one table: its live part must later fit into the reserve, even after the log took a
// segment of that.
uint64_t SpaceGauge::TableRawBytesMax() const {
  const uint64_t reserve = ledger_.reserve_bytes();  // Half of a small cap, whatever a segment is.
  return std::min(kTableRawBytes, reserve - std::min(reserve / 2, options_.segment_bytes));
}

double SpaceGauge::Urgency() const {
  return std::max(engine::Urgency(log_->counters().segment_bytes_live, LogBytesMax()),
                  engine::Urgency(ledger_.used_bytes(), ledger_.data_bytes_max()));
}

}  // namespace cairn::engine
