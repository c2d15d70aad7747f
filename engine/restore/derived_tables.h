// SPDX-License-Identifier: Apache-2.0
//
// Tables that are computed from KV: landmarks, low-rank keys. Each belongs to a position of a node:
// it was computed from the path up to there, and lives as long as that content
// (tree/ops/derive.cc). The tables are of SnapshotKind::kDerived; the content of their fragments is
// up to their maker. Losing one is never data loss: it is computed again.
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

#include "cairn/branch_types.h"
#include "engine/commit/changes.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/write_deps.h"
#include "engine/restore/pins.h"
#include "engine/restore/reader.h"
#include "sstable/snapshot_table.h"
#include "sstable/snapshot_writer.h"

namespace cairn::engine {

class DerivedTables {
 public:
  // The referenced objects outlive this.
  DerivedTables(const WriteDeps& deps, CoalescedAppends* coalesced, Changes* changes,
                Reader* reader)
      : deps_(deps), coalesced_(coalesced), changes_(changes), reader_(*reader) {}
  DerivedTables(const DerivedTables&) = delete;
  DerivedTables& operator=(const DerivedTables&) = delete;

  struct Owner {
    NodeId node{};
    uint64_t position = 0;  // Tokens of the path that it was computed from.
    uint32_t kind = 0;      // Says what was computed, and by which algorithm. Never 0.
    uint64_t table = 0;     // Its number; 0 while it is being written.
  };
  // Reads what it needs of the node's path, which does not change meanwhile, and adds at least one
  // fragment to the table.
  using Write = std::function<Status(const Owner& owner, sstable::SnapshotWriter* table)>;

  // Makes a table of a branch's first `position` tokens, replacing one of that kind there.
  // kNotFound: there is no such branch, or it was dropped meanwhile; kInvalidArgument: no such
  // position or kind; errors of `write` and of appends. After an error there is no table.
  Result<Owner> Make(BranchId branch, uint64_t position, uint32_t kind, const Write& write);

  struct Found {
    Owner owner;
    std::shared_ptr<sstable::SnapshotTable> table;
    std::unique_ptr<Pins::Pin> pin;  // As long as this is held the table's file stays.
  };
  // Finds the table that was computed from the most tokens, among those computed from at most the
  // branch's first `at_most`. kNotFound: there is none, or its file is lost or damaged; a store
  // that writes then drops it.
  Result<Found> Find(BranchId branch, uint64_t at_most, uint32_t kind);

  // For `write` callbacks, while the owner's content is on lease: the table of the owner's kind
  // that was computed from most of that content. kNotFound also when the branch has become another
  // one since.
  Result<Found> FindFor(BranchId branch, const Owner& owner);

  // Drops this table and no later one. kNotFound: it is not named any more.
  Status Drop(const Owner& owner);

 private:
  class Lease;
  Status FindFrom(const Head& head, uint64_t at_most, uint32_t kind, Found* found);
  Result<Found> OpenFound(Found found);
  Result<Owner> OwnerOf(BranchId branch, uint64_t position, uint32_t kind, uint64_t* lease);

  const WriteDeps& deps_;
  CoalescedAppends* const coalesced_;
  Changes* const changes_;
  Reader& reader_;
};

}  // namespace cairn::engine
