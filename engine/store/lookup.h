// SPDX-License-Identifier: Apache-2.0
//
// Questions about models, branches and namespaces. They change nothing, and read no KV.
//
// Thread-safe. No lock may be held around the calls: what was accepted for a branch is applied
// before it is looked at, and the index may be read. Errors: those of Store and Branch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/store_types.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/write_deps.h"

namespace cairn::engine {

class Lookup {
 public:
  Lookup(const WriteDeps& deps, CoalescedAppends* coalesced) : deps_(deps), coalesced_(coalesced) {}
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

  // --- The store
  Result<ModelInfo> GetModel(ModelId id) const;
  std::vector<ModelInfo> Models() const;
  Result<BranchId> FindBranch(std::string_view name, std::string_view ns) const;
  Status CheckExists(BranchId id) const;
  Result<BranchPage> ListBranches(std::string_view ns, std::string_view prefix, size_t limit,
                                  const std::string& cursor) const;
  Result<std::vector<NamespaceInfo>> Namespaces() const;

  // --- A branch
  Result<BranchInfo> Info(BranchId id) const;
  Result<uint64_t> Length(BranchId id) const;
  Result<uint64_t> DurableLength(BranchId id) const;
  Result<std::vector<PathStep>> Path(BranchId id) const;
  Result<std::vector<KvHole>> EvictedKv(BranchId id, uint64_t begin, uint64_t end) const;
  Result<uint64_t> RestorableLength(BranchId id, uint64_t at_most) const;
  Result<std::vector<ContentSpan>> Spans(BranchId id, uint64_t begin, uint64_t end) const;
  // KV that the branch has in [begin, end), by layer group, in order; adjacent runs differ.
  struct KvRun {
    uint64_t begin = 0, end = 0;
    bool exact = true;
  };
  Result<std::vector<std::vector<KvRun>>> KvRuns(BranchId id, uint64_t begin, uint64_t end) const;
  // Positions in [begin, end] that have a state, in order.
  struct StatePosition {
    uint64_t position = 0;
    bool sampler = false, metadata = false;
  };
  Result<std::vector<StatePosition>> StatesIn(BranchId id, uint64_t begin, uint64_t end) const;

  // --- A node, with what branches no longer reach of it, until that is trimmed
  // Positions of a lane that lie together; adjacent ones differ, but for their bytes.
  struct Stretch {
    enum class Where : uint8_t { kLog, kTable, kEvicted, kGap };
    uint64_t begin = 0, end = 0;
    Where where = Where::kLog;
    bool exact = true;   // Delta::exact.
    uint64_t bytes = 0;  // As NamespacePolicy::max_bytes counts them.
  };
  struct NodeContent {
    std::string ns;                           // The namespace that its bytes count in.
    std::vector<std::vector<Stretch>> lanes;  // Token ids, then KV by layer group.
    std::vector<StatePosition> states;        // By position.
    std::vector<ContentSpan> spans;           // Those that begin on it.
  };
  // kNotFound: nothing needs the node any more.
  Result<NodeContent> ContentOf(NodeId id) const;

 private:
  Result<Head> CopyHead(BranchId id) const;

  const WriteDeps& deps_;
  CoalescedAppends* const coalesced_;
};

}  // namespace cairn::engine
