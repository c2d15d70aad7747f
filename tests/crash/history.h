// SPDX-License-Identifier: Apache-2.0
//
// A store driven by random operations, with a memory of what it must look like after each of them.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cairn/store.h"
#include "tests/sim/store_state.h"

namespace cairn::crash {

using sim::BranchState;
using sim::KvMemory;
using sim::kWrongContent;
using sim::MixedModel;
using sim::ReadStore;
using sim::StoreState;
using sim::TinyModel;

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
    size_t state = 0;   // Its required content, ...
    bool done = false;  // ...and open, when this is set.
  };
  const std::optional<Copy>& copy() const { return copy_; }

 private:
  using Name = StoreState::key_type;

  Status Begin(Store& store);
  Status Append(Store& store, StoreState* next);
  Status AppendCoalesced(Store& store, StoreState* next);
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
  // Adds tokens to the state, and returns the KV that comes with them.
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
