// SPDX-License-Identifier: Apache-2.0
#include "tests/model/reference_model.h"

#include <algorithm>

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

void ReferenceModel::Create(uint64_t id, const std::string& name, const std::string& ns) {
  CAIRN_CHECK(!branches_.contains(id));
  branches_[id] = {.name = name,
                   .ns = ns,
                   .positions = {},
                   .kv_lengths = std::vector<uint64_t>(groups_),
                   .samplers = {}};
}

void ReferenceModel::Append(uint64_t id, const std::vector<TokenId>& tokens) {
  for (const TokenId token : tokens) {
    branches_.at(id).positions.push_back(
        {.token = token, .kv = std::vector<std::optional<uint64_t>>(groups_)});
  }
}

void ReferenceModel::AddKv(uint64_t id, size_t group, uint64_t begin, uint64_t count,
                           uint64_t seed) {
  if (count == 0) return;
  ModelBranch& branch = branches_.at(id);
  for (uint64_t i = 0; i < count; ++i) branch.positions.at(begin + i).kv[group] = seed;
  branch.kv_lengths[group] = std::max(branch.kv_lengths[group], begin + count);
}

void ReferenceModel::Fork(uint64_t source, uint64_t position, uint64_t id, const std::string& name,
                          const std::string& ns) {
  ModelBranch copy = branches_.at(source);
  copy.name = name;
  copy.ns = ns;
  copy.Cut(position);
  CAIRN_CHECK(branches_.emplace(id, std::move(copy)).second);
}

}  // namespace cairn::testing
