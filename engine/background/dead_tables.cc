// SPDX-License-Identifier: Apache-2.0
#include "engine/background/dead_tables.h"

#include <utility>
#include <vector>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/io/file_util.h"

namespace cairn::engine {

Status TableLied(uint64_t number) {
  return Status(StatusCode::kCorruption, "the index: table " + std::to_string(number) +
                                             ": more of it is needed than its record says");
}

Status DeadTables::Delete(uint64_t number, uint64_t bytes) {
  CAIRN_RETURN_IF_ERROR(deps_.log->CheckLock());
  deps_.reader->ForgetTable(number);
  const std::string& directory = deps_.reader->tables().context().directory;
  CAIRN_RETURN_IF_ERROR(
      io::RemoveIfExists(*deps_.world.files, sstable::SnapshotTablePath(directory, number)));
  {
    // First: while the tree knows the table it may be deleted again, and its bytes must be returned
    // once only.
    std::lock_guard lock(deps_.mutex());
    if (const auto known = deps_.tree().tables().find(number);
        known != deps_.tree().tables().end()) {
      // An undone change had let it die, unless the index was wrong about its live bytes.
      if (known->second.live_bytes != 0) return TableLied(number);
      deps_.tree().ForgetTable(number);
    }
  }
  deps_.ledger->Return(bytes);
  return FreeRemoved(directory);
}

Status DeadTables::FreeRemoved(const std::string& directory) {
  if (!deps_.ledger->DiskIsShort()) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(deps_.world.files->SyncDirectory(directory));
  deps_.ledger->LookAtDisk();
  return Status::Ok();
}

Status DeadTables::DeleteAll() {
  std::vector<std::pair<uint64_t, uint64_t>> dead;
  uint64_t sequence = 0;
  {
    std::lock_guard lock(deps_.mutex());
    for (const auto& [number, use] : deps_.tree().tables()) {
      if (use.live_bytes != 0) continue;
      const bool held = deps_.reader->pins().HoldTable(number);
      deps_.round->MarkHeld(held);
      if (!held) dead.emplace_back(number, use.bytes);
    }
    sequence = deps_.log->last_reserved_sequence();
  }
  if (dead.empty()) return Status::Ok();
  if (CAIRN_KEPT(kLogBeforeTableDies)) {
    CAIRN_RETURN_IF_ERROR(deps_.log->Wait(sequence, /*durable=*/true, io::kNoDeadline));
  }
  deps_.callbacks->PublishHint();  // First: a follower that misses a table finds out why.
  for (const auto& [number, bytes] : dead) deps_.round->KeepGoing(Delete(number, bytes));
  return Status::Ok();
}

}  // namespace cairn::engine
