// SPDX-License-Identifier: Apache-2.0
//
// Services that writers of tables need from the store. Declared here, implemented there.
#pragma once

#include <cstdint>

#include "cairn/status.h"

namespace cairn::sstable {

// Called by the thread that flushes or merges, with no lock of this folder held. Thread-safe.
class TableCallbacks {
 public:
  virtual ~TableCallbacks() = default;

  // A number that no file of the store ever had, larger than all before. The store has durably
  // reserved it, so that it is not given again after a crash.
  virtual Result<uint64_t> NewTableNumber() = 0;

  // Called before `bytes` are written. May wait, to limit the writer's rate. kNoSpace when the
  // store's cap would be exceeded; any error (also when the store is closing) ends the job and
  // discards its files.
  virtual Status TakeSpace(uint64_t bytes) = 0;

  // Bytes taken before belong to no file any more: it was discarded, or deleted when released.
  virtual void ReturnSpace(uint64_t bytes) = 0;
};

}  // namespace cairn::sstable
