// SPDX-License-Identifier: Apache-2.0
//
// The conversation tree: models, nodes, branches, and where the content of every position lies. No
// locks and no I/O; the commit lock of the store guards it.
//
// All of it is in the index (tree_records.h); in memory is what is in use, and what the index does
// not have yet:
//   - models and tables, always;
//   - some branches, and with each of them every node of its path;
//   - whatever changed since the last dump, also what is gone since then.
// So a branch in memory can be decided about without reading. What is missing is brought in by
// tree_loader.h before the lock is held for good.
//
// A change goes two ways in:
//   live    Resolve*() checks the arguments and decides (which node, in place or not) -> Op
//   replay  the Op comes out of the log
// and both end in Transaction::Apply, so that memory and log cannot drift apart.
//
// Liveness is a length: a node is kept while a head or a child's edge needs it, and cut in place
// only when none reaches beyond. Nothing stores a count of them: the farthest one tells. Whoever
// went may have left a node *loose*: it reaches beyond that one, until it is cut (cut.cc).
#pragma once

#include <algorithm>
#include <compare>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/keep.h"
#include "engine/tree/op.h"

namespace cairn::sstable {
class LsmIndex;
}

namespace cairn::engine {

// Instead of a table's number: nothing holds it any more, or never did. On disk.
inline constexpr uint64_t kEvictedTable = UINT64_MAX;
inline constexpr uint64_t kGapTable = UINT64_MAX - 1;

// Where content lies: in a record of the log, or, sealed, in a fragment of a snapshot table.
struct Place {
  wal::Location log;          // Segment 0: not in the log, or not yet known (see Transaction).
  uint64_t table = 0;         // Snapshot table, or kEvictedTable, kGapTable, else 0.
  uint32_t positions = 0;     // Of the fragment.
  uint64_t stored_bytes = 0;  // Of the fragment.
  // The fragment stands under the number of this node, which was joined with its child; 0: under
  // that of the node whose place this is.
  uint64_t fragment_node = 0;

  bool known() const { return log.segment != 0 || table != 0; }
  bool evicted() const { return table == kEvictedTable; }
  bool gap() const { return table == kGapTable; }
  bool absent() const { return evicted() || gap(); }
  bool in_table() const { return table != 0 && !absent(); }
  uint64_t FragmentNode(uint64_t node) const { return fragment_node != 0 ? fragment_node : node; }
  // What `count` positions of the fragment take up; never nothing, since a table of which nothing
  // is needed is deleted.
  uint64_t Share(uint64_t count) const {
    return positions == 0 ? 0 : (stored_bytes * count + positions - 1) / positions;
  }
  bool operator==(const Place&) const = default;
};

// Positions [begin, begin + count) of a lane as one record or fragment holds them. Only `count`
// shrinks later (rewind), so the record tells its own number of positions.
struct Extent {
  uint64_t begin = 0;
  uint32_t count = 0;
  uint32_t op_index = 0;  // Which op of the record (batches).
  Place place;
  uint32_t prefix_bytes = 0;  // So much of the record must be read for this lane.
};

struct Lane {
  uint64_t start = 0;  // What lies below is on the parent.
  uint64_t end = 0;
  std::vector<Extent> extents;  // Contiguous from start to end.
  uint64_t absent = 0;          // Positions that lie nowhere...
  uint64_t evicted = 0;         // ...and of these, those that did.
};

// A state (sampler, metadata) that belongs after `position` tokens.
struct Mark {
  uint64_t position = 0;
  uint32_t strip = 0;
  Place place;
};

// What keeps a node alive up to some position: a branch that ends on it, or a node that leaves it.
struct Ref {
  enum Kind : uint8_t { kHead, kEdge };
  uint64_t position = 0;
  Kind kind = kHead;
  uint64_t id = 0;  // Of the branch or the child.
  auto operator<=>(const Ref&) const = default;
};

// Refs of a node that are read together, and kept when there are more: most nodes never have so
// many, and they are a block or two of the index.
inline constexpr size_t kRefsKept = 64;

// What the branches of a namespace hold. Whatever holds something, or has a policy, is in memory:
// namespaces are tenants, not conversations.
struct NamespaceUse {
  NamespacePolicy policy;
  uint64_t branches = 0, nodes = 0;
  uint64_t bytes = 0;  // See NamespacePolicy::max_bytes.
  bool dirty = false;  // The index does not have it so.
  // Of appends that were accepted and are still to be applied; in memory only.
  uint64_t joined_bytes = 0;
  // What it would have held, these included, with the last append that was refused for its cap; in
  // memory only.
  mutable uint64_t refused_bytes = 0;
  uint64_t evictions = 0;  // Of its branches, since the opening; in memory only.
  bool HasRoom(uint64_t more) const {
    return policy.max_bytes == UINT64_MAX || bytes + joined_bytes + more <= policy.max_bytes;
  }
  bool empty() const { return branches == 0 && nodes == 0 && policy == NamespacePolicy(); }
};

struct Node {
  uint64_t id = 0, model = 0, parent = 0;
  uint64_t owner = 0;           // The one branch that may extend it.
  std::string ns;               // Of the branch that made it...
  NamespaceUse* use = nullptr;  // ...and what that has; set once it is in the tree.
  // Of this node, and of all that leave it, nothing needs KV any more: what ends here or leaves is
  // evicted itself. So its parent may lose the KV that only this one needed.
  bool kv_gone = false;
  std::vector<Lane> lanes;
  std::vector<Mark> samplers, metadata;  // By position, one at each.
  std::vector<ContentSpan> spans;        // By begin.
  // A million branches may leave one node. Those from refs_from on are all here, of those before it
  // some.
  std::set<Ref> refs;
  Ref refs_from;

