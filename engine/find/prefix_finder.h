// SPDX-License-Identifier: Apache-2.0
//
// Store::FindPrefix, and what is done with a hit: fork, restore.
//
//   the hashes of the query's blocks                              once, for all namespaces
//   the deepest block that a living path has                      hints; binary search
//   the paths that have it, or leave others behind it             hints; one question per position
//   how far each goes, and what of it can be restored             a few ids each; the tree
//   where none has KV up to that block: paths with more KV        hints of two shallower blocks
//   the best is put on lease and its ids are compared             what they refute is asked no more
//
// A hint may be wrong, an answer never is: it is confirmed under a lease, and what is granted or
// reported holds for the moment at which the lease begins or ends. docs/reuse.md has what that
// means for callers.
//
// Thread-safe. No lock may be held around the calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "cairn/find.h"
#include "engine/commit/changes.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/write_deps.h"
#include "engine/find/indexer.h"
#include "engine/find/leases.h"
#include "engine/find/path_hold.h"
#include "engine/find/path_match.h"
#include "engine/find/prefix_search.h"
#include "engine/restore/branch_reads.h"

namespace cairn::engine {

class PrefixFinder {
 public:
  // All that it points to outlives the finder. `indexer` null: nothing is indexed.
  struct Deps {
    const WriteDeps* write = nullptr;
    CoalescedAppends* coalesced = nullptr;
    Changes* changes = nullptr;
    Reader* reader = nullptr;
    BranchReads* reads = nullptr;
    Indexer* indexer = nullptr;
    Leases* leases = nullptr;
  };
  explicit PrefixFinder(const Deps& deps) : deps_(deps) {}
  PrefixFinder(const PrefixFinder&) = delete;
  PrefixFinder& operator=(const PrefixFinder&) = delete;

  // Errors: those of Store.
  Result<PrefixHit> Find(const PrefixQuery& query);
  Result<BranchId> Fork(const PrefixHit& hit, uint64_t position, const BranchOptions& options);
  Result<RestoreResult> Restore(const PrefixHit& hit, const RestoreRequest& request,
                                LayerProgress* progress);

  // --- For other searches
  // As Find, and not counted.
  Result<PrefixHit> Search(const PrefixQuery& query);
  const Deps& deps() const { return deps_; }
  // Errors of the query's fields.
  Status CheckFields(const PrefixQuery& query) const;
  // The same, and where nothing is indexed.
  Status CheckQuery(const PrefixQuery& query) const;
  // Null: of a reader whose writer is still making them. That there are none is an error.
  Result<std::shared_ptr<Hints>> HintsNow() const;

  uint64_t finds() const { return finds_.load(std::memory_order_relaxed); }
  uint64_t hits() const { return hits_.load(std::memory_order_relaxed); }

 private:
  Result<PrefixHit> FindInAll(const PrefixQuery& query, bool* complete);
  Result<PrefixHit> FindIn(PrefixSearch* search, bool* complete);
  Result<uint64_t> Confirm(const PrefixSearch& search, uint64_t path, PathMatch* match,
                           PathHold* hold);
  static void Fill(const PrefixSearch& search, const PathMatch& match, PrefixHit* hit);
  LeaseId LeaseOf(const PathMatch& match, uint64_t now_ns, uint64_t lease_ns);
  bool Finish(const PrefixSearch& search, const PathMatch& match, PathHold* hold, PrefixHit* hit);
  Status HoldHit(const PrefixHit& hit, PathHold* hold);
  Status ConfirmDigest(const PrefixHit& hit, uint64_t model, uint64_t ns_seed,
                       std::span<const ContentSpan> spans);

  const Deps deps_;
  std::atomic<uint64_t> finds_{0}, hits_{0};
};

}  // namespace cairn::engine
