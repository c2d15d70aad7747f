// SPDX-License-Identifier: Apache-2.0
//
// Recovery::kSetAside, after the store was read: damaged files leave the store. The order is what a
// crash needs. What is served was decided by the files as they are; as long as MANIFEST names them
// they stay in place, so that the next opening decides the same.
//   log    what lies behind the cut: after MANIFEST has the epochs that were used there
//   index  after new tables are written, and MANIFEST names those instead
#include <algorithm>

#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "engine/store/lost_files.h"
#include "engine/store/store_core.h"
#include "sstable/table_files.h"
#include "wal/segment_files.h"

namespace cairn {

// Segments behind the end of the log that were used. A segment whose beginning still counts stays
// where it is.
Status StoreCore::SetAsideLog(const wal::RecoveredLog& recovered) {
  const std::string log = io::JoinPath(path_, engine::kLogDirectory);
  CAIRN_ASSIGN_OR_RETURN(const wal::LogDirectory found, wal::ListLogDirectory(*world_.files, log));
  const uint64_t last = recovered.segments.empty() ? manifest_.at_opening().log_start_segment - 1
                                                   : recovered.segments.back().number;
  engine::LostFiles lost(world_, path_, lifecycle_.NowNs());
  // The highest first: a missing one below another is damage again.
  for (auto segment = found.segments.rbegin(); segment != found.segments.rend(); ++segment) {
    if (*segment <= last) break;
    const std::string path = wal::SegmentPath(log, *segment);
    CAIRN_ASSIGN_OR_RETURN(const bool used, wal::HoldsRecords(*world_.files, path));
    if (used) CAIRN_RETURN_IF_ERROR(lost.Move(path));
  }
  if (!lost.moved_to().empty()) {
    recovery_note_ += "; segments behind it are in " + lost.moved_to();
  }
  return Status::Ok();
}

// Files of earlier openings count, too.
Status StoreCore::CountLost() {
  const uint64_t bytes_max = options_.max_bytes == UINT64_MAX
                                 ? engine::kLostBytesMax
                                 : options_.max_bytes / engine::kLostShare;
  engine::LostFiles lost(world_, path_, lifecycle_.NowNs());
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, lost.Bound(bytes_max));
  ledger_.TakeAnyway(bytes);
  lost_bytes_ = bytes;
  return Status::Ok();
}

// The store is open, and goes on if this fails: it is tried again when it is opened the next time.
void StoreCore::SetAsideIndex() {
  if (index_loss_.tables.empty()) return;
  space_.flusher().ForgetSteps();
  engine::LostFiles lost(world_, path_, lifecycle_.NowNs());
  const auto each = [&](const auto& move) -> Status {
    for (const sstable::IndexRescue::Lost& table : index_loss_.tables) {
      if (table.missing) continue;
      CAIRN_RETURN_IF_ERROR(move(sstable::IndexTablePath(
          io::JoinPath(path_, engine::kTableDirectory), table.table.number)));
    }
    return Status::Ok();
  };
  const Status done = CatchBadAlloc([&]() -> Status {
    if (!CAIRN_KEPT(kSetAsideLast)) {
      CAIRN_RETURN_IF_ERROR(each([&](const std::string& path) { return lost.Move(path); }));
      return space_.flusher().FlushTree();
    }
    CAIRN_RETURN_IF_ERROR(each([&](const std::string& path) { return lost.Link(path); }));
    CAIRN_RETURN_IF_ERROR(space_.flusher().FlushTree());
    CAIRN_RETURN_IF_ERROR(each([&](const std::string& path) { return lost.Move(path); }));
    uint64_t named_bytes = 0;
    for (const sstable::IndexRescue::Lost& table : index_loss_.tables) {
      named_bytes += table.table.bytes;
    }
    index_loss_.tables.clear();
    ledger_.Return(named_bytes + lost_bytes_);
    return CountLost();
  });
  if (!done.ok()) return OnEventOf("damaged tables of the index stay in place: ", done);
  if (lost.moved_to().empty()) return;
  recovery_note_ += "; the damaged files are in " + lost.moved_to();
  OnEvent("the damaged files are in " + lost.moved_to());
}

}  // namespace cairn