  // Nothing needs it; as far as memory knows, unless refs_from is the first possible one.
  bool unneeded() const { return refs.empty(); }
  bool knows_all_refs() const { return refs_from == Ref(); }
  // Null: there is none, or memory does not know which it is.
  const Ref* farthest() const {
    return refs.empty() || *refs.rbegin() < refs_from ? nullptr : &*refs.rbegin();
  }
  // It may reach beyond its farthest ref. In Tree::loose then.
  bool loose = false;

  // What the index has of it (tree_records.h): the chunks of a list, and how many of its entries
  // are still as they were dumped.
  struct DumpedList {
    uint32_t chunks = 0;
    size_t same = 0;
    void Changed(size_t index) { same = std::min(same, index); }
  };
  struct Dumped {
    std::vector<DumpedList> lanes;   // Empty: nothing yet.
    uint64_t parent = 0, start = 0;  // And where it leaves that.
    bool loose = false;
    DumpedList samplers, metadata, spans;
    void LaneChanged(size_t lane, size_t index) {
      if (!lanes.empty()) lanes[lane].Changed(index);
    }
    bool SameChunks(const Dumped& other) const;
  };
  Dumped dumped;
  bool in_index = false;
  bool dirty = false;      // In Tree::Dirty.
  bool off_clock = false;  // Trim met it changed; the next dump puts it back.
  bool gone = false;       // Nothing needs it. Stays until the index knows.
  // Since it was last sealed, or came into memory.
  uint64_t unsealed_deltas = 0, unsealed_tokens = 0;
  bool seal_due = false;  // In Tree::seal_due.
  uint32_t users = 0;     // Branches and children in memory, and Tree::Use.
  size_t charge = 0;      // Of Tree::memory_bytes.
};

// When a branch that was used last then expires; 0: never. It need not be a time that ever comes.
inline uint64_t ExpiryOf(const Keep& keep, uint64_t used_at_ns) {
  if (keep.pinned || keep.ttl_ns == 0) return 0;
  return keep.ttl_ns > UINT64_MAX - used_at_ns ? UINT64_MAX : used_at_ns + keep.ttl_ns;
}

struct Head {
  uint64_t id = 0, model = 0;
  uint64_t node = 0;  // 0: empty.
  std::string name, ns;
  const NamespaceUse* use = nullptr;  // Set once it is in the tree.
  std::vector<uint64_t> lengths;      // One a lane.
  // Grows with every change of the branch's content. Two equal lengths may have different tokens
  // below them, two equal versions cannot.
  uint64_t version = 0;
  uint64_t created_at_ns = 0, updated_at_ns = 0;
  Keep keep;
  // Appended to, forked or read. Reading is not logged: after a crash that may be forgotten.
  uint64_t used_at_ns = 0;
  bool reused = false;      // Forked, a fork, or read.
  bool kv_evicted = false;  // As far as other branches let it, since it was last written to.
  uint64_t expires_at_ns() const { return ExpiryOf(keep, used_at_ns); }

