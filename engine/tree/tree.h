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
// and both end in TreeChanges::Apply, so that memory and log cannot drift apart.
//
// Liveness is a length: a node is kept while a head or a child's edge needs it, and cut in place
// only when none reaches beyond. Nothing stores a count of them: the farthest one tells. Whoever
// went may have left a node *loose*: it reaches beyond that one, until it is cut (cut.cc).
#pragma once

#include <algorithm>
#include <array>
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

#include "engine/tree/lease_table.h"
#include "engine/tree/node.h"
#include "engine/tree/op.h"

namespace cairn::sstable {
class LsmIndex;
}

namespace cairn::engine {

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
  // The same, with what loose nodes will lose when they are cut, raw.
  uint64_t dead_noted_bytes() const { return table_bytes_died_ + loose_bytes_noted_; }
  // Nodes that were seen to have one child left and nothing else; some of the last, and some of
  // these are no longer so.
  std::span<const uint64_t> joinable() const {
    return std::span(joinable_).first(std::min(joinable_noted_, joinable_.size()));
  }
  void ForgetJoinable() { joinable_noted_ = 0; }
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
  // The op by which a model that is there gets what `spec`, which agrees with it, says and it
  // leaves unset. kModelMismatch when together they make no model.
  Result<Op> ResolveKnownModel(uint64_t model, const ModelSpec& spec) const;
  // A branch without a ttl gets that of its namespace.
  Result<Op> ResolveCreate(uint64_t model, const std::string& name, const std::string& ns,
                           Keep keep = {}) const;
  Result<Op> ResolveFork(uint64_t branch, uint64_t position, const std::string& name,
                         const std::string& ns, Keep keep = {}) const;
  // The same of a node (PathStep::node), with the KV that lies on it and above it. kNotFound when
  // nothing needs it any more, kInvalidArgument when the position is not on it. REQUIRES: it is in
  // memory if it exists.
  Result<Op> ResolveForkOfNode(uint64_t node, uint64_t position, const std::string& name,
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
    bool exact() const { return extents.empty() || extents.front().exact; }  // All are the same.
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
  // None that is leased up to its end.
  uint64_t AnyLoose() const;
  // True: the node is not loose, or is none, and is forgotten here. False: it is to be cut, or
  // memory does not know enough. REQUIRES: it is in memory if it exists.
  bool SettleLoose(uint64_t node);

  // What is to stay as it is for now, though no branch needs it.
  LeaseTable& leases() { return leases_; }
  const LeaseTable& leases() const { return leases_; }

  // So much room of a namespace is taken (1), or given back (-1), for what is still to be applied.
  void NoteJoined(const std::string& ns, uint64_t bytes, int sign);
  void NoteEviction(const std::string& ns);
  // The branch was read, or forked. Logged nowhere; may throw.
  void NoteUsed(uint64_t branch, uint64_t now_ns);
  // The same for one whose use is recorded as later than it can have been.
  void NoteUsedBefore(uint64_t branch, uint64_t now_ns);
  bool AnyUsedAfter(uint64_t at_ns) const;  // Of those in memory.

  // Branches and nodes that changed since the last dump.
  size_t dirty_count() const { return dirty_.heads.size() + dirty_.nodes.size(); }
  // Branches and nodes that a replay of what changed since ForgetReplayReads would read from the
  // index, about: not those that were made since then.
  size_t replay_reads() const { return replay_reads_; }
  void ForgetReplayReads() { replay_reads_ = 0; }

 private:
  friend class TreeChanges;
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
  void NoteJoinable(const Node& node);
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
  static std::vector<uint64_t> EndsOf(const Node& node);  // Lengths of a branch with all of it.
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
  uint64_t loose_bytes_noted_ = 0;
  std::array<uint64_t, kJoinableKept> joinable_{};  // A ring.
  size_t joinable_noted_ = 0;
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
  LeaseTable leases_;
  uint64_t seal_tokens_ = 0, seal_deltas_ = 0;
  std::vector<uint64_t> seal_due_;
  uint64_t seal_due_bytes_ = 0;
  std::deque<std::pair<bool, uint64_t>> clock_;  // {is a head, id}: the next to be looked at first.
  size_t memory_bytes_ = 0;
  uint64_t loads_ = 0;
  uint64_t next_id_ = 1;  // Models, branches and nodes share one counter; ids are never reused.
};

}  // namespace cairn::engine
