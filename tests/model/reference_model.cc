// SPDX-License-Identifier: Apache-2.0
#include "tests/model/reference_model.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/core/check.h"

namespace cairn::testing {

bool NeedsRow(const LayerGroup& group, uint64_t length, uint64_t row) {
  const RetentionRule& rule = group.retention;
  if (row >= length) return false;
  switch (rule.kind) {
    case Retention::kAll: return true;
    case Retention::kWindow: return row + rule.window >= length || row < rule.sinks;
    case Retention::kChunkLocal: return row / rule.chunk == length / rule.chunk;
    case Retention::kCheckpoint: return row + 1 == length;
    case Retention::kPerRequest: return row == 0;
  }
  return false;
}

void ModelBranch::Cut(uint64_t length) {
  positions.resize(length);
  for (size_t group = 0; group < kv_lengths.size(); ++group) CutKv(group, length);
  samplers.erase(samplers.upper_bound(length), samplers.end());
  metadata.erase(metadata.upper_bound(length), metadata.end());
  while (!spans.empty() && spans.back().begin >= length) spans.pop_back();
  if (!spans.empty()) spans.back().end = std::min(spans.back().end, length);
}

bool ModelBranch::MayCut(uint64_t position) const {
  if (position > length()) return false;
  return std::none_of(spans.begin(), spans.end(), [&](const ContentSpan& span) {
    return span.atomic && span.begin < position && position < span.end;
  });
}

std::vector<ContentSpan> ModelBranch::SpansIn(uint64_t begin, uint64_t end) const {
  std::vector<ContentSpan> found;
  for (const ContentSpan& span : spans) {
    if (span.begin < end && span.end > begin) found.push_back(span);
  }
  return found;
}

void ModelBranch::CutKv(size_t group, uint64_t length) {
  for (uint64_t at = length; at < positions.size(); ++at) positions[at].kv[group].reset();
  kv_lengths[group] = std::min(kv_lengths[group], length);
}

uint64_t ModelBranch::LastLength(const ModelSpec& spec, uint64_t at_most, const HasRow& has) const {
  for (uint64_t length = at_most; length > 0; --length) {
    bool all = true;
    for (size_t group = 0; group < spec.groups.size(); ++group) {
      for (uint64_t row = 0; row < length && !spec.groups[group].optional; ++row) {
        all &= !NeedsRow(spec.groups[group], length, row) || has(group, row);
      }
    }
    if (all) return length;
  }
  return 0;
}

uint64_t ModelBranch::CommonLength(const ModelSpec& spec, uint64_t at_most) const {
  return LastLength(spec, at_most,
                    [&](size_t group, uint64_t row) { return row < kv_lengths[group]; });
}

uint64_t ModelBranch::RestorableLength(const ModelSpec& spec, uint64_t at_most) const {
  return LastLength(spec, at_most, [&](size_t group, uint64_t row) {
    return positions[row].kv[group].has_value();
  });
}

bool ReferenceModel::HasName(const std::string& ns, const std::string& name) const {
  for (const auto& [id, branch] : branches_) {
    if (!name.empty() && branch.name == name && branch.ns == ns) return true;
  }
  return false;
}

void ReferenceModel::Create(uint64_t id, const std::string& name, const std::string& ns,
                            const Keep& keep, size_t model) {
  ModelBranch branch;
  branch.name = name;
  branch.ns = ns;
  branch.kv_lengths = branch.kv_floors = std::vector<uint64_t>(groups_);
  branch.keep = keep;
  branch.model = model;
  CAIRN_CHECK(branches_.emplace(id, std::move(branch)).second);
}

void ReferenceModel::Append(uint64_t id, const std::vector<TokenId>& tokens) {
  ModelNode& node = NodeToExtend(id);
  ModelBranch& branch = branches_.at(id);
  for (const TokenId token : tokens) {
    branch.positions.push_back({.token = token, .id = next_position_++, .kv = {}});
  }
  node.ends[0] = branch.length();
}

void ReferenceModel::AddKv(uint64_t id, size_t group, uint64_t begin, uint64_t count,
                           uint64_t seed) {
  if (count == 0) return;
  ModelBranch& branch = branches_.at(id);
  const uint64_t end = begin + count;
  if (end > branch.kv_lengths[group]) NodeToExtend(id).ends[1 + group] = end;
  for (uint64_t at = begin; at < end; ++at) branch.positions.at(at).kv[group] = seed;
  branch.kv_lengths[group] = std::max(branch.kv_lengths[group], end);
}

void ReferenceModel::Fork(uint64_t source, uint64_t position, uint64_t id, const std::string& name,
                          const std::string& ns, const Keep& keep) {
  ModelBranch copy = branches_.at(source);
  for (ModelPosition& one : copy.positions) one.kv_may_be_gone |= MayEvict(branches_.at(source));
  copy.name = name;
  copy.ns = ns;
  copy.keep = keep;
  copy.Cut(position);
  copy.kv_floors = copy.kv_lengths;
  copy.node = NodeAt(copy.node, position, &copy.kv_floors);
  CAIRN_CHECK(branches_.emplace(id, std::move(copy)).second);
}

void ReferenceModel::Rewind(uint64_t id, uint64_t length) {
  ModelBranch& branch = branches_.at(id);
  const auto node = nodes_.find(branch.node);
  const bool in_place = node != nodes_.end() && node->second.owner == id &&
                        length >= node->second.starts[0] &&
                        branch.length() == node->second.ends[0] && !Needed(branch.node, length, id);
  branch.Cut(length);
  branch.kv_floors = branch.kv_lengths;
  if (in_place) {
    ModelNode& cut = node->second;
    for (size_t lane = 0; lane < cut.ends.size(); ++lane) {
      cut.ends[lane] = std::max(cut.starts[lane], std::min(cut.ends[lane], length));
    }
  } else {
    branch.node = NodeAt(branch.node, length, &branch.kv_floors);
  }
}

void ReferenceModel::SetKeep(uint64_t id, const Keep& keep) {
  ModelBranch& branch = branches_.at(id);
  for (ModelPosition& one : branch.positions) one.kv_may_be_gone |= MayEvict(branch);
  branch.keep = keep;
}

NamespacePolicy ReferenceModel::Policy(const std::string& ns) const {
  const auto policy = policies_.find(ns);
  return policy == policies_.end() ? NamespacePolicy() : policy->second;
}

bool ReferenceModel::MayEvict(const ModelBranch& branch) const {
  return !branch.keep.pinned && Policy(branch.ns).evict.value_or(Evict::kNever) != Evict::kNever;
}

// ---------------------------------------------------------------- nodes

std::vector<uint64_t> ReferenceModel::Lengths(const ModelBranch& branch) const {
  std::vector<uint64_t> lengths{branch.length()};
  lengths.insert(lengths.end(), branch.kv_lengths.begin(), branch.kv_lengths.end());
  return lengths;
}

uint64_t ReferenceModel::NodeAt(uint64_t node, uint64_t position,
                                std::vector<uint64_t>* kv_lengths) const {
  while (node != 0 && position <= nodes_.at(node).starts[0]) {
    for (size_t group = 0; group < groups_; ++group) {
      (*kv_lengths)[group] = std::min((*kv_lengths)[group], nodes_.at(node).starts[1 + group]);
    }
    node = nodes_.at(node).parent;
  }
  return node;
}

// Something other than this branch reaches beyond the position.
bool ReferenceModel::Needed(uint64_t node, uint64_t position, uint64_t but_by) const {
  for (const auto& [id, branch] : branches_) {
    for (uint64_t at = branch.node, end = branch.length(); at != 0;) {
      if (at == node && end > position && (id != but_by || branch.node != node)) return true;
      end = nodes_.at(at).starts[0];
      at = nodes_.at(at).parent;
    }
  }
  return false;
}

ModelNode& ReferenceModel::NodeToExtend(uint64_t id) {
  ModelBranch& branch = branches_.at(id);
  const std::vector<uint64_t> lengths = Lengths(branch);
  const auto node = nodes_.find(branch.node);
  if (node != nodes_.end() && node->second.owner == id && node->second.ends == lengths) {
    return node->second;
  }
  Forget();
  ModelNode made{.parent = branch.node,
                 .owner = id,
                 .ns = branch.ns,
                 .model = branch.model,
                 .starts = lengths,
                 .ends = lengths};
  branch.node = next_node_++;
  return nodes_.emplace(branch.node, std::move(made)).first->second;
}

// Only so that the map does not grow for ever.
void ReferenceModel::Forget() {
  if (nodes_.size() < 256 || next_node_ % 256 != 0) return;
  std::map<uint64_t, ModelNode> reached;
  for (const auto& [id, branch] : branches_) {
    for (uint64_t at = branch.node; at != 0; at = nodes_.at(at).parent) {
      if (!reached.emplace(at, nodes_.at(at)).second) break;
    }
  }
  nodes_ = std::move(reached);
}

ReferenceModel::Reached ReferenceModel::Reach(const std::vector<ModelSpec>& specs) const {
  Reached reached;
  std::set<uint64_t> nodes, positions;
  std::set<std::tuple<uint64_t, size_t, uint64_t>> rows;
  for (const auto& [id, branch] : branches_) {
    const std::vector<LayerGroup>& groups = specs[branch.model].groups;
    for (const ModelPosition& one : branch.positions) {
      if (positions.insert(one.id).second) reached.raw_bytes += sizeof(TokenId);
      for (size_t group = 0; group < groups.size(); ++group) {
        if (!one.kv[group] || !rows.emplace(one.id, group, *one.kv[group]).second) continue;
        reached.raw_bytes += groups[group].token_bytes();
      }
    }
    for (uint64_t at = branch.node; at != 0; at = nodes_.at(at).parent) {
      if (!nodes.insert(at).second) break;
      const ModelNode& node = nodes_.at(at);
      uint64_t bytes = (node.ends[0] - node.starts[0]) * sizeof(TokenId);
      for (size_t group = 0; group < groups.size(); ++group) {
        bytes += (node.ends[1 + group] - node.starts[1 + group]) * groups[group].token_bytes();
      }
      reached.tokens_on_nodes += node.ends[0] - node.starts[0];
      reached.raw_bytes_on_nodes += bytes;
    }
  }
  reached.nodes = nodes.size();
  reached.tokens = positions.size();
  return reached;
}

}  // namespace cairn::testing