  // What the index has of it.
  struct Dumped {
    bool there = false;
    std::string name;
    uint64_t node = 0, length = 0;
    Keep keep{};
    uint64_t used_at_ns = 0;
    bool kv_evicted = false;
  };
  Dumped dumped;
  bool dirty = false;         // In Tree::Dirty.
  bool off_clock = false;     // As of a node.
  bool gone = false;          // Dropped. Stays until the index knows.
  mutable bool used = false;  // Since Tree::Trim passed.
  size_t charge = 0;
};

// A piece of a lane along a path.
struct LanePiece {
  uint64_t node = 0;
  uint64_t begin = 0, end = 0;  // Positions wanted of the extent.
  Extent extent;
};

// A snapshot table as the tree uses it.
struct TableUse {
  uint64_t bytes = 0;         // Of the file.
  uint64_t sealed_bytes = 0;  // Stored bytes of the frames that were sealed into it.
  uint64_t live_bytes = 0;    // Of those, what some node still needs, about.
  bool dirty = false;         // The index does not have it so.
};

// Sums over all branches and nodes. A lane counts when it holds something.
struct TreeCounts {
  uint64_t branches = 0, nodes = 0;
  uint64_t kv_lanes = 0, kv_extents = 0;
  uint64_t tokens = 0;
  uint64_t raw_bytes = 0;      // KV of all lanes' positions that have it, and the token ids.
  uint64_t evicted_bytes = 0;  // KV that positions had.
  bool operator==(const TreeCounts&) const = default;
};

// Payload of a large append that is in the log already, in front of the record that counts it.
struct Part {
  wal::Location location;
  std::vector<LaneRange> lanes;
  std::vector<uint32_t> prefix_bytes;  // One a lane range.
};

// What the parts of the tree say alike.
Status NoBranch(uint64_t branch);                     // kNotFound.
Status Unfit(const Op& op, const std::string& what);  // kCorruption: only a bad log can bring it.
// kInvalidArgument beyond 256 bytes, or with a NUL. `what`: "name", "namespace".
Status CheckNameBytes(const std::string& name, const char* what);

class Tree {
 public:
  // --- Looking, at what is in memory
  const Head* FindHead(uint64_t branch) const;
  const Head* FindHead(std::string_view ns, std::string_view name) const;
  const Node* FindNode(uint64_t node) const;
  // A node on the path of a branch that is in memory: then it is as well. Null for 0.
  const Node* OnPath(uint64_t node) const;
  // It is in memory, or known to be gone: the index need not be asked.
  bool KnowsHead(uint64_t branch) const { return heads_.contains(branch); }
  bool KnowsNode(uint64_t node) const { return nodes_.contains(node); }
  std::shared_ptr<const ModelSpec> FindModel(uint64_t model) const;
  const std::map<uint64_t, std::shared_ptr<const ModelSpec>>& models() const { return models_; }
  // Heads in memory in order of (namespace, name, id), from `from` on; false from `visit` ends.
  using NameKey = std::tuple<std::string, std::string, uint64_t>;
  void VisitNames(const NameKey& from, const std::function<bool(const NameKey&)>& visit) const;
  // Every table that was sealed and not forgotten, also those that nobody needs any more.
  const std::map<uint64_t, TableUse>& tables() const { return tables_; }
  // Of the tables' bytes, what became needless in this tree's life; some of it twice, when a change
  // was undone. So it tells that something died.
  uint64_t table_bytes_died() const { return table_bytes_died_; }
  // {segment, node} of what was logged since the last dump, in log order; some twice. While they
  // are kept, since KeepLogged.
  std::span<const std::pair<uint64_t, uint64_t>> logged() const { return logged_; }
  // {table, node} since the last dump: content of the node stands in this table under the number of
  // a node that it was joined with; some twice.
  std::span<const std::pair<uint64_t, uint64_t>> joined() const { return joined_; }
  // Tables that were forgotten since the last dump.
  std::span<const uint64_t> gone_tables() const { return dirty_.gone_tables; }
  uint64_t next_id() const { return next_id_; }
  const TreeCounts& counts() const { return counts_; }
  // What nodes held that died, as NamespaceUse::bytes counts; since this tree was opened.
  uint64_t died_bytes() const { return died_bytes_; }
  using Namespaces = std::map<std::string, NamespaceUse, std::less<>>;
  const Namespaces& namespaces() const { return namespaces_; }
  const NamespaceUse* FindNamespace(std::string_view ns) const {
    const auto it = namespaces_.find(ns);
    return it == namespaces_.end() ? nullptr : &it->second;
  }
  // The first branch to expire does so no earlier; 0: none does.
  uint64_t expires_from_ns() const { return expires_from_ns_; }
  void SetExpiresFrom(uint64_t ns) { expires_from_ns_ = ns; }

