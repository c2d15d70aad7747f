// SPDX-License-Identifier: Apache-2.0
//
// The tree as records of the index, so that neither the log nor memory need hold it for ever:
//
//   B <namespace> 0 <name> 0 [<branch>]   a head; an unnamed one has its number in the key
//   C                                     the sums (TreeCounts), and the next id
//   D <node>                              a node that may be untrimmed: its content beyond
//                                         its farthest R record is dead, and still to be
//                                         trimmed
//   F <table> <node>                      content of the node may lie in this table under the
//                                         number of a node that was joined with it
//   H <branch>                            the key of its B record, without the letter
//   L <segment> <node>                    content of the node may lie in this segment of the log
//   M <model>                             a registered model
//   M <model> <piece>                     more of its description, if that is longer than a record
//   N <node>                              a node: parent, owner, lanes; how many chunks it has
//   N <node> <lane> <chunk>               up to kChunkEntries extents, states or spans, in order
//   P <namespace>                         a namespace: its policy, and what it holds
//   R <node> ~<position> ~<kind> ~<id>    a branch that ends on the node or a node that leaves it;
//                                         complements, so that the farthest comes first
//   S <segment>                           what is needed of a segment of the log
//   T <table>                             a snapshot table
//   U <namespace> 0 <stage> <priority> <used at> <branch>
//                                         a branch that may be evicted, in the order in which that
//                                         happens; stage 0: its KV is still to go, 1: it is gone
//   X <expires at> <branch>               a branch with a time to live
//
// Keys are the letter and big-endian numbers (u64; lane u16, chunk, piece u32; kind, stage,
// priority u8), so that a node's records lie together. No counts are stored: the first R record of
// a node says whether the node is needed, and up to where.
//
// The tree knows what changed since the last tree flush (DirtyRecords). A tree flush writes only
// that, and of a long lane only the chunks from the first change on. All writes are blind puts and
// deletions. Entries that memory lacks are read one branch at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tree/memory/tree.h"
#include "sstable/lsm_index.h"

namespace cairn::engine {

class TreeRecords {
 public:
  // --- Under the commit lock
  // Puts all that changed. On an error the tree is as before, else it counts as flushed: the caller
  // must apply the batch to tree->index() before it releases the lock.
  static Status Flush(Tree* tree, sstable::WriteBatch* batch);
  // Loads everything that is always in memory into an empty tree that has its index.
  static Status LoadRoots(Tree* tree);

  // --- Reading the index, without a lock. kCorruption naming the record.
  static Result<std::optional<Head>> ReadHead(sstable::LsmIndex& index, uint64_t branch);
  static Result<std::optional<Head>> ReadNamed(sstable::LsmIndex& index, std::string_view ns,
                                               std::string_view name);
  // The same of many {namespace, name}, read in rounds.
  using Name = std::pair<std::string_view, std::string_view>;
  static Result<std::vector<std::optional<Head>>> ReadNamed(sstable::LsmIndex& index,
                                                            std::span<const Name> names);
  // Loads the blocks that ReadNode reads for the nodes of these branches into the cache, in rounds.
  // A failed read is not reported: it is tried again when the block is needed.
  static void WarmNodes(sstable::LsmIndex& index, std::span<const std::optional<Head>> heads);
  // One namespace, or all of them.
  static Result<std::optional<NamespaceUsage>> ReadNamespace(sstable::LsmIndex& index,
                                                             std::string_view ns);
  static Result<TreeSums::Namespaces> ReadNamespaces(sstable::LsmIndex& index);
  // At most `limit` of the namespace of `from`, in order of (name, id), from there on.
  static Result<std::vector<Head>> ReadInOrder(sstable::LsmIndex& index, const Tree::NameKey& from,
                                               size_t limit);
  // With the first kRefsKept refs. Null: there is none.
  static Result<std::unique_ptr<Node>> ReadNode(sstable::LsmIndex& index, uint64_t node);
  // The next kRefsKept refs below `below`. The result: how far they go, as Node::refs_from.
  static Result<Ref> ReadRefs(sstable::LsmIndex& index, uint64_t node, const Ref& below,
                              std::vector<Ref>* refs);
  // Appends nodes that may have content in these log segments, and adds the deletion of these
  // records.
  static Status ReadLogged(sstable::LsmIndex& index, const SegmentSet& segments,
                           std::vector<uint64_t>* nodes);
  static Status DeleteLogged(sstable::LsmIndex& index, const SegmentSet& segments,
                             sstable::WriteBatch* batch);
  // The same for nodes that the fragments of a table do not name.
  static Status ReadJoined(sstable::LsmIndex& index, uint64_t table, std::vector<uint64_t>* nodes);
  static Status DeleteJoined(sstable::LsmIndex& index, uint64_t table, sstable::WriteBatch* batch);

  // The first nodes whose numbers are not below `from`, at most `limit`.
  static Result<std::vector<uint64_t>> ReadNodes(sstable::LsmIndex& index, uint64_t from,
                                                 size_t limit);

  // At most `limit` branches of a namespace in order of eviction, from `from` on, as of the last
  // tree flush.
  struct Evictable {
    uint8_t stage = 0, priority = 0;
    uint64_t used_at_ns = 0, branch = 0;
    auto operator<=>(const Evictable&) const = default;
  };
  static Result<std::vector<Evictable>> ReadEvictable(sstable::LsmIndex& index, std::string_view ns,
                                                      const Evictable& from, size_t limit);
  // The same, for branches whose use is recorded as later than that.
  static Result<std::vector<Evictable>> ReadUsedAfter(sstable::LsmIndex& index, std::string_view ns,
                                                      uint64_t at_ns, const Evictable& from,
                                                      size_t limit);
  // At most `limit` branches that expire by then, from there on, in order of their time. `next_ns`:
  // when the next one after them expires, 0: none. As of the last tree flush.
  struct Expiring {
    uint64_t at_ns = 0, branch = 0;
  };
  static Result<std::vector<Expiring>> ReadExpired(sstable::LsmIndex& index, uint64_t now_ns,
                                                   const Expiring& from, size_t limit,
                                                   uint64_t* next_ns);

  // Checks every record against the others, for verification: what a record names exists and names
  // it back, lanes have no gaps. Reports each damage and goes on; also reports every stretch that
  // lies in a table. Segments of the log are counted from `counted_from` on. Holds about 100 bytes
  // for each node and branch.
  static void Check(sstable::LsmIndex& index, uint64_t counted_from,
                    const std::function<void(uint64_t table, const SealedRange&)>& sealed,
                    const std::function<void(const Status&)>& damaged);
};

}  // namespace cairn::engine
