// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/records/tree_rescue.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/core/mutation.h"
#include "engine/tree/records/tree_keys.h"
#include "sstable/snapshot_table.h"

namespace cairn::engine {

namespace {

using Record = sstable::IndexRescue::Record;

class Rescue {
 public:
  Rescue(const sstable::IndexRescue& read, const sstable::TableContext& tables, uint64_t next_id,
         uint64_t counted_from, sstable::LsmIndex* index)
      : read_(read), tables_(tables), index_(*index), batch_(index->NewBatch()) {
    tree_.SetNextId(next_id);
    tree_.segment_usages().CountFrom(counted_from);
  }

  Result<TreeRescueReport> Run() {
    CAIRN_RETURN_IF_ERROR(read_.Walk([this](const Record& record) { return Look(record); }));
    FinishNode();
    MarkNeeded();
    writing_ = true;
    CAIRN_RETURN_IF_ERROR(read_.Walk([this](const Record& record) { return Rewrite(record); }));
    FinishNode();
    CAIRN_RETURN_IF_ERROR(status_);
    CAIRN_RETURN_IF_ERROR(PutMissing());
    CAIRN_RETURN_IF_ERROR(PutRoots());
    index_.Apply(std::move(batch_));
    return std::move(report_);
  }

 private:
  struct SeenNode {
    uint64_t model = 0, parent = 0, start = 0, end = 0;
    bool whole = false;                 // All of it is certain.
    bool needed = false;                // By a branch that stays...
    uint64_t farthest = 0;              // ...up to here.
    bool judged = false, good = false;  // Its path is whole.
    bool referred = false;
    bool untrimmed() const { return needed && farthest < end; }
  };
  struct SeenHead {
    std::string name;  // Its B record's key, without the letter.
    std::string order, expiry, ns;
    uint64_t model = 0, node = 0, length = 0;
    size_t lanes = 0;
    bool stays = false;
    bool numbered = false, referred = false, ordered = false, expires = false;  // Has the record.
  };
  struct SeenModel {
    std::string encoded;
    uint64_t pieces = 0;
    bool whole = true;
  };
  struct UsedTable {
    uint64_t live_bytes = 0;
    bool derived = false;
  };

  // ---------------------------------------------------------------- the first walk

  Status Look(const Record& record) {
    const std::string_view key = record.key;
    if (key.empty() || (!record.newest.has_value() && key[0] != 'N')) return Status::Ok();
    switch (key[0]) {
      case 'B': LookAtHead(record); break;
      case 'C': LookAtCounts(record); break;
      case 'M': LookAtModel(record); break;
      case 'N': TakeNode(record); break;
      case 'P': LookAtNamespace(record); break;
      case 'T':
        if (TableBytes bytes; key.size() == kIdKeyBytes && record.newest->size() == sizeof bytes) {
          std::memcpy(&bytes, record.newest->data(), sizeof bytes);
          known_tables_[GetBig(key.substr(1))] = bytes;
        }
        break;
      default: break;
    }
    return Status::Ok();
  }

  void LookAtHead(const Record& record) {
    const auto head = GetHead(record.key, *record.newest);
    if (!record.certain && CAIRN_KEPT(kRescueCertain)) {
      if (head.ok()) NoteLost(head->name);
      return;
    }
    if (!head.ok() || heads_.contains(head->id)) return;
    heads_[head->id] = {.name = std::string(record.key.substr(1)),
                        .order = OrderKey(*head, head->keep, head->used_at_ns, head->kv_evicted),
                        .expiry = ExpiryKey(*head, head->keep, head->used_at_ns),
                        .ns = head->ns,
                        .model = head->model,
                        .node = head->node,
                        .length = head->lengths[kTokenLane],
                        .lanes = head->lengths.size()};
  }

  void LookAtCounts(const Record& record) {
    CountBytes bytes;
    if (record.key != kCountsKey || record.newest->size() != sizeof bytes) return;
    std::memcpy(&bytes, record.newest->data(), sizeof bytes);
    if (IsNumber(bytes.next_id)) tree_.SetNextId(std::max(tree_.next_id(), bytes.next_id));
    if (record.certain) report_.had = bytes.branches;
  }

  void LookAtModel(const Record& record) {
    if (record.key.size() < kIdKeyBytes) return;
    SeenModel& model = models_[GetBig(record.key.substr(1, 8))];
    const uint64_t piece = GetBig(record.key.substr(kIdKeyBytes));
    model.whole = model.whole && piece == model.pieces++;
    model.encoded += *record.newest;
  }