  std::vector<LanePiece> CollectLane(const Head& head, uint32_t lane, uint64_t begin,
                                     uint64_t end) const;
  std::vector<PathStep> Path(const Head& head) const;
  // The newest mark at or below `position` on the head's path.
  const Mark* FindMark(const Head& head, bool sampler, uint64_t position,
                       uint64_t* node = nullptr) const;
  std::vector<ContentSpan> Spans(const Head& head, uint64_t begin, uint64_t end) const;

  // The positions of a lane of the path that have no KV (any more), in order, joined.
  struct Hole {
    uint64_t node = 0;
    uint64_t begin = 0, end = 0;
  };
  std::vector<Hole> Holes(const Head& head, uint32_t lane, uint64_t begin, uint64_t end) const;

  // --- Deciding. Every failure is an operating error of the caller.
  Result<Op> ResolveModel(const ModelSpec& spec) const;
  // A branch without a ttl gets that of its namespace.
  Result<Op> ResolveCreate(uint64_t model, const std::string& name, const std::string& ns,
                           Keep keep = {}) const;
  Result<Op> ResolveFork(uint64_t branch, uint64_t position, const std::string& name,
                         const std::string& ns, Keep keep = {}) const;
  // `lanes` in any order with begin and count set; each must begin at the branch's lane length, or
  // beyond it where the group may have gaps.
  Result<Op> ResolveAppend(uint64_t branch, std::vector<LaneRange> lanes,
                           std::vector<ContentSpan> spans) const;
  Result<Op> ResolveRewind(uint64_t branch, uint64_t length) const;
  Result<Op> ResolveRename(uint64_t branch, const std::string& name) const;
  Result<Op> ResolveDrop(uint64_t branch) const;
  Result<Op> ResolveKeep(uint64_t branch, const Keep& keep) const;
  Result<Op> ResolveNamespace(const std::string& ns, const NamespacePolicy& policy) const;
  // What only this branch needs loses its KV (evict.cc). What must be known of others and is not in
  // memory is added to `missing`: then it is to be decided again with that.
  struct Missing {
    std::vector<uint64_t> branches, nodes;
    bool any() const { return !branches.empty() || !nodes.empty(); }
  };
  // At most about `ranges_max` ranges, from the leaf up, so that the op fits a record: when there
  // are as many, it is to be decided again after it was applied, and goes on from there.
  Result<Op> ResolveEvict(uint64_t branch, size_t ranges_max, Missing* missing) const;
  // What the ranges of such an op hold, as NamespaceUse::bytes counts it.
  uint64_t EvictedBytes(const Op& op) const;
  // `lanes` with strips set, each within one Hole.
  Result<Op> ResolveFill(uint64_t branch, std::vector<LaneRange> lanes) const;
  // The op that makes `table` the place of what was read from the `sources`: of each the part that
  // lies where it lay then. Without ranges nothing is left to seal.
  struct SealSource {
    uint64_t node = 0;
    uint32_t lane = 0;
    uint64_t begin = 0;
    uint32_t count = 0;
    std::shared_ptr<const ModelSpec> model{};
    std::vector<Extent> extents{};  // That are read, one behind the other. Of a state none, but...
    Mark mark{};                    // ...this.
    uint64_t stored_bytes = 0;      // Set when it was written.
  };
  // What of a node lies at a wanted place, cut into sources of at most `bytes` of KV (or one
  // extent) and at pages; appended to `sources`.
  void Collect(uint64_t node, const std::function<bool(const Place&)>& wanted, uint64_t bytes,
               std::vector<SealSource>* sources) const;
  Op ResolveSeal(uint64_t table, uint64_t table_bytes, std::span<const SealSource> sources) const;
  // The one child of a node that nothing else needs (join.cc), else 0. REQUIRES: it is in memory.
  uint64_t OnlyChild(uint64_t node) const;
  // The op by which `node` takes in its parent. kNotFound: it has none, that is needed by others or
  // in use (Use), not all that needs it is in memory, or it is another namespace's.
  Result<Op> ResolveJoin(uint64_t node) const;

