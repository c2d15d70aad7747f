// SPDX-License-Identifier: Apache-2.0
//
// Numbers and space for the writers of tables (sstable/table_callbacks.h).
#pragma once

#include <cstdint>

#include "engine/background/space_deps.h"
#include "sstable/table_callbacks.h"

namespace cairn::engine {

class IndexFlusher;

// For tables that give space back elsewhere: they use the reserve.
class ReclaimTableCallbacks : public sstable::TableCallbacks {
 public:
  explicit ReclaimTableCallbacks(const SpaceDeps& deps) : deps_(deps) {}

  Result<uint64_t> NewTableNumber() override { return deps_.manifest->NewTableNumber(); }
  Status TakeSpace(uint64_t bytes) override {
    return deps_.ledger->Take(bytes, wal::Purpose::kReclaim);
  }
  void ReturnSpace(uint64_t bytes) override { deps_.ledger->Return(bytes); }

 protected:
  const SpaceDeps& deps_;
};

// For the index: flushes and merges are paced, and tree flushes come between. The space thread runs
// them; and after its end, at full speed, the thread that closes the store.
class IndexTableCallbacks final : public ReclaimTableCallbacks {
 public:
  IndexTableCallbacks(const SpaceDeps& deps, IndexFlusher* flusher)
      : ReclaimTableCallbacks(deps), flusher_(flusher) {}
  Status TakeSpace(uint64_t bytes) override;

 private:
  IndexFlusher* const flusher_;
};

// Called where data takes space, or gives it back.
class DiskSpaceWatcher {
 public:
  virtual ~DiskSpaceWatcher() = default;
  virtual void OnRefused(const Status& status) = 0;
  virtual void OnFreed() = 0;
};

// For tables of appends: they are data. Discarding one makes room.
class DataTableCallbacks final : public ReclaimTableCallbacks {
 public:
  DataTableCallbacks(const SpaceDeps& deps, DiskSpaceWatcher* watcher)
      : ReclaimTableCallbacks(deps), watcher_(watcher) {}
  Status TakeSpace(uint64_t bytes) override;
  void ReturnSpace(uint64_t bytes) override;

 private:
  DiskSpaceWatcher* const watcher_;
};

}  // namespace cairn::engine
