// SPDX-License-Identifier: Apache-2.0
//
// What a store must show, kept in the simplest way: every branch has a vector of positions of its
// own, each with its token and, by layer group, the seed of its KV. No sharing, no nodes, no log.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/branch.h"

namespace cairn::testing {

// The retention rules (cairn/model.h), row by row: whether whoever goes on after `length` tokens
// needs the row.
bool NeedsRow(const LayerGroup& group, uint64_t length, uint64_t row);

struct ModelPosition {
  TokenId token = 0;
  std::vector<std::optional<uint64_t>> kv;  // Seed by group; nothing: none was given.
};

struct ModelBranch {
  std::string name, ns;
  std::vector<ModelPosition> positions;
  std::vector<uint64_t> kv_lengths;  // By group: behind the last position with KV, or less.
  // States by the number of tokens they belong after.
  std::map<uint64_t, uint64_t> samplers;

  uint64_t length() const { return positions.size(); }
  uint64_t kv_length(size_t group) const { return kv_lengths[group]; }
  void Cut(uint64_t length);
  void CutKv(size_t group, uint64_t length);

  // The last position up to `at_most` for which all rows that are needed lie below the kv_lengths
  // of the groups that are not optional; and at which they are there.
  uint64_t CommonLength(const ModelSpec& spec, uint64_t at_most) const;
  uint64_t RestorableLength(const ModelSpec& spec, uint64_t at_most) const;

 private:
  using HasRow = std::function<bool(size_t group, uint64_t row)>;
  uint64_t LastLength(const ModelSpec& spec, uint64_t at_most, const HasRow& has) const;
};

class ReferenceModel {
 public:
  explicit ReferenceModel(size_t groups) : groups_(groups) {}

  std::map<uint64_t, ModelBranch>& branches() { return branches_; }
  size_t groups() const { return groups_; }
  bool HasName(const std::string& ns, const std::string& name) const;

  void Create(uint64_t id, const std::string& name, const std::string& ns);
  void Append(uint64_t id, const std::vector<TokenId>& tokens);
  // Positions [begin, begin + count) of the group get KV of this seed.
  void AddKv(uint64_t id, size_t group, uint64_t begin, uint64_t count, uint64_t seed);
  void Fork(uint64_t source, uint64_t position, uint64_t id, const std::string& name,
            const std::string& ns);
  void Rewind(uint64_t id, uint64_t length) { branches_.at(id).Cut(length); }
  void Drop(uint64_t id) { branches_.erase(id); }

 private:
  const size_t groups_;
  std::map<uint64_t, ModelBranch> branches_;
};

}  // namespace cairn::testing
