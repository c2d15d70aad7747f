// SPDX-License-Identifier: Apache-2.0
#include "tests/model/reference_model.h"

#include "base/core/check.h"

namespace cairn::testing {

uint64_t ModelBranch::kv_length(size_t group) const {
  uint64_t length = 0;
  while (length < positions.size() && positions[length].kv[group].has_value()) ++length;
  return length;
}

void ModelBranch::Cut(uint64_t length) {
  positions.resize(length);
  samplers.erase(samplers.upper_bound(length), samplers.end());
}

bool ReferenceModel::HasName(const std::string& ns, const std::string& name) const {
  for (const auto& [id, branch] : branches_) {
    if (!name.empty() && branch.name == name && branch.ns == ns) return true;
  }
  return false;
}

void ReferenceModel::Create(uint64_t id, const std::string& name, const std::string& ns) {
  CAIRN_CHECK(!branches_.contains(id));
  branches_[id] = {.name = name, .ns = ns, .positions = {}, .samplers = {}};
}

void ReferenceModel::Append(uint64_t id, const std::vector<TokenId>& tokens) {
  for (const TokenId token : tokens) {
    branches_.at(id).positions.push_back(
        {.token = token, .kv = std::vector<std::optional<uint64_t>>(groups_)});
  }
}

void ReferenceModel::AddKv(uint64_t id, size_t group, uint64_t count, uint64_t seed) {
  ModelBranch& branch = branches_.at(id);
  const uint64_t begin = branch.kv_length(group);
  for (uint64_t i = 0; i < count; ++i) branch.positions.at(begin + i).kv[group] = seed;
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
