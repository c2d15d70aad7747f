// SPDX-License-Identifier: Apache-2.0
//
// Tables of what is computed of KV: landmarks, low-rank keys. Each belongs to a position of a node:
// it was computed of the path up to there, and lives as long as that content (tree/derive.cc). The
// tables are of SnapshotKind::kDerived; what their fragments hold is their maker's affair. Losing
// one is never data loss: it is made again.
//
//   made      read and computed under a lease, written, durable     nobody knows it yet
//   named     an op of kind derive                                  commit lock
//   found     by branch, kind and position, with a pin              a damaged one is dropped
//
// A crash before it is named costs the table. Thread-safe; no lock may be held around the calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cairn/branch.h"
#include "engine/commit/changes.h"
#include "engine/commit/joined_appends.h"
#include "engine/commit/write_means.h"
#include "engine/restore/pins.h"
#include "engine/restore/reader.h"
#include "sstable/snapshot_table.h"
#include "sstable/snapshot_writer.h"

namespace cairn::engine {

class DerivedTables {
 public:
  // What is named outlives this.
  DerivedTables(const WriteMeans& means, JoinedAppends* joined, Changes* changes, Reader* reader)
      : means_(means), joined_(joined), changes_(changes), reader_(*reader) {}
  DerivedTables(const DerivedTables&) = delete;
  DerivedTables& operator=(const DerivedTables&) = delete;

  struct Owner {
    NodeId node{};
    uint64_t position = 0;  // Tokens of the path that it was computed of.
    uint32_t kind = 0;      // Says what was computed, and by which algorithm. Never 0.
    uint64_t table = 0;     // Its number; 0 while it is being written.
  };
  // Reads what it needs of the node's path, which stays as it is meanwhile, and adds at least one
  // fragment to the table.
  using Write = std::function<Status(const Owner& owner, sstable::SnapshotWriter* table)>;

  // Of a branch's first `position` tokens, instead of what of that kind was there. kNotFound: the
  // branch, or it ended meanwhile; kInvalidArgument: no such position or kind; what `write` says;
  // and what appends end with. After an error there is no table.
  Result<Owner> Make(BranchId branch, uint64_t position, uint32_t kind, const Write& write);

  struct Found {
    Owner owner;
    std::shared_ptr<sstable::SnapshotTable> table;
    std::unique_ptr<Pins::Pin> pin;  // As long as this is held the table's file stays.
  };
  // Of the tables that were computed of no more than the branch's first `at_most` tokens, the one
  // that was computed of the most. kNotFound: there is none, or its file is lost or damaged; a
  // store that writes then drops it.
  Result<Found> Find(BranchId branch, uint64_t at_most, uint32_t kind);

  // Of the owner's kind what was derived of the most of its content, which `write` calls while that
  // is on lease. kNotFound also when the branch has become another since.
  Result<Found> FindFor(BranchId branch, const Owner& owner);

  // This table and no later one. kNotFound: it is not named any more.
  Status Drop(const Owner& owner);

 private:
  class Lease;
  Status FindFrom(const Head& head, uint64_t at_most, uint32_t kind, Found* found);
  Result<Found> OpenFound(Found found);
  Result<Owner> OwnerOf(BranchId branch, uint64_t position, uint32_t kind, uint64_t* lease);

  const WriteMeans& means_;
  JoinedAppends* const joined_;
  Changes* const changes_;
  Reader& reader_;
};

}  // namespace cairn::engine
