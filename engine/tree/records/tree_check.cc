// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/core/check.h"
#include "engine/tree/records/tree_keys.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

namespace {

// One pass over all records. They come in the order of their letters, so that branches and nodes
// are known when records that refer to them are read; a node is followed by its chunks.
class RecordCheck {
 public:
  RecordCheck(sstable::LsmIndex* index, uint64_t counted_from,
              const std::function<void(uint64_t, const SealedRange&)>& sealed,
              const std::function<void(const Status&)>& damaged)
      : index_(*index), sealed_(sealed), damaged_(damaged) {
    segments_.CountFrom(counted_from);
  }

  void Run() {
    const auto scan = index_.NewScan();
    for (scan->Seek(""); scan->valid(); scan->Next()) {
      const std::string_view key = scan->key();
      if (node_ != nullptr && !key.starts_with(Key('N', node_->id))) FinishNode();
      Take(Record(key, *scan->value()));
    }
    if (!scan->status().ok()) return Take(scan->status());  // Unread records are not missing.
    FinishNode();
    for (const auto& [id, node] : nodes_) {
      const std::string key = Key('N', id);
      CheckModel(key, node.model, node.lanes);
      if (node.parent != 0 && !nodes_.contains(node.parent)) Bad(key, "its parent is missing");
      if (node.parent != 0 && !node.referred) Bad(key, "its parent does not know of it");
      if (!node.farthest.has_value()) {
        Bad(key, "nothing needs it");
      } else if (node.untrimmed ? *node.farthest > node.end : *node.farthest != node.end) {
        Bad(key, "it ends at " + std::to_string(node.end) + ", what needs it at " +
                     std::to_string(*node.farthest));
      }
      if (node.untrimmed != (untrimmed_.erase(id) != 0))
        Bad(Key('D', id), "its node says something else");
      const auto parent = nodes_.find(node.parent);
      if (parent != nodes_.end() && parent->second.kv_gone && !node.kv_gone) {
        Bad(key, "it needs KV of its parent, where nothing is needed");
      }
    }
    for (const uint64_t id : untrimmed_) Bad(Key('D', id), "its node is missing");
    for (const auto& [id, head] : heads_) {
      const std::string key = Key('H', id);
      CheckModel(key, head.model, head.lanes);
      if (!head.named) Bad(key, "it is missing, and the branch cannot be found by number");
      if (head.node != 0 && !nodes_.contains(head.node)) Bad(key, "its node is missing");
      if (head.node != 0 && !head.referred) Bad(key, "its node does not know of it");
      const auto node = nodes_.find(head.node);
      if (node != nodes_.end() && node->second.kv_gone && !head.kv_evicted) {
        Bad(key, "it needs KV of its node, where nothing is needed");
      }
      if (!head.order.empty()) Bad(head.order, "it is missing");
      if (!head.expiry.empty()) Bad(head.expiry, "it is missing");
    }
    for (const auto& [name, held] : namespaces_) {
      if (held.branches != held.branches_said || held.nodes != held.nodes_said) {
        Bad('P' + name, "it says " + std::to_string(held.branches_said) + " branches and " +
                            std::to_string(held.nodes_said) + " nodes, there are " +
                            std::to_string(held.branches) + " and " + std::to_string(held.nodes));
      }
    }
    for (const auto& [table, used] : used_tables_) {
      if (tables_.contains(table)) continue;
      Bad(Key('N', used.node), "table " + std::to_string(table) + " is missing");
    }
    for (const auto& [segment, use] : segments_.all()) {
      const auto said = said_of_segments_.find(segment);
      const SegmentUsage was = said == said_of_segments_.end() ? SegmentUsage() : said->second;
      if (was.live_bytes == use.live_bytes && was.kv_extents == use.kv_extents) continue;
      Bad(Key('S', segment), "it says that " + std::to_string(was.live_bytes) +
                                 " bytes of it are needed in " + std::to_string(was.kv_extents) +
                                 " pieces, and " + std::to_string(use.live_bytes) + " are in " +
                                 std::to_string(use.kv_extents));
    }
  }

 private:
  struct SeenNode {
    uint64_t model, parent, start, end;
    size_t lanes;
    bool kv_gone = false, untrimmed = false;
    bool referred = false;
    std::optional<uint64_t> farthest{};  // Its farthest ref.
  };
  struct SeenHead {
    uint64_t model, node, length;
    size_t lanes;
    bool kv_evicted = false;
    std::string order, expiry;  // Keys that must still come.
    bool named = false, referred = false;
  };
  struct Held {
    uint64_t branches = 0, nodes = 0;
    uint64_t branches_said = 0, nodes_said = 0;
  };

  struct UsedTable {
    uint64_t node = 0;   // The first node that has content there...
    uint64_t bytes = 0;  // ...and what all nodes need of it.
  };

  void Bad(std::string_view key, const std::string& what) { damaged_(Damaged(key, what)); }
  void Take(const Status& status) {
    if (!status.ok()) damaged_(status);
  }

