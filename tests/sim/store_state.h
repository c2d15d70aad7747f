// SPDX-License-Identifier: Apache-2.0
//
// The content of a store, read back whole and comparable. KV is a function of token and position,
// so the required content of a branch follows from its tokens.
//
// Two models: branches of TinyModel may lose KV to a cap of their namespace; those of MixedModel,
// full attention beside a window and recurrent states, lose none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cairn/store.h"

namespace cairn::sim {

inline constexpr const char* kMixedNamespace = "m";  // Has the branches of MixedModel, "" others.
inline constexpr size_t kStateGroup = 2;  // MixedModel has a recurrent state here and there.

ModelSpec TinyModel();
ModelSpec MixedModel();

// Contiguous KV memory, [group][layer][plane][position][head][row], as a view. Groups without
// positions are not part of it.
class KvMemory {
 public:
  struct Range {
    uint64_t position = 0, count = 0;
  };
  KvMemory(const ModelSpec& model, uint64_t position, uint64_t count);  // The same for all groups.
  KvMemory(const ModelSpec& model, std::vector<Range> ranges);          // One a group.
  KvMemory(KvMemory&&) = default;
  // `tokens` are those of the branch from position 0 on, as far as this reaches.
  void Fill(std::span<const TokenId> tokens);
  // Whether all rows are right; but those that nobody needs who goes on after `length` tokens may
  // be as this memory was made.
  bool Matches(std::span<const TokenId> tokens, uint64_t length = UINT64_MAX) const;
  std::span<std::byte> bytes() { return bytes_; }
  // Null: no group has positions.
  const KvView* view() const { return groups_.empty() ? nullptr : &view_; }

 private:
  void Expect(TokenId token, uint64_t position, uint32_t group, uint32_t layer, uint32_t plane,
              std::span<std::byte> row) const;
  template <typename Visit>
  void ForEachRow(std::span<const TokenId> tokens, Visit&& visit) const;
  const ModelSpec model_;
  const std::vector<Range> ranges_;
  std::vector<std::byte> bytes_;
  std::vector<std::vector<std::vector<std::byte*>>> bases_;  // By group, plane, layer.
  std::vector<std::vector<PlaneView>> planes_;
  std::vector<GroupView> groups_;
  KvView view_;
};

struct BranchState {
  bool mixed = false;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> kv_lengths;       // By group.
  std::set<uint64_t> rows;                // MixedModel: positions that have a recurrent state.
  std::map<uint64_t, uint64_t> samplers;  // Philox seeds by the number of tokens.

  ModelSpec model() const { return mixed ? MixedModel() : TinyModel(); }
  bool exact() const { return !mixed; }  // As its KV is given (Delta::exact).
  // As a fork or rewind leaves it: no more KV than `kept` says.
  void Cut(uint64_t length);
  void CutKv(const std::vector<uint64_t>& kept);
  // Those of `rows` that every other group reaches.
  std::set<uint64_t> ReachedRows() const;
  bool operator==(const BranchState& other) const;
};
// By namespace and name.
using State = std::shared_ptr<const BranchState>;
inline State Share(BranchState state) {
  return std::make_shared<const BranchState>(std::move(state));
}
using StoreState = std::map<std::pair<std::string, std::string>, BranchState>;

// Read a branch, or a whole store, back. Fail the way a user would see it: a Status of the store's,
// or one that begins with kWrongContent.
inline constexpr const char* kWrongContent = "CONTENT: ";
Result<BranchState> ReadBranch(const Branch& branch, const BranchInfo& info);
Result<StoreState> ReadStore(const Store& store);

// The message begins with kWrongContent.
Status WrongContent(const std::string& what, const BranchInfo& info);

SamplerState MakeSampler(uint64_t philox_seed);

}  // namespace cairn::sim
