// SPDX-License-Identifier: Apache-2.0
//
// Numbers and space for the writers of tables (sstable/table_host.h).
#pragma once

#include <cstdint>

#include "engine/space/space_means.h"
#include "sstable/table_host.h"

namespace cairn::engine {

class IndexFlusher;

// For tables that give space back elsewhere: they use the reserve.
class ReclaimTableHost : public sstable::TableHost {
 public:
  explicit ReclaimTableHost(const SpaceMeans& means) : means_(means) {}

  Result<uint64_t> NewTableNumber() override { return means_.manifest->NewTableNumber(); }
  Status TakeSpace(uint64_t bytes) override {
    return means_.ledger->Take(bytes, wal::Purpose::kReclaim);
  }
  void ReturnSpace(uint64_t bytes) override { means_.ledger->Return(bytes); }

 protected:
  const SpaceMeans& means_;
};

// For the index: flushes and merges are paced, and tree flushes come between. The space thread runs
// them; and after its end, at full speed, the thread that closes the store.
class IndexTableHost final : public ReclaimTableHost {
 public:
  IndexTableHost(const SpaceMeans& means, IndexFlusher* flusher)
      : ReclaimTableHost(means), flusher_(flusher) {}
  Status TakeSpace(uint64_t bytes) override;

 private:
  IndexFlusher* const flusher_;
};

// Called where data takes space, or gives it back.
class DataRoomWatcher {
 public:
  virtual ~DataRoomWatcher() = default;
  virtual void OnRefused(const Status& status) = 0;
  virtual void OnFreed() = 0;
};

// For tables of appends: they are data. Discarding one makes room.
class DataTableHost final : public ReclaimTableHost {
 public:
  DataTableHost(const SpaceMeans& means, DataRoomWatcher* watcher)
      : ReclaimTableHost(means), watcher_(watcher) {}
  Status TakeSpace(uint64_t bytes) override;
  void ReturnSpace(uint64_t bytes) override;

 private:
  DataRoomWatcher* const watcher_;
};

}  // namespace cairn::engine
