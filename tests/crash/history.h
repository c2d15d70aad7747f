// SPDX-License-Identifier: Apache-2.0
//
// A store driven by random operations, with a memory of what it must look like after each of them.
// KV is a function of token and position, so what a branch must hold follows from its tokens.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cairn/store.h"

namespace cairn::crash {

ModelSpec TinyModel();
// What TinyModel's KV holds at a place.
std::byte KvByte(TokenId token, uint64_t position, uint32_t layer, uint32_t plane, uint32_t head,
                 uint32_t byte);

// Contiguous KV memory of some positions, [layer][plane][position][head][row], as a view.
class KvMemory {
 public:
  KvMemory(const ModelSpec& model, uint64_t position, uint64_t count);
  void Fill(std::span<const TokenId> tokens);  // tokens[i] is at position + i.
  bool Matches(std::span<const TokenId> tokens) const;
  const KvView& view() const { return view_; }

 private:
  template <typename Visit>
  void ForEach(std::span<const TokenId> tokens, Visit&& visit) const;
  const ModelSpec model_;
  const uint64_t position_, count_;
  std::vector<std::byte> bytes_;
  std::vector<std::vector<std::byte*>> bases_;
  std::vector<PlaneView> planes_;
  GroupView group_;
  KvView view_;
};

struct BranchState {
  std::vector<TokenId> tokens;
  uint64_t kv_length = 0;
  bool operator==(const BranchState&) const = default;
};
using StoreState = std::map<std::string, BranchState>;  // By name.

// Reads a whole store back. Fails the way a user would see it: a Status, or wrong KV bytes.
Result<StoreState> ReadStore(const Store& store);

// Drives a store. States are kept from `first` on: states[i] is that after i operations.
class History {
 public:
  History(uint64_t seed, StoreState start)
      : random_(seed),
        prefix_("r" + std::to_string(seed % 100000) + "."),
        states_{std::move(start)} {}
  // One random operation. The expected state is noted before it is done.
  Status Step(Store& store);
  size_t started() const { return states_.size() - 1; }
  size_t acknowledged() const { return acknowledged_; }  // At kPower.
  const std::vector<StoreState>& states() const { return states_; }
  // Whether this is the state after first..last operations, or any number between.
  bool Has(const StoreState& state, size_t first, size_t last) const;
  void set_ack_level(Durability level) { ack_level_ = level; }

 private:
  Status Append(Store& store, StoreState* next);
  Status ForkOne(Store& store, StoreState* next);
  Status RewindOne(Store& store, StoreState* next);
  Status FillOne(Store& store, const StoreState& next);
  Status DropOne(Store& store, StoreState* next);
  Status WriteTwo(Store& store, StoreState* next);
  void Start(StoreState next);
  const std::string& Pick(const StoreState& state);
  Durability Level();
  uint64_t Below(uint64_t limit) { return random_() % limit; }

  std::string NewName() { return prefix_ + std::to_string(next_name_++); }

  std::mt19937_64 random_;
  const std::string prefix_;  // Names of one run do not collide with those of the run before.
  std::vector<StoreState> states_;
  size_t acknowledged_ = 0;
  Durability ack_level_ = Durability::kPower;
  uint64_t next_name_ = 0;
};

}  // namespace cairn::crash
