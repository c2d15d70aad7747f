// SPDX-License-Identifier: Apache-2.0
//
// The knowledge of concurrent clients about their branches: every version that each has had, or may
// have had, with the beginning and end of its making and its acknowledged durability. It determines
// what may be found after a crash.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/store_state.h"

namespace cairn::sim {

using BranchName = StoreState::key_type;

// One state of a branch. Times are counts of beginnings and ends of calls.
struct Version {
  static constexpr uint64_t kNever = UINT64_MAX;
  std::shared_ptr<const BranchState> state;  // Null: the branch was not there, or no more.
  std::string name;
  uint64_t operation = 0;  // Versions of one operation are all there or none.
  uint64_t begin = 0;
  uint64_t applied = kNever;  // From then on everybody saw it, ...
  uint64_t end = kNever;      // ...and from then on it has a place in the order of changes.
  bool open = false;          // It is not known whether it was made.
  bool loses_kv = false;      // Made by a fork or rewind, which may keep less KV than exists.
  int acknowledged = -1;      // The highest Durability.
};

struct KnownBranch {
  uint32_t owner = 0;  // The only client that changes it.
  std::string ns;
  BranchId id{};
  std::vector<Version> versions;
  uint32_t holders = 0;  // Clients looking at it; it must not change meanwhile.
  bool damaged = false;  // The disk lied, and it cannot be read any more.

  const Version& last() const { return versions.back(); }
  bool exists() const { return !versions.empty() && last().state != nullptr; }
};

// The state read from a store, and its ids.
struct FoundBranch {
  BranchId id{};
  std::shared_ptr<const BranchState> state;  // Null: damaged.
};
using FoundBranches = std::map<BranchName, FoundBranch>;

class KnownBranches {
 public:
  const std::deque<KnownBranch>& all() const { return branches_; }
  KnownBranch& operator[](size_t index) { return branches_[index]; }
  size_t count(uint32_t owner) const;  // Counts those that exist.

  uint64_t Tick() { return ++clock_; }
  uint64_t NewOperation() { return ++operations_; }
  // One that does not exist yet. Names are never used twice.
  size_t Add(uint32_t owner, const std::string& ns);
  void RecordName(const BranchName& name, size_t index) { names_[name] = index; }

  // Everything that was applied before `time` is safe so far.
  void Acknowledge(uint64_t time, Durability level);

  // Whether these may be found when everything acknowledged at `level` survived; what is wrong with
  // them, or nothing. With `lied`, older versions may be found as well, in any combination. A copy
  // has what was made before `from`, and nothing of what began after `until`.
  std::string Compare(const FoundBranches& found, Durability level, bool lied) const;
  std::string CompareCopy(const FoundBranches& found, uint64_t from, uint64_t until) const;
  // The same, and from now on that is the known state.
  std::string Adopt(const FoundBranches& found, Durability level, bool lied);
  // Whether the branch was in this state once.
  bool WasOnce(const BranchName& name, const BranchState& state) const;
  // Whether that is a state it may be in: since the last acknowledged at `level`.
  bool MayBe(size_t index, const BranchName& name, const BranchState& state,
             Durability level) const;

 private:
  struct Range {
    size_t first = 0, last = 0;
  };
  const FoundBranch* Find(size_t index, const FoundBranches& found, BranchName* name) const;
  std::string Match(const FoundBranches& found, const std::vector<size_t>& lowest,
                    std::vector<Range>* ranges) const;
  std::string CheckOrder(const std::vector<Range>& ranges) const;
  std::vector<size_t> Lowest(Durability level) const;

  std::deque<KnownBranch> branches_;  // Referred to while others are added.
  std::map<BranchName, size_t> names_;
  uint64_t clock_ = 0, operations_ = 0;
};

}  // namespace cairn::sim