  // The op that cuts a loose node to its farthest ref (cut.cc). kNotFound: it is gone, reaches no
  // farther, or memory does not know that ref.
  Result<Op> ResolveCut(uint64_t node) const;

  // An id for a node to come, which is then made by a kAppend with that id. Lost when none is.
  uint64_t TakeId() { return next_id_++; }

  // Nodes with KV that got so many tokens or deltas since they were sealed; 0: none for that
  // reason.
  void SetSealLimits(uint64_t tokens, uint64_t deltas) {
    seal_tokens_ = tokens;
    seal_deltas_ = deltas;
  }
  uint64_t seal_due_bytes() const { return seal_due_bytes_; }  // Their KV, about.
  std::vector<uint64_t> TakeSealDue();
  // What is in logged() is about to be sealed. A dump meanwhile puts it into the index, with what
  // comes meanwhile, and keeps all of it here: the seal ends with the deletion of whatever L
  // records there are up to its segment, and some of these may be of what came meanwhile.
  void KeepLogged();
  // What was in logged() at KeepLogged, up to `segment`, was sealed. The next dump must delete the
  // L records up to there, before it puts: of what came meanwhile, what lies up to there is put by
  // it, though it be again.
  void ForgetLogged(uint64_t segment);
  // The seal that KeepLogged was for came to nothing, or ForgetLogged has told its end.
  void ReleaseLogged();
  // The table's file is gone. REQUIRES: nothing in it is live.
  void ForgetTable(uint64_t table);

  // --- What is in memory (tree_memory.cc)
  // Where the rest is; null: there is none.
  const std::shared_ptr<sstable::LsmIndex>& index() const { return index_; }
  void SetIndex(std::shared_ptr<sstable::LsmIndex> index) { index_ = std::move(index); }
  // Changes whenever the index comes to know something: what was read of it before may be old.
  uint64_t generation() const { return generation_; }
  void SetGeneration(uint64_t generation) { generation_ = generation; }
  // Takes in what was read at this generation. What memory has already is left as it is.
  // kCorruption when it does not fit the rest. REQUIRES: the parent, the head's node are in memory.
  Status Insert(std::unique_ptr<Node> node);
  Status Insert(Head head);
  // The refs of a node that follow refs_from downwards, as read; `from`: how far they go then.
  void InsertRefs(uint64_t node, std::span<const Ref> refs, const Ref& from);
  // Keeps a node in memory, as long as it lives. REQUIRES: it is there.
  void Use(uint64_t node) { ++nodes_.at(node)->users; }
  void Unuse(uint64_t node);
  // Drops what was not used for longest, is not used now and is in the index as it is, until at
  // most so many bytes are left, or `steps` entries were looked at.
  void Trim(size_t max_bytes, size_t steps = SIZE_MAX);
  size_t memory_bytes() const { return memory_bytes_; }  // About.
  uint64_t loads() const { return loads_; }              // Taken in by Insert.
  // Nodes that nothing in memory needs, while the index may know something that does.
  const std::vector<uint64_t>& undecided() const { return undecided_; }
  // Of the first of them enough is known now: it dies or is left alone.
  void DecideFirst();
  // One of the nodes that may be loose; 0: there is none. They stay so over dumps and openings,
  // until it is known that they are not, or not any more.
  uint64_t AnyLoose() const { return loose_.empty() ? 0 : loose_.back(); }
  // True: the node is not loose, or is none, and is forgotten here. False: it is to be cut, or
  // memory does not know enough. REQUIRES: it is in memory if it exists.
  bool SettleLoose(uint64_t node);

