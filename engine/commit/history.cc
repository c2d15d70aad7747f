// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/history.h"

#include <algorithm>
#include <cstring>

#include "base/core/mutation.h"
#include "engine/store_core.h"

namespace cairn {

namespace engine {

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

}  // namespace engine

// What comes from here on is another history than that of a copy, which goes on from here, too. The
// name is durable before anything is written.
Status StoreCore::BeginHistory(const wal::RecoveredLog& recovered) {
  engine::Manifest next = manifest_;
  ++next.number;
  next.history.GoOn(engine::DrawHistory(*world_.scheduler), next.At(recovered.last_sequence));
  // The log is about to take what was cut for other segments, headers and all. A crash then must
  // not leave a log that shows fewer epochs than were used.
  const uint64_t used = recovered.next_epoch - 1;
  const uint64_t kept = recovered.segments.empty() ? 0 : recovered.segments.back().epoch;
  const bool cut =
      options_.salvage && CAIRN_KEPT(kEpochBeforeCut) && used > std::max(kept, manifest_.epoch);
  if (cut) next.epoch = used;
  Status status = engine::WriteManifest(*world_.files, path_, next);
  if (status.ok()) {
    manifest_ = std::move(next);
    return status;
  }
  // A full disk must not keep out who would make room. Until then the history is what it was: a
  // copy of it is still told apart where one of them has got further.
  if (cut || status.code() != StatusCode::kNoSpace) return status;
  OnEvent("no room to write MANIFEST at the opening: " + status.ToString());
  return Status::Ok();
}

}  // namespace cairn