  void LookAtNamespace(const Record& record) {
    NamespaceBytes bytes;
    const std::string_view name = record.key.substr(1);
    if (record.newest->size() != sizeof bytes || !IsNamespace(name)) return;
    std::memcpy(&bytes, record.newest->data(), sizeof bytes);
    if (!bytes.policy.is_known()) return;
    const NamespacePolicy policy = bytes.policy.ns_policy();
    *tree_.sums().NamespaceOf(std::string(name)) = {.policy = policy, .dirty = true};
  }

  // ---------------------------------------------------------------- nodes, in both walks

  // A node's record comes before its chunks.
  void TakeNode(const Record& record) {
    const std::string_view key = record.key;
    if (key.size() < kIdKeyBytes) return;
    const uint64_t id = GetBig(key.substr(1, 8));
    if (node_ != nullptr && node_->id != id) FinishNode();
    const bool counts = record.certain || !CAIRN_KEPT(kRescueCertain);
    if (key.size() == kIdKeyBytes) {
      if (!counts || !record.newest.has_value()) return;
      auto node = GetNode(key, *record.newest);
      if (node.ok()) node_ = std::move(*node);
      whole_ = node_ != nullptr;
      return;
    }
    if (node_ == nullptr) return;
    if (!counts) whole_ = false;
    if (!whole_ || !record.newest.has_value()) return;
    whole_ = AddChunk(key, *record.newest, node_.get()).ok();
  }

  // The node was read with all its chunks.
  void FinishNode() {
    const std::unique_ptr<Node> node = std::move(node_);
    if (node == nullptr) return;
    const Node::Flushed said = node->flushed;
    MarkFlushed(node.get());
    if (writing_) {
      if (status_.ok()) status_ = Keep(node.get());
      return;
    }
    const auto model = ModelOf(node->model);
    SeenNode& seen = nodes_[node->id];
    seen = {.model = node->model,
            .parent = node->parent,
            .start = node->lanes[kTokenLane].start,
            .end = node->lanes[kTokenLane].end,
            .whole = whole_ && node->flushed.SameChunks(said) && model != nullptr &&
                     node->lanes.size() == 1 + model->groups.size() &&
                     CheckNode(Key('N', node->id), *node).ok()};
  }

  // Null: it is lost. Models come before nodes.
  std::shared_ptr<const ModelSpec> ModelOf(uint64_t id) {
    if (auto known = tree_.FindModel(id); known != nullptr) return known;
    const auto found = models_.find(id);
    if (found == models_.end() || !found->second.whole) return nullptr;
    auto spec = DecodeModel(Bytes(found->second.encoded));
    if (!spec.ok()) {
      found->second.whole = false;
      return nullptr;
    }
    tree_.SetModel(id, std::make_shared<const ModelSpec>(std::move(*spec)));
    return tree_.FindModel(id);
  }

  // ---------------------------------------------------------------- the decision

  // Whether the node and everything above it are whole.
  bool IsGood(uint64_t id) {
    std::vector<SeenNode*> path;
    bool good = true;
    while (id != 0) {
      const auto found = nodes_.find(id);
      if (found == nodes_.end()) good = false;
      if (found == nodes_.end() || found->second.judged) {
        good = good && found->second.good;
        break;
      }
      found->second.judged = true;  // And not good: a cycle comes back to it.
      path.push_back(&found->second);
      if (!found->second.whole) good = false;
      if (!good) break;
      id = found->second.parent;
    }
    for (SeenNode* const node : path) node->good = good;
    return good;
  }

  void MarkNeeded() {
    for (const auto& [id, model] : models_) ModelOf(id);
    for (auto& [id, head] : heads_) {
      const auto model = ModelOf(head.model);
      const auto node = nodes_.find(head.node);
      head.stays = model != nullptr && head.lanes == 1 + model->groups.size() &&
                   IsGood(head.node) &&
                   (head.node == 0 ||
                    (node != nodes_.end() && node->second.model == head.model &&
                     head.length >= node->second.start && head.length <= node->second.end));
      if (!head.stays) {
        NoteLost(head.name.substr(head.name.find('\0') + 1));
        continue;
      }
      ++report_.kept;
      tree_.sums().CountBranch(tree_.sums().NamespaceOf(head.ns), 1);
      tree_.sums().NamespaceOf(head.ns)->dirty = true;
      uint64_t upto = head.length;
      for (uint64_t next = head.node; next != 0;) {
        SeenNode& above = nodes_.at(next);
        above.farthest = std::max(above.farthest, upto);
        if (std::exchange(above.needed, true)) break;  // So is what is above it.
        upto = above.start;
        next = above.parent;
      }
    }
  }

  void NoteLost(std::string_view name) {
    if (report_.lost++ != 0) return;
    report_.first_lost = name.substr(0, name.find('\0'));
  }

  bool IsNeeded(uint64_t node) const {
    const auto found = nodes_.find(node);
    return found != nodes_.end() && found->second.needed;
  }
  SeenHead* Staying(uint64_t branch) {
    const auto found = heads_.find(branch);
    return found == heads_.end() || !found->second.stays ? nullptr : &found->second;
  }

