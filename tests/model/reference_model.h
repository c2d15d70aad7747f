// SPDX-License-Identifier: Apache-2.0
//
// What a store must show, kept in the simplest way: every branch has a vector of positions of its
// own, each with its token and, by layer group, the seed of its KV. No sharing, no nodes, no log.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/branch.h"

namespace cairn::testing {

struct ModelPosition {
  TokenId token = 0;
  std::vector<std::optional<uint64_t>> kv;  // Seed by group; nothing: none was given.
};

struct ModelBranch {
  std::string name, ns;
  std::vector<ModelPosition> positions;
  // States by the number of tokens they belong after.
  std::map<uint64_t, uint64_t> samplers;

  uint64_t length() const { return positions.size(); }
  // Positions from 0 on that have KV of the group.
  uint64_t kv_length(size_t group) const;
  void Cut(uint64_t length);
};

class ReferenceModel {
 public:
  explicit ReferenceModel(size_t groups) : groups_(groups) {}

  std::map<uint64_t, ModelBranch>& branches() { return branches_; }
  size_t groups() const { return groups_; }
  bool HasName(const std::string& ns, const std::string& name) const;

  void Create(uint64_t id, const std::string& name, const std::string& ns);
  void Append(uint64_t id, const std::vector<TokenId>& tokens);
  // The next `count` positions of the group get KV of this seed.
  void AddKv(uint64_t id, size_t group, uint64_t count, uint64_t seed);
  void Fork(uint64_t source, uint64_t position, uint64_t id, const std::string& name,
            const std::string& ns);
  void Rewind(uint64_t id, uint64_t length) { branches_.at(id).Cut(length); }
  void Drop(uint64_t id) { branches_.erase(id); }

 private:
  const size_t groups_;
  std::map<uint64_t, ModelBranch> branches_;
};

}  // namespace cairn::testing
