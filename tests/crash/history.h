// SPDX-License-Identifier: Apache-2.0
//
// A store driven by random operations, with a memory of what it must look like after each of them.
// KV is a function of token and position, so what a branch must hold follows from its tokens.
//
// Two models: branches of TinyModel lose KV to a cap of their namespace; those of MixedModel, full
// attention beside a window and recurrent states, lose none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cairn/store.h"

namespace cairn::crash {

ModelSpec TinyModel();
ModelSpec MixedModel();
// What KV holds at a place.
std::byte KvByte(TokenId token, uint64_t position, uint32_t group, uint32_t layer, uint32_t plane,
                 uint32_t head, uint32_t byte);

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
  // Null: no group has positions.
  const KvView* view() const { return groups_.empty() ? nullptr : &view_; }

 private:
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
  // As a fork or rewind leaves it: of KV no more than `kept` tells.
  void Cut(uint64_t length);
  void CutKv(const std::vector<uint64_t>& kept);
  // Those of `rows` that every other group reaches.
  std::set<uint64_t> ReachedRows() const;
  bool operator==(const BranchState& other) const;
};
// By namespace and name: "m" has the branches of MixedModel, "" the others.
using StoreState = std::map<std::pair<std::string, std::string>, BranchState>;

// Reads a whole store back. Fails the way a user would see it: a Status of the store's, or one that
// begins with kWrongContent.
inline constexpr const char* kWrongContent = "CONTENT: ";
Result<StoreState> ReadStore(const Store& store);

// Drives a store. States are kept from `first` on: states[i] is that after i operations.
class History {
 public:
  History(uint64_t seed, StoreState start)
      : random_(seed),
        prefix_("r" + std::to_string(seed % 100000) + "."),
        states_{std::move(start)} {}
  // One random operation, or a few. The expected state is noted before each is done.
  Status Step(Store& store);
  // The store was closed and opened, or flushed: nothing so far may be lost any more.
  void AcknowledgeAll() { acknowledged_ = started(); }
  size_t started() const { return states_.size() - 1; }
  size_t acknowledged() const { return acknowledged_; }  // At kPower.
  const std::vector<StoreState>& states() const { return states_; }
  // Whether this is the state after first..last operations, or any number between.
  bool Has(const StoreState& state, size_t first, size_t last) const;
  void set_ack_level(Durability level) { ack_level_ = level; }

  // The newest copy of the store, made or being made.
  struct Copy {
    std::string path;
    size_t state = 0;   // What it must hold, ...
    bool done = false;  // ...and open, when this is set.
  };
  const std::optional<Copy>& copy() const { return copy_; }

 private:
  using Name = StoreState::key_type;

  Status Begin(Store& store);
  Status Append(Store& store, StoreState* next);
  Status AppendJoined(Store& store, StoreState* next);
  Status CommitDraft(Store& store, StoreState* next);
  Status ForkOne(Store& store, StoreState* next);
  Status RewindOne(Store& store, StoreState* next);
  Status RenameOne(Store& store, StoreState* next);
  Status FillOne(Store& store, const StoreState& next);
  Status DropOne(Store& store, StoreState* next);
  Status WriteTwo(Store& store, StoreState* next);
  Status MakeCopy(Store& store);
  void Start(StoreState next);
  void Acknowledge(Durability level) {
    if (level >= ack_level_) AcknowledgeAll();
  }
  // Adds tokens to the state, and tells which KV comes with them.
  KvMemory Grow(BranchState* state, uint64_t count, bool samples);
  Name Pick(const StoreState& state);
  Durability Level();
  uint64_t Below(uint64_t limit) { return random_() % limit; }

  std::string NewName() { return prefix_ + std::to_string(next_name_++); }

  std::mt19937_64 random_;
  const std::string prefix_;  // Names of one run do not collide with those of the run before.
  std::vector<StoreState> states_;
  size_t acknowledged_ = 0;
  Durability ack_level_ = Durability::kPower;
  uint64_t next_name_ = 0;
  std::optional<Copy> copy_;
};

}  // namespace cairn::crash
