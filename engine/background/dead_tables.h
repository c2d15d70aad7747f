// SPDX-License-Identifier: Apache-2.0
//
// Deletes snapshot tables that the tree does not need. Any thread may call Delete and FreeRemoved;
// no lock may be held around them. Errors: those of the file system; then the table and its bytes
// stay until a later try.
#pragma once

#include <cstdint>
#include <string>

#include "engine/background/space_deps.h"

namespace cairn::engine {

// kCorruption: the index names less of a table than is needed.
Status TableLied(uint64_t number);

class DeadTables {
 public:
  explicit DeadTables(const SpaceDeps& deps) : deps_(deps) {}
  DeadTables(const DeadTables&) = delete;
  DeadTables& operator=(const DeadTables&) = delete;

  // Precondition: no live extent is in the table, if the tree knows it at all. If a crash
  // resurrects the file, the next opening removes it, or it is deleted as a dead table again.
  Status Delete(uint64_t number, uint64_t bytes);
  // Frees the blocks of removed files: a file system may keep them until the removal is durable.
  Status FreeRemoved(const std::string& directory);
  // For the space thread: deletes all tables that nothing in the tree needs, once that is durable
  // and nobody reads them. A file that cannot be deleted is tried again the next time.
  Status DeleteAll();

 private:
  const SpaceDeps& deps_;
};

}  // namespace cairn::engine