  // So much room of a namespace is taken (1), or given back (-1), for what is still to be applied.
  void NoteJoined(const std::string& ns, uint64_t bytes, int sign);
  void NoteEviction(const std::string& ns);
  // The branch was read, or forked. Logged nowhere; may throw.
  void NoteUsed(uint64_t branch, uint64_t now_ns);

  // Branches and nodes that changed since the last dump.
  size_t dirty_count() const { return dirty_.heads.size() + dirty_.nodes.size(); }
  // Branches and nodes that a replay of what changed since ForgetReplayReads would read from the
  // index, about: not those that were made since then.
  size_t replay_reads() const { return replay_reads_; }
  void ForgetReplayReads() { replay_reads_ = 0; }

 private:
  friend class Transaction;
  friend class TreeRecords;
  // Ids of what changed since the last dump, also of what is gone. Each is in it once.
  struct Dirty {
    std::vector<uint64_t> heads, nodes, models, gone_tables;
  };
  Node* MutableNode(uint64_t id);  // Null when it is gone or not in memory.
  Head* MutableHead(uint64_t id);
  bool IsStale(uint64_t node, const Ref& ref) const;  // What the index says is no longer so.
  Status CheckFits(const Node& node) const;
  // Something else than the branch or child `but` needs the node from the token position on, as far
  // as memory knows.
  bool IsNeeded(const Node& node, uint64_t from, uint64_t but) const;
  void CollectDead(uint64_t node);
  void NoteLoose(Node* node);  // REQUIRES: room in loose_.
  // REQUIRES: room in seal_due_.
  void NoteUnsealed(uint64_t node, uint64_t tokens);
  void TrimRefs(uint64_t node);  // REQUIRES: the index has all of them.
  void UseTable(const Place& place, uint64_t count, int sign);
  // The same of positions of a lane, within a Recount of the node.
  void UseExtent(Node* node, size_t lane, const Extent& extent, int sign);
  uint64_t PositionBytes(const Node& node, size_t lane) const;
  void NoteExpiry(const Head& head);
  void Charge(Node* node);
  void Charge(Head* head);
  void Remember(bool head, uint64_t id);  // For Trim. May throw.
  void RememberDirty();                   // The same of all that is off the clock.
  // Noted first: what is marked and not noted would never reach the index.
  void Touch(Node* node) {
    if (node->dirty) return;
    dirty_.nodes.push_back(node->id);
    node->dirty = true;
    replay_reads_ += node->in_index ? 1 : 0;
  }
  void Touch(Head* head) {
    if (head->dirty) return;
    dirty_.heads.push_back(head->id);
    head->dirty = true;
    replay_reads_ += head->dumped.there ? 1 : 0;
  }
  // Lives around every change of a node's lanes and keeps counts_ right.
  class Recount {
   public:
    Recount(Tree* tree, const Node& node) : tree_(tree), node_(node) { tree->Count(node, -1); }
    ~Recount() { tree_->Count(node_, 1); }
    Recount(const Recount&) = delete;
    Recount& operator=(const Recount&) = delete;

   private:
    Tree* const tree_;
    const Node& node_;
  };
  void Count(const Node& node, int sign);  // Adds it to counts_, or takes it out.
  // The node of the head's path on which `position` tokens end; cuts `lengths` to what is on it.
  const Node* NodeAt(const Node* node, uint64_t position, std::vector<uint64_t>* lengths) const;
  Status CheckName(const std::string& name, const std::string& ns) const;
  void SetKeep(Keep keep, Op* op) const;  // As ResolveCreate says.
  Status CheckCut(const Head& head, uint64_t position, const char* what) const;

