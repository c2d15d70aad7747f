// SPDX-License-Identifier: Apache-2.0
#include "engine/manifest/history.h"

#include <algorithm>
#include <cstring>

#include "base/core/mutation.h"

namespace cairn::engine {

HistoryId DrawHistory(io::Scheduler& scheduler) {
  HistoryId id;
  for (size_t i = 0; i < id.bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t random = scheduler.Random64();
    std::memcpy(id.bytes.data() + i, &random, sizeof random);
  }
  return id;
}

void History::GoOn(const HistoryId& next, HistoryPoint end) {
  if (!CAIRN_KEPT(kHistoryIsDrawn)) return;
  end.history = id;
  earlier.insert(earlier.begin(), end);
  earlier.resize(std::min(earlier.size(), kEarlierMax));
  id = next;
}

bool History::Holds(const HistoryPoint& seen) const {
  if (seen.history == id) return true;
  return std::any_of(earlier.begin(), earlier.end(), [&](const HistoryPoint& end) {
    return end.history == seen.history && seen.sequence <= end.sequence &&
           seen.next_file_number <= end.next_file_number;
  });
}

}  // namespace cairn::engine
