// SPDX-License-Identifier: Apache-2.0
#include "engine/space/room_gauge.h"

#include <algorithm>

#include "engine/constants.h"
#include "engine/space/pacer.h"
#include "wal/constants.h"

namespace cairn::engine {

uint64_t RoomGauge::LogBytesMax() const {
  return std::max(std::min(options_.log_bytes_max, ledger_.data_bytes_max() / kLogShareAtCap),
                  kLogSegmentsMin * options_.segment_bytes);
}

// Not the share of a cap: there appends are held by the cap itself, told with kNoSpace, and may
// have room made for them.
uint64_t RoomGauge::LogBytesHeld() const {
  return std::max(options_.log_bytes_max, kLogSegmentsMin * options_.segment_bytes);
}

uint64_t RoomGauge::LogBytesAtMost() const {
  const uint64_t ballast = wal::kBallastSegments * options_.segment_bytes;
  return ledger_.data_bytes_max() - std::min(ledger_.data_bytes_max(), ballast);
}

uint64_t RoomGauge::ShortSegments() const {
  const wal::Log::Counters log = log_->counters();
  return log.segments_live - log.segment_bytes_live / options_.segment_bytes;
}

bool RoomGauge::LogIsLong() const {
  return DataIsShort() || log_->counters().segment_bytes_live > HasteBegins(LogBytesMax()) ||
         ShortSegments() > HasteBegins(kShortSegmentsMax);
}

bool RoomGauge::DataIsShort() const {
  return ledger_.room(wal::Purpose::kData) < options_.segment_bytes ||
         log_->counters().disk_is_full;
}

uint64_t RoomGauge::EvictionBegins() const {
  return ledger_.data_bytes_max() - ledger_.data_bytes_max() / kEvictionBeginsShare;
}
uint64_t RoomGauge::EvictionEnds() const {
  return ledger_.data_bytes_max() - ledger_.data_bytes_max() / kEvictionEndsShare;
}

// What goes into one table: what is alive of it later must fit into the reserve, also when the log
// had to take a segment of that.
uint64_t RoomGauge::TableRawBytesMax() const {
  const uint64_t reserve = ledger_.reserve_bytes();  // Of a small cap half, whatever a segment is.
  return std::min(kTableRawBytes, reserve - std::min(reserve / 2, options_.segment_bytes));
}

double RoomGauge::Haste() const {
  return std::max(engine::Haste(log_->counters().segment_bytes_live, LogBytesMax()),
                  engine::Haste(ledger_.used_bytes(), ledger_.data_bytes_max()));
}

}  // namespace cairn::engine
