// SPDX-License-Identifier: Apache-2.0
//
// Several changes as one: given to Store::Write (cairn/store.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/branch.h"
#include "cairn/branch_types.h"

namespace [[gnu::visibility("default")]] cairn {

class StoreCore;

// Several changes, to one or many branches: all of them or none, in one record, so a crash leaves
// all or none as well. Built on one thread, then given to Store::Write, which it may be several
// times. Adding a change checks nothing; Write checks all of them.
//
// At most kMaxBatchOps changes, and 4 MiB of tokens and KV in all, less where a log segment or half
// of hot_tail_bytes holds less; larger deltas are appended by themselves. All of it, names and
// states too, is one record of the log: kInvalidArgument when that would be larger than one may be.
// Deltas are borrowed, with all that they point to, until Write returns.
class WriteBatch {
 public:
  // A branch of the store, or one made earlier in the batch.
  struct Target {
    Target() = default;
    Target(const Branch& branch_in)  // NOLINT: by design
        : store(branch_in.core().get()), branch(branch_in.id()) {}
    Target(int created_in) : created(created_in) {}  // NOLINT: by design
    const StoreCore* store = nullptr;                // Which the branch belongs to.
    BranchId branch{};                               // The existing branch, or...
    int created = -1;  // ...the index that Create or Fork of this batch returned.
  };
  // One change, as it was added. For the library and for programs that look at what they built.
  struct Op {
    enum class Kind : uint8_t { kCreate, kFork, kAppend, kFill, kRewind, kRename, kDrop } kind{};
    Target target;  // kFork: what is forked.
    ModelId model{};
    uint64_t position = 0;  // kFork, kRewind.
    BranchOptions options;  // kCreate, kFork; kRename: name.
    Delta delta;            // kAppend, kFill.
    std::optional<uint64_t> expected_length{};
  };

  // The index of the new branch, for later use in the batch, counted by Create and Fork from 0 on.
  int Create(ModelId model, BranchOptions options);
  // As Branch::ForkAt; the index of the new branch.
  int Fork(Target from, uint64_t position, BranchOptions options);
  // As Branch::Append, of host memory. kConflict, naming the real length, unless the branch is
  // `expected_length` long at that point of the batch.
  void Append(Target to, const Delta& delta, std::optional<uint64_t> expected_length = {});
  void Rewind(Target branch, uint64_t length);  // As the members of Branch of the same names.
  void Rename(Target branch, std::string name);
  void Drop(Target branch);
  const std::vector<Op>& ops() const { return ops_; }

 private:
  std::vector<Op> ops_;
  int created_ = 0;  // By Create and Fork.
};

}  // namespace cairn