  Status Record(std::string_view key, std::string_view value) {
    const auto wrong_size = [&] { return Damaged(key, "no such kind"); };
    switch (key[0]) {
      case 'B': {
        CAIRN_ASSIGN_OR_RETURN(const Head head, GetHead(key, value));
        heads_[head.id] = {head.model,
                           head.node,
                           head.lengths[kTokenLane],
                           head.lengths.size(),
                           head.kv_evicted,
                           OrderKey(head, head.keep, head.used_at_ns, head.kv_evicted),
                           ExpiryKey(head, head.keep, head.used_at_ns)};
        ++namespaces_[head.ns].branches;
        return Status::Ok();
      }
      case 'C': return key == kCountsKey ? Status::Ok() : wrong_size();
      case 'D':
        if (key.size() != kIdKeyBytes) return wrong_size();
        untrimmed_.insert(GetBig(key.substr(1)));
        return Status::Ok();
      case 'F': return key.size() == kJoinedKeyBytes ? Status::Ok() : wrong_size();
      case 'H': return CheckNumber(key, value);
      case 'L': return key.size() == kLoggedKeyBytes ? Status::Ok() : wrong_size();
      case 'M': {
        CAIRN_ASSIGN_OR_RETURN(const auto id, GetModelId(key));
        if (!id.has_value()) return Status::Ok();
        CAIRN_ASSIGN_OR_RETURN(const ModelSpec spec, GetModel(index_, *id));
        std::vector<uint64_t>& lanes = lane_bytes_of_model_[*id];
        for (size_t lane = 0; lane <= spec.groups.size(); ++lane) {
          lanes.push_back(PositionBytes(spec, lane));
        }
        return Status::Ok();
      }
      case 'N': return NodeOrChunk(key, value);
      case 'P': {
        NamespaceBytes bytes;
        if (value.size() != sizeof(bytes)) return wrong_size();
        std::memcpy(&bytes, value.data(), sizeof(bytes));
        Held& held = namespaces_[std::string(key.substr(1))];
        held.branches_said = bytes.branches;
        held.nodes_said = bytes.nodes;
        return Status::Ok();
      }
      case 'R': return key.size() == kRefKeyBytes ? CheckRef(key) : wrong_size();
      case 'S': {
        CAIRN_ASSIGN_OR_RETURN(const auto said, GetSegment(key, value));
        if (!segments_.Counts(said.first)) return Status::Ok();
        said_of_segments_.insert(said);
        segments_.Reserve(1);  // So that one of which nothing is needed is compared, too.
        segments_.Count(said.first, 0, 0, 1);
        return Status::Ok();
      }
      case 'T': return CheckTable(key, value);
      case 'U':
        return key.size() > kEvictableSuffixBytes ? Tick(key, &SeenHead::order) : wrong_size();
      case 'X': return key.size() == kExpiryKeyBytes ? Tick(key, &SeenHead::expiry) : wrong_size();
      default: return wrong_size();
    }
  }

  Status CheckTable(std::string_view key, std::string_view value) {
    TableBytes bytes;
    if (key.size() != kIdKeyBytes || value.size() != sizeof(bytes)) {
      return Damaged(key, "no such kind");
    }
    std::memcpy(&bytes, value.data(), sizeof(bytes));
    const uint64_t number = GetBig(key.substr(1));
    tables_.insert(number);
    const auto used = used_tables_.find(number);
    if (used == used_tables_.end() || used->second.bytes <= bytes.live_bytes) return Status::Ok();
    return Damaged(key, "it says that " + std::to_string(bytes.live_bytes) +
                            " bytes of it are needed, and " + std::to_string(used->second.bytes) +
                            " are");
  }

  // The record that a branch should have there; the key ends with its id.
  Status Tick(std::string_view key, std::string SeenHead::* expected) {
    const auto head = heads_.find(GetBig(key.substr(key.size() - 8)));
    if (head == heads_.end() || head->second.*expected != key) {
      return Damaged(key, "its branch is missing or stands elsewhere");
    }
    (head->second.*expected).clear();
    return Status::Ok();
  }

  Status CheckNumber(std::string_view key, std::string_view name) {
    const auto head = heads_.find(GetBig(key.substr(1)));
    CAIRN_ASSIGN_OR_RETURN(const auto record, index_.Get('B' + std::string(name)));
    if (head == heads_.end() || !record.has_value()) return Damaged(key, "its branch is missing");
    head->second.named = true;
    return Status::Ok();
  }

  Status NodeOrChunk(std::string_view key, std::string_view value) {
    if (key.size() == kIdKeyBytes) {
      CAIRN_ASSIGN_OR_RETURN(node_, GetNode(key, value));
      return Status::Ok();
    }
    if (node_ == nullptr) return Damaged(key, "a chunk without its node");
    const Status status = AddChunk(key, value, node_.get());
    whole_ = whole_ && status.ok();
    return status;
  }