  std::shared_ptr<sstable::LsmIndex> index_;
  uint64_t generation_ = 0;
  std::map<uint64_t, std::shared_ptr<const ModelSpec>> models_;
  std::unordered_map<uint64_t, std::unique_ptr<Node>> nodes_;
  std::unordered_map<uint64_t, Head> heads_;
  std::set<NameKey> names_;  // Of the heads in memory.
  std::map<uint64_t, TableUse> tables_;
  Namespaces namespaces_;
  uint64_t expires_from_ns_ = 0;
  uint64_t died_bytes_ = 0;
  uint64_t table_bytes_died_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> logged_;
  bool keep_logged_ = false;
  size_t logged_kept_ = 0;    // So many there were at KeepLogged...
  size_t logged_dumped_ = 0;  // ...and so many the index has since then.
  std::vector<std::pair<uint64_t, uint64_t>> joined_;
  TreeCounts counts_;
  Dirty dirty_;  // Of nodes it has room for all in memory: they may die where nothing can fail.
  size_t replay_reads_ = 0;
  std::vector<uint64_t> undecided_;
  std::vector<uint64_t> loose_;  // Each once; some may be gone, or cut in a replay.
  uint64_t seal_tokens_ = 0, seal_deltas_ = 0;
  std::vector<uint64_t> seal_due_;
  uint64_t seal_due_bytes_ = 0;
  std::deque<std::pair<bool, uint64_t>> clock_;  // {is a head, id}: the next to be looked at first.
  size_t memory_bytes_ = 0;
  uint64_t loads_ = 0;
  uint64_t next_id_ = 1;  // Models, branches and nodes share one counter; ids are never reused.
};

// Changes that take effect together. All memory is allocated by Apply; Commit cannot fail, so
// nothing can go wrong between the log's acceptance of a record and its publication here.
class Transaction {
 public:
  explicit Transaction(Tree* tree) : tree_(tree) {}
  Transaction(const Transaction&) = delete;
  ~Transaction() { Rollback(); }

  // kCorruption when the op does not fit the tree (only possible when replaying a bad log).
  // `parts`: payload that earlier records of the unit hold.
  Status Apply(const Op& op, std::span<const Part> parts = {});
  // The record is at `location`; its first `token_prefix_bytes` hold header and token ids.
  void Commit(const wal::Location& location, uint32_t token_prefix_bytes);
  void Rollback();

 private:
  Status ApplyModel(const Op& op);
  Status ApplyCreate(const Op& op);
  Status ApplyFork(const Op& op);
  Status ApplyAppend(const Op& op, std::span<const Part> parts);
  Status ApplyRewind(const Op& op);
  Status ApplyRename(const Op& op);
  Status ApplyDrop(const Op& op);
  Status ApplySeal(const Op& op);
  Status ApplyEvict(const Op& op);
  Status ApplyFill(const Op& op);
  Status ApplyKeep(const Op& op);
  Status ApplyNamespace(const Op& op);
  Status ApplyJoin(const Op& op);
  Status ApplyCut(const Op& op);
  void EvictRange(Node* node, uint32_t lane, uint64_t begin);
  void NeedKv(Node* node);
  void ReplaceExtents(Node* node, size_t lane, size_t first, size_t last,
                      std::vector<Extent> extents);
  void NameTable(const OpTable& table, uint64_t stored_bytes);
  Status SealLane(Node* node, const SealedRange& range, const Place& place);
  Status SealMark(Node* node, const SealedRange& range, const Place& place);

  Status AddExtents(Node* node, Head* head, const Op& op, std::span<const Part> parts);
  Status AddRange(Node* node, Head* head, const LaneRange& range, const Place& place,
                  uint32_t prefix_bytes);
  Node* MakeNode(const Op& op, const Head& head);
  void MoveHead(Head* head, Node* to, std::vector<uint64_t> lengths);
  void CutNode(Node* node, const std::vector<uint64_t>& lengths);
  void UseId(uint64_t id);
  void NoteLogged(uint64_t segment, uint64_t node);

  Tree* tree_;
  uint32_t op_index_ = 0;
  std::vector<std::function<void()>> undo_;
  std::vector<uint64_t> touched_;  // Nodes with new extents or marks.
  struct Filled {
    uint64_t node = 0;
    uint32_t lane = 0;
    uint64_t begin = 0;
  };
  std::vector<std::pair<uint64_t, uint64_t>> unsealed_;  // {node, tokens with new KV}
  std::vector<Filled> filled_;  // Extents beside gaps or between others, without a place yet.
  std::vector<uint64_t> left_;  // Nodes that lost a head or an edge.
};

}  // namespace cairn::engine