  // ---------------------------------------------------------------- the second walk

  // The index shall have this under the key, or nothing.
  Status Want(const Record& record, std::optional<std::string_view> value) {
    if (value == record.shown) return Status::Ok();
    return value.has_value() ? batch_.Put(record.key, *value) : batch_.Delete(record.key);
  }
  Status WantIf(const Record& record, bool wanted) {
    return Want(record, wanted ? std::optional(record.newest.value_or("")) : std::nullopt);
  }
  // A record that a branch has once; its key ends with the branch's id.
  Status WantOnce(const Record& record, std::string SeenHead::* key, bool SeenHead::* has) {
    SeenHead* const head =
        record.key.size() < 9 ? nullptr : Staying(GetBig(record.key.substr(record.key.size() - 8)));
    const bool wanted = head != nullptr && head->*key == record.key;
    if (wanted) head->*has = true;
    return Want(record, wanted ? std::optional<std::string_view>("") : std::nullopt);
  }

  Status Rewrite(const Record& record) {
    const std::string_view key = record.key;
    const uint64_t id = key.size() < kIdKeyBytes ? 0 : GetBig(key.substr(1, 8));
    switch (key.empty() ? '\0' : key[0]) {
      case 'B': {
        const auto head = record.newest.has_value() ? GetHead(key, *record.newest)
                                                    : Status(StatusCode::kNotFound, "deleted");
        const SeenHead* const stays = head.ok() ? Staying(head->id) : nullptr;
        return WantIf(record, stays != nullptr && stays->name == key.substr(1));
      }
      case 'D': return WantIf(record, nodes_.contains(id) && nodes_.at(id).untrimmed());
      case 'F':
      case 'L': {
        const bool fits = key.size() == kLoggedKeyBytes;
        return WantIf(record, fits && record.newest.has_value() && IsNeeded(GetBig(key.substr(9))));
      }
      case 'H': {
        SeenHead* const head = key.size() == kIdKeyBytes ? Staying(id) : nullptr;
        if (head == nullptr) return Want(record, std::nullopt);
        head->numbered = true;
        return Want(record, head->name);
      }
      case 'M': return WantIf(record, record.newest.has_value() && tree_.FindModel(id) != nullptr);
      case 'N': TakeNode(record); return WantIf(record, IsNeeded(id) && record.newest.has_value());
      case 'R': return RewriteRef(record, id);
      case 'U': return WantOnce(record, &SeenHead::order, &SeenHead::ordered);
      case 'X': return WantOnce(record, &SeenHead::expiry, &SeenHead::expires);
      // PutRoots puts those that stay.
      default: return Want(record, std::nullopt);
    }
  }

  Status RewriteRef(const Record& record, uint64_t at) {
    bool wanted = false;
    if (record.key.size() == kRefKeyBytes) {
      const auto ref = GetRef(record.key);
      if (ref.ok() && ref->kind == Ref::kHead) {
        SeenHead* const head = Staying(ref->id);
        wanted = head != nullptr && head->node == at && head->length == ref->position;
        if (wanted) head->referred = true;
      } else if (ref.ok() && IsNeeded(ref->id)) {
        SeenNode& child = nodes_.at(ref->id);
        wanted = child.parent == at && child.start == ref->position;
        child.referred = child.referred || wanted;
      }
    }
    return Want(record, wanted ? std::optional<std::string_view>("") : std::nullopt);
  }

