// SPDX-License-Identifier: Apache-2.0
//
// Where those who write tables ask for numbers and space (sstable/table_host.h).
#pragma once

#include <cstdint>

#include "engine/space/space_means.h"
#include "sstable/table_host.h"

namespace cairn::engine {

class IndexFlusher;

// For tables that give space back elsewhere: out of the reserve.
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

// For the index: flushes and merges are paced, and dumps come between. Only the space thread does
// them; and whoever closes the store, after it, at full speed.
class IndexTableHost final : public ReclaimTableHost {
 public:
  IndexTableHost(const SpaceMeans& means, IndexFlusher* flusher)
      : ReclaimTableHost(means), flusher_(flusher) {}
  Status TakeSpace(uint64_t bytes) override;

 private:
  IndexFlusher* const flusher_;
};

// What is asked and told where data takes space, or gives it back.
class DataRoomWatcher {
 public:
  virtual ~DataRoomWatcher() = default;
  virtual void OnRefused(const Status& status) = 0;
  virtual void OnFreed() = 0;
};

// For tables of appends: they are data. What is discarded of them is room.
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
