// SPDX-License-Identifier: Apache-2.0
//
// Changes of objects that carry no bytes: made, named, dropped. Several in one record.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/commit/write_deps.h"
#include "engine/tree/records/tree_loader.h"

namespace cairn::engine {

class ObjectChange final : public Resolver {
 public:
  // Decides under the lock, with everything in `needs` in memory: returns ops, in order. None: it
  // is done without a record.
  using Decide = std::function<Result<std::vector<Op>>(const Tree&)>;

  ObjectChange(const WriteDeps& deps, TreeNeeds needs, Decide decide, wal::Log::Purpose purpose)
      : deps_(deps), needs_(std::move(needs)), decide_(std::move(decide)) {
    record_.purpose = purpose;
    record_.batch = true;
    record_.held_by_limit = purpose == wal::Log::Purpose::kData;
  }

  // Returns the sequence of the record. Waits for room as changes do (commit/changes.h).
  Result<uint64_t> Run(uint64_t deadline_ns);

  Attempt Prepare(Lock* lock) override;
  Status Resolve(CommitOps* ops) override;

 private:
  const WriteDeps& deps_;
  const TreeNeeds needs_;
  const Decide decide_;
  std::vector<Op> decided_;
};

}  // namespace cairn::engine