  // A node that stays: counts what it holds, and puts the records that say where that lies.
  Status Keep(Node* node) {
    if (!IsNeeded(node->id)) return Status::Ok();
    node->use = tree_.sums().NamespaceOf(node->ns);
    std::set<uint64_t> segments;
    std::set<std::pair<uint64_t, uint64_t>> joined;
    const auto use_segment = [&](const Place& place, uint64_t bytes, uint64_t kv_extents) {
      if (place.log.segment == 0) return;
      segments.insert(place.log.segment);
      tree_.segment_usages().Reserve(1);
      tree_.segment_usages().Count(place.log.segment, bytes, kv_extents, 1);
    };
    const auto use = [&](const Place& place, uint64_t count, bool derived) {
      if (!place.in_table()) return;
      UsedTable& table = used_tables_[place.table];
      table.live_bytes += place.Share(count);
      table.derived = derived;
      if (place.fragment_node != 0) joined.insert({place.table, node->id});
    };
    for (size_t i = 0; i < node->lanes.size(); ++i) {
      Lane& lane = node->lanes[i];
      const uint64_t position_bytes = PositionBytes(*tree_.FindModel(node->model), i);
      for (const Extent& extent : lane.extents) {
        use_segment(extent.place, extent.count * position_bytes, i == kTokenLane ? 0 : 1);
        use(extent.place, extent.count, false);
        if (extent.place.absent()) lane.absent += extent.count;
        if (extent.place.evicted()) lane.evicted += extent.count;
      }
    }
    for (const std::vector<Mark>* const marks : {&node->samplers, &node->metadata}) {
      for (const Mark& mark : *marks) {
        use_segment(mark.place, 1, 0);
        use(mark.place, 1, false);
      }
    }
    for (const Mark& mark : node->derived) use(mark.place, 1, true);
    tree_.sums().CountNode(node->use, 1);
    tree_.sums().CountLanes(*node, *tree_.FindModel(node->model), 1);
    for (const uint64_t segment : segments) {
      CAIRN_RETURN_IF_ERROR(batch_.Put(LoggedKey(segment, node->id), ""));
    }
    for (const auto& [table, id] : joined) {
      CAIRN_RETURN_IF_ERROR(batch_.Put(JoinedKey(table, id), ""));
    }
    const bool untrimmed = nodes_.at(node->id).untrimmed();
    if (untrimmed) CAIRN_RETURN_IF_ERROR(batch_.Put(Key('D', node->id), ""));
    if (untrimmed == node->untrimmed) return Status::Ok();
    node->untrimmed = untrimmed;
    return PutNode(*node, &batch_);
  }

  // ---------------------------------------------------------------- the end

  Status PutMissing() {
    for (const auto& [id, head] : heads_) {
      if (!head.stays) continue;
      if (!head.numbered) CAIRN_RETURN_IF_ERROR(batch_.Put(Key('H', id), head.name));
      if (!head.ordered && !head.order.empty()) {
        CAIRN_RETURN_IF_ERROR(batch_.Put(head.order, ""));
      }
      if (!head.expires && !head.expiry.empty()) {
        CAIRN_RETURN_IF_ERROR(batch_.Put(head.expiry, ""));
      }
      if (head.referred || head.node == 0) continue;
      CAIRN_RETURN_IF_ERROR(batch_.Put(RefKey(head.node, {head.length, Ref::kHead, id}), ""));
    }
    for (const auto& [id, node] : nodes_) {
      if (!node.needed || node.referred || node.parent == 0) continue;
      CAIRN_RETURN_IF_ERROR(batch_.Put(RefKey(node.parent, {node.start, Ref::kEdge, id}), ""));
    }
    return Status::Ok();
  }

  Status PutRoots() {
    for (const auto& [number, used] : used_tables_) {
      CAIRN_ASSIGN_OR_RETURN(const TableUsage usage, UsageOf(number, used));
      tree_.table_usages().Load(number, usage);
    }
    return TreeRecords::Flush(&tree_, &batch_);
  }

  Result<TableUsage> UsageOf(uint64_t number, const UsedTable& used) const {
    TableUsage usage{.live_bytes = std::max<uint64_t>(used.live_bytes, 1), .dirty = true};
    const auto known = known_tables_.find(number);
    if (known != known_tables_.end() && IsNumber(known->second.bytes)) {
      usage.bytes = known->second.bytes;
      usage.sealed_bytes = known->second.sealed_bytes;
      return usage;
    }
    // Its record is lost.
    const auto table = sstable::SnapshotTable::Open(tables_, number);
    const StatusCode code = table.status().code();
    if (!table.ok() && code != StatusCode::kNotFound && code != StatusCode::kCorruption) {
      return table.status();
    }
    usage.bytes = table.ok() ? (*table)->info().bytes : usage.live_bytes;
    usage.sealed_bytes = table.ok() ? (*table)->info().stored_bytes : usage.live_bytes;
    if (used.derived) usage.sealed_bytes = 0;
    return usage;
  }

  const sstable::IndexRescue& read_;
  const sstable::TableContext& tables_;
  sstable::LsmIndex& index_;
  sstable::WriteBatch batch_;
  Tree tree_;  // Models, sums and tables of what stays.
  TreeRescueReport report_;
  Status status_;
  bool writing_ = false;
  std::unique_ptr<Node> node_;  // Being read.
  bool whole_ = false;          // So far.
  std::map<uint64_t, SeenHead> heads_;
  std::unordered_map<uint64_t, SeenNode> nodes_;
  std::map<uint64_t, SeenModel> models_;
  std::map<uint64_t, TableBytes> known_tables_;
  std::map<uint64_t, UsedTable> used_tables_;
};

}  // namespace

Result<TreeRescueReport> RescueTree(const sstable::IndexRescue& read,
                                    const sstable::TableContext& tables, uint64_t next_id,
                                    uint64_t counted_from, sstable::LsmIndex* index) {
  return Rescue(read, tables, next_id, counted_from, index).Run();
}

}  // namespace cairn::engine
