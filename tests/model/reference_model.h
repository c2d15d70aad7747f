// SPDX-License-Identifier: Apache-2.0
//
// The required behaviour of a store, in the simplest way: every branch has a vector of positions of
// its own, each with its token and, by layer group, the seed of its KV. No sharing, no log, no I/O,
// no counts: needed content is found by walking from the branches.
//
// Beside that it knows the nodes of a store that never joins or trims any, by the rule of ownership
// alone: a branch extends the node that it made, and only while it ends where that ends; else it
// makes a new one. They decide which KV a fork or rewind keeps (kv_floors), and how much a store
// holds. A store joins nodes when it likes, and trims those that reach beyond what needs them; then
// all that is known is that it keeps no more than a plain cut.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/branch.h"
#include "cairn/keep.h"

namespace cairn::testing {

// The retention rules (cairn/model.h), row by row: whether continuing after `length` tokens needs
// the row.
bool NeedsRow(const LayerGroup& group, uint64_t length, uint64_t row);

inline constexpr size_t kModelGroupsMax = 6;

// The seed of KV says whether it was given as exact (Delta::exact): one in eight is not.
inline bool IsExact(uint64_t seed) { return seed % 8 != 7; }

struct ModelPosition {
  TokenId token = 0;
  uint64_t id = 0;  // Names the one time that it was appended: forks share it.
  // Its KV was evictable once, so it may be gone. It is not taken back when KV is filled in.
  bool kv_may_be_gone = false;
  std::array<std::optional<uint64_t>, kModelGroupsMax> kv;  // Seed by group; nothing: none given.
};

struct ModelBranch {
  std::string name, ns;
  std::vector<ModelPosition> positions;
  std::vector<uint64_t> kv_lengths;  // By group: behind the last position with KV, or less.
  // States by the number of tokens they belong after.
  std::map<uint64_t, uint64_t> samplers, metadata;
  std::vector<ContentSpan> spans;
  Keep keep;
  size_t model = 0;  // A number of the caller's; forks take it over.
  // After a fork or rewind: of kv_lengths, what a store has with these very nodes.
  std::vector<uint64_t> kv_floors;
  uint64_t node = 0;  // 0: empty.

  uint64_t length() const { return positions.size(); }
  uint64_t kv_length(size_t group) const { return kv_lengths[group]; }
  void Cut(uint64_t length);
  void CutKv(size_t group, uint64_t length);
  // Whether it may be cut there: within it, and not inside an atomic span.
  bool MayCut(uint64_t position) const;
  std::vector<ContentSpan> SpansIn(uint64_t begin, uint64_t end) const;

  // Both give the last position up to `at_most` for which groups that are not optional have the
  // rows that it needs: CommonLength goes by kv_lengths, RestorableLength by each row.
  uint64_t CommonLength(const ModelSpec& spec, uint64_t at_most) const;
  uint64_t RestorableLength(const ModelSpec& spec, uint64_t at_most) const;

 private:
  using HasRow = std::function<bool(size_t group, uint64_t row)>;
  uint64_t LastLength(const ModelSpec& spec, uint64_t at_most, const HasRow& has) const;
};

// A stretch of positions. Lane 0 is the tokens, lane 1 + g the KV of group g.
struct ModelNode {
  uint64_t parent = 0, owner = 0;
  std::string ns;
  size_t model = 0;
  std::vector<uint64_t> starts, ends;
};

class ReferenceModel {
 public:
  explicit ReferenceModel(size_t groups) : groups_(groups) {}

  std::map<uint64_t, ModelBranch>& branches() { return branches_; }
  const std::map<uint64_t, ModelBranch>& branches() const { return branches_; }
  size_t groups() const { return groups_; }  // The same for all branches; some may be empty.
  bool HasName(const std::string& ns, const std::string& name) const;

  void Create(uint64_t id, const std::string& name, const std::string& ns, const Keep& keep = {},
              size_t model = 0);
  void Append(uint64_t id, const std::vector<TokenId>& tokens);
  // Positions [begin, begin + count) of the group get KV of this seed.
  void AddKv(uint64_t id, size_t group, uint64_t begin, uint64_t count, uint64_t seed);
  void Fork(uint64_t source, uint64_t position, uint64_t id, const std::string& name,
            const std::string& ns, const Keep& keep = {});
  void Rewind(uint64_t id, uint64_t length);
  void Drop(uint64_t id) { branches_.erase(id); }
  void SetKeep(uint64_t id, const Keep& keep);
  void SetPolicy(const std::string& ns, const NamespacePolicy& policy) { policies_[ns] = policy; }
  NamespacePolicy Policy(const std::string& ns) const;

  // A store with Evict::kNever, but for what its namespaces say.
  bool MayEvict(const ModelBranch& branch) const;

  // Needed content, found by walking from the branches.
  struct Reached {
    uint64_t nodes = 0;
    // Distinct positions that branches have; and those of the nodes they lie on, with what lies
    // there beyond the farthest of them.
    uint64_t tokens = 0, tokens_on_nodes = 0;
    uint64_t raw_bytes = 0, raw_bytes_on_nodes = 0;
  };
  Reached Reach(const std::vector<ModelSpec>& specs) const;

 private:
  std::vector<uint64_t> Lengths(const ModelBranch& branch) const;
  // The node that `position` lies on, and KV as far as it lies there or above.
  uint64_t NodeAt(uint64_t node, uint64_t position, std::vector<uint64_t>* kv_lengths) const;
  ModelNode& NodeToExtend(uint64_t id);
  bool Needed(uint64_t node, uint64_t position, uint64_t but_by) const;
  void Forget();

  const size_t groups_;
  std::map<uint64_t, ModelBranch> branches_;
  std::map<uint64_t, ModelNode> nodes_;
  std::map<std::string, NamespacePolicy> policies_;
  uint64_t next_position_ = 1, next_node_ = 1;
};

}  // namespace cairn::testing
