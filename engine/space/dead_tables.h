// SPDX-License-Identifier: Apache-2.0
//
// Deletes snapshot tables that the tree does not need. Delete and FreeRemoved are for any thread;
// no lock may be held around them. Errors: those of the file system, which leave the table, with
// its bytes, for another time.
#pragma once

#include <cstdint>
#include <string>

#include "engine/space/space_means.h"

namespace cairn::engine {

// The index names less of a table than is needed: damage.
Status TableLied(uint64_t number);

class DeadTables {
 public:
  explicit DeadTables(const SpaceMeans& means) : means_(means) {}
  DeadTables(const DeadTables&) = delete;
  DeadTables& operator=(const DeadTables&) = delete;

  // One of which the tree names nothing, if it knows the table at all. What a crash brings back of
  // it is removed by the next opening, or deleted as a dead table again.
  Status Delete(uint64_t number, uint64_t bytes);
  // A file system may keep the blocks of a removed file until that is durable.
  Status FreeRemoved(const std::string& directory);
  // The space thread's: all that nothing in the tree needs, when that is durable and nobody reads
  // them. One whose file would not go is tried again the next time.
  Status DeleteAll();

 private:
  const SpaceMeans& means_;
};

}  // namespace cairn::engine