  void FinishNode() {
    const std::unique_ptr<Node> node = std::move(node_);
    if (node == nullptr) return;
    const std::string key = Key('N', node->id);
    const Node::Flushed said = node->flushed;
    MarkFlushed(node.get());
    const bool misses_chunks = !node->flushed.SameChunks(said);
    if (whole_ && misses_chunks) Bad(key, "chunks are missing");
    if (whole_ && !misses_chunks) Take(CheckNode(key, *node));
    ++namespaces_[node->ns].nodes;
    nodes_[node->id] = {node->model,
                        node->parent,
                        node->lanes[kTokenLane].start,
                        node->lanes[kTokenLane].end,
                        node->lanes.size(),
                        node->kv_gone,
                        node->untrimmed};
    for (size_t i = 0; i < node->lanes.size(); ++i) {
      uint64_t position = node->lanes[i].start;
      for (const Extent& extent : node->lanes[i].extents) {
        if (extent.begin != position) break;
        position += extent.count;
        Use(*node, static_cast<uint32_t>(i), extent.place, extent.begin, extent.count);
      }
      if (whole_ && misses_chunks && position != node->lanes[i].end) {
        Bad(key,
            "lane " + std::to_string(i) + " has a gap at position " + std::to_string(position));
      }
    }
    for (const Mark& mark : node->samplers) Use(*node, kSamplerLane, mark.place, mark.position, 1);
    for (const Mark& mark : node->metadata) {
      Use(*node, kMetadataLane, mark.place, mark.position, 1);
    }
    for (const Mark& mark : node->derived) {
      used_tables_.try_emplace(mark.place.table, UsedTable{.node = node->id}).first->second.bytes +=
          mark.place.Share(1);
    }
    whole_ = true;
  }

  void Use(const Node& node, uint32_t lane, const Place& place, uint64_t begin, uint32_t count) {
    if (place.log.segment != 0) return UseSegment(node, lane, place.log.segment, count);
    if (!place.in_table()) return;
    used_tables_.try_emplace(place.table, UsedTable{.node = node.id}).first->second.bytes +=
        place.Share(count);
    sealed_(place.table,
            {.node = place.FragmentNode(node.id), .begin = begin, .lane = lane, .count = count});
  }

  void UseSegment(const Node& node, uint32_t lane, uint64_t segment, uint32_t count) {
    const auto model = lane_bytes_of_model_.find(node.model);
    const bool is_lane = model != lane_bytes_of_model_.end() && lane < model->second.size();
    segments_.Reserve(1);
    segments_.Count(segment, is_lane ? count * model->second[lane] : 1,
                    is_lane && lane != kTokenLane ? 1 : 0, 1);
  }

  Status CheckRef(std::string_view key) {
    const uint64_t at = GetBig(key.substr(1, 8));
    CAIRN_ASSIGN_OR_RETURN(const Ref ref, GetRef(key));
    const auto node = nodes_.find(at);
    if (node == nodes_.end()) return Damaged(key, "its node is missing");
    if (!node->second.farthest.has_value()) node->second.farthest = ref.position;
    if (ref.kind == Ref::kHead) {
      const auto head = heads_.find(ref.id);
      if (head == heads_.end() || head->second.node != at || head->second.length != ref.position) {
        return Damaged(key, "its branch is missing or elsewhere");
      }
      head->second.referred = true;
      return Status::Ok();
    }
    const auto child = nodes_.find(ref.id);
    if (child == nodes_.end() || child->second.parent != at ||
        child->second.start != ref.position) {
      return Damaged(key, "the node that leaves here is missing or elsewhere");
    }
    child->second.referred = true;
    return Status::Ok();
  }

  void CheckModel(const std::string& key, uint64_t id, size_t lanes) {
    const auto model = lane_bytes_of_model_.find(id);
    if (model != lane_bytes_of_model_.end() && lanes == model->second.size()) return;
    Bad(key, "its model is missing or has other groups");
  }

  sstable::LsmIndex& index_;
  const std::function<void(uint64_t, const SealedRange&)>& sealed_;
  const std::function<void(const Status&)>& damaged_;
  std::unique_ptr<Node> node_;  // Being read.
  bool whole_ = true;           // So far.
  std::unordered_map<uint64_t, SeenNode> nodes_;
  std::unordered_map<uint64_t, SeenHead> heads_;
  std::map<std::string, Held, std::less<>> namespaces_;
  std::map<uint64_t, std::vector<uint64_t>> lane_bytes_of_model_;  // A position's.
  std::set<uint64_t> untrimmed_;
  std::set<uint64_t> tables_;
  std::map<uint64_t, UsedTable> used_tables_;
  SegmentUsages segments_;
  std::map<uint64_t, SegmentUsage> said_of_segments_;
};

}  // namespace

void TreeRecords::Check(sstable::LsmIndex& index, uint64_t counted_from,
                        const std::function<void(uint64_t, const SealedRange&)>& sealed,
                        const std::function<void(const Status&)>& damaged) {
  RecordCheck(&index, counted_from, sealed, damaged).Run();
}

}  // namespace cairn::engine
