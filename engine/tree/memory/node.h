// SPDX-License-Identifier: Apache-2.0
//
// Parts of the conversation tree: nodes with their lanes, branches, namespaces, and where content
// lies. tree.h keeps them consistent.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cairn/keep.h"
#include "cairn/model.h"
#include "engine/tree/memory/op.h"

namespace cairn::engine {

// In place of a table's number: the content was evicted, or never existed. On disk.
inline constexpr uint64_t kEvictedTable = UINT64_MAX;
inline constexpr uint64_t kGapTable = UINT64_MAX - 1;

// Where content lies: in a record of the log, or, sealed, in a fragment of a snapshot table.
struct Place {
  wal::Location log;          // Segment 0: not in the log, or not yet known (see Transaction).
  uint64_t table = 0;         // Snapshot table, or kEvictedTable, kGapTable, else 0.
  uint32_t positions = 0;     // The fragment's.
  uint64_t stored_bytes = 0;  // The fragment's.
  // The fragment stands under the number of this node, which was joined with its child. 0: under
  // the number of the node that holds this place.
  uint64_t fragment_node = 0;

  bool known() const { return log.segment != 0 || table != 0; }
  bool evicted() const { return table == kEvictedTable; }
  bool gap() const { return table == kGapTable; }
  bool absent() const { return evicted() || gap(); }
  bool in_table() const { return table != 0 && !absent(); }
  uint64_t FragmentNode(uint64_t node) const { return fragment_node != 0 ? fragment_node : node; }
  // Bytes of the fragment that `count` of its positions take up; at least 1, since a table of which
  // nothing is needed is deleted.
  uint64_t Share(uint64_t count) const {
    return positions == 0 ? 0 : (stored_bytes * count + positions - 1) / positions;
  }
  bool operator==(const Place&) const = default;
};

// Positions [begin, begin + count) of a lane as one record or fragment holds them. Only `count`
// shrinks later (rewind), so the record has its own number of positions.
struct Extent {
  uint64_t begin = 0;
  uint32_t count = 0;
  uint32_t op_index = 0;  // Which op of the record (batches).
  Place place;
  uint32_t prefix_bytes = 0;  // Bytes of the record to read for this lane.
  bool exact = true;          // Delta::exact. True for absent positions and token ids.
};

struct Lane {
  uint64_t start = 0;  // Positions below are on the parent.
  uint64_t end = 0;
  std::vector<Extent> extents;  // Contiguous from start to end.
  uint64_t absent = 0;          // Positions that have no content...
  uint64_t evicted = 0;         // ...and of these, those that had some.
};

// A state (sampler, metadata) that belongs after `position` tokens.
struct Mark {
  uint64_t position = 0;
  uint32_t strip = 0;
  Place place;
};

inline bool IsDerivedBefore(const Mark& a, const Mark& b) {
  return a.position != b.position ? a.position < b.position : a.strip < b.strip;
}

// A reason to keep a node up to some position: a branch that ends on it, or a node that leaves it.
struct Ref {
  enum Kind : uint8_t { kHead, kEdge };
  uint64_t position = 0;
  Kind kind = kHead;
  uint64_t id = 0;  // The branch or the child.
  auto operator<=>(const Ref&) const = default;
};

// Refs of a node that are read together, and kept in memory if there are more: most nodes never
// have that many, and they fill a block or two of the index.
inline constexpr size_t kRefsKept = 64;

// Nodes that may be joined with their one child and are remembered in memory.
inline constexpr size_t kJoinableKept = 256;

// The content of a namespace's branches, in sums. In memory are namespaces that have a policy,
// those of objects, and those of the branches and nodes that are (TreeSums).
struct NamespaceUsage {
  NamespacePolicy policy;
  uint64_t branches = 0, nodes = 0;
  uint64_t bytes = 0;  // See NamespacePolicy::max_bytes.
  bool dirty = false;  // The index has an older version.
  // Branches and nodes in memory that point to it. Counted apart from the sums, which a damaged
  // index may have given.
  mutable uint32_t users = 0;
  // Bytes of appends that were accepted and wait to be applied; in memory only.
  uint64_t coalesced_bytes = 0;
  // The namespace's bytes, including those, after the last append that was refused for its cap; in
  // memory only.
  mutable uint64_t refused_bytes = 0;
  uint64_t evictions = 0;  // Its evicted branches since the opening; in memory only.
  bool HasRoom(uint64_t more) const {
    return policy.max_bytes == UINT64_MAX || bytes + coalesced_bytes + more <= policy.max_bytes;
  }
  bool empty() const { return branches == 0 && nodes == 0 && policy == NamespacePolicy(); }
};

struct Node {
  uint64_t id = 0, model = 0, parent = 0;
  uint64_t owner = 0;             // The one branch that may extend it.
  std::string ns;                 // The namespace of the branch that made it...
  NamespaceUsage* use = nullptr;  // ...and its sums; set once it is in the tree.
  // Nothing needs KV of this node, or of any node that leaves it: every branch that ends here and
  // every child is evicted itself. So its parent may lose the KV that only this node needed.
  bool kv_gone = false;
  std::vector<Lane> lanes;
  std::vector<Mark> samplers, metadata;  // By position, one at each.
  // Tables that were computed from the path up to a position, ordered by that and by kind, which
  // stands in the mark's strip. Each is the only use of its table.
  std::vector<Mark> derived;
  std::vector<ContentSpan> spans;  // By begin.
  // A million branches may leave one node. Refs from refs_from on are all here, of those before it
  // only some.
  std::set<Ref> refs;
  Ref refs_from;

  // Nothing needs it, as far as memory knows; surely so if refs_from is the first possible ref.
  bool unneeded() const { return refs.empty(); }
  bool knows_all_refs() const { return refs_from == Ref(); }
  // Null: there is none, or memory does not know which it is.
  const Ref* farthest() const {
    return refs.empty() || *refs.rbegin() < refs_from ? nullptr : &*refs.rbegin();
  }
  // It may reach beyond its farthest ref. In Leftovers::untrimmed then.
  bool untrimmed = false;

  // The index's version of a list of this node (tree_records.h): its chunks, and how many of its
  // entries are still as they were flushed.
  struct FlushedList {
    uint32_t chunks = 0;
    size_t same = 0;
    void Changed(size_t index) { same = std::min(same, index); }
  };
  struct Flushed {
    std::vector<FlushedList> lanes;  // Empty: nothing yet.
    uint64_t parent = 0, start = 0;  // And the position at which it leaves it.
    bool untrimmed = false;
    FlushedList samplers, metadata, derived, spans;
    void LaneChanged(size_t lane, size_t index) {
      if (!lanes.empty()) lanes[lane].Changed(index);
    }
    bool SameChunks(const Flushed& other) const;
  };
  Flushed flushed;
  bool in_index = false;
  bool dirty = false;      // In DirtyRecords.
  bool off_clock = false;  // Trim found it changed; the next tree flush puts it back.
  bool gone = false;       // Nothing needs it. Stays until the index knows.
  // Since it was last sealed, or came into memory.
  uint64_t unsealed_deltas = 0, unsealed_tokens = 0;
  bool seal_due = false;  // In SealQueue.
  uint32_t users = 0;     // Branches and children in memory, and Residency::Use.
  size_t charge = 0;      // Its part of Residency::bytes.
};

// When a branch expires that was last used then; 0: never. It may be a time that never comes.
inline uint64_t ExpiryOf(const Keep& keep, uint64_t used_at_ns) {
  if (keep.pinned || keep.ttl_ns == 0) return 0;
  return keep.ttl_ns > UINT64_MAX - used_at_ns ? UINT64_MAX : used_at_ns + keep.ttl_ns;
}

struct Head {
  uint64_t id = 0, model = 0;
  uint64_t node = 0;  // 0: empty.
  std::string name, ns;
  const NamespaceUsage* use = nullptr;  // Set once it is in the tree.
  std::vector<uint64_t> lengths;        // One a lane.
  // Grows with every change of the branch's content. Two states of equal length may have different
  // tokens; two of equal version cannot.
  uint64_t version = 0;
  uint64_t created_at_ns = 0, updated_at_ns = 0;
  Keep keep;
  // Appended to, forked or read. Reads are not logged: a crash may forget them.
  uint64_t used_at_ns = 0;
  bool reused = false;      // Forked, a fork, or read.
  bool kv_evicted = false;  // As far as other branches allow, since its last write.
  uint64_t expires_at_ns() const { return ExpiryOf(keep, used_at_ns); }

  // Its state in the index.
  struct Flushed {
    bool there = false;
    std::string name;
    uint64_t node = 0, length = 0;
    Keep keep{};
    uint64_t used_at_ns = 0;
    bool kv_evicted = false;
  };
  Flushed flushed;
  bool dirty = false;         // In DirtyRecords.
  bool off_clock = false;     // As of a node.
  bool gone = false;          // Dropped. Stays until the index knows.
  mutable bool used = false;  // Since Residency::Trim passed.
  size_t charge = 0;
};

// A piece of a lane along a path.
struct LanePiece {
  uint64_t node = 0;
  uint64_t begin = 0, end = 0;  // Positions wanted of the extent.
  Extent extent;
};

// A snapshot table as the tree uses it.
struct TableUsage {
  uint64_t bytes = 0;         // The file's size.
  uint64_t sealed_bytes = 0;  // Stored bytes of the frames that were sealed into it...
  uint64_t live_bytes = 0;    // ...and those that some node still needs, about.
  bool dirty = false;         // The index does not have it so.
  // More of it died than was live, so the index was damaged. Some of it may be needed, so it stays.
  bool lied = false;
  // Nothing was sealed into it: it is a derived table, and is neither rewritten nor merged.
  bool derived() const { return sealed_bytes == 0; }
};

// Sums over all branches and nodes. A lane counts when it holds something.
struct TreeCounts {
  uint64_t branches = 0, nodes = 0;
  uint64_t kv_lanes = 0, kv_extents = 0;
  uint64_t tokens = 0;
  uint64_t raw_bytes = 0;      // KV of all positions that have it, and token ids.
  uint64_t evicted_bytes = 0;  // KV that positions had.
  bool operator==(const TreeCounts&) const = default;
};

}  // namespace cairn::engine
