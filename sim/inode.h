// SPDX-License-Identifier: Apache-2.0
//
// The simulated disk's state of one file or directory: the view of its users, the content of the
// medium, and between the two the changes that a crash may lose, in their order.
//
// A change that became durable stays in that order until all older ones are durable: if an older
// one survives a crash it must not override it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/io/cow_bytes.h"

namespace cairn::io {

inline constexpr uint64_t kSimSectorBytes = 512;

// A write, truncation or allocation that is not known to be on the medium.
struct SimChange {
  enum class Kind : uint8_t { kWrite, kTruncate, kAllocate };
  enum class State : uint8_t { kInFlight, kCompleted, kDurable };

  uint64_t id = 0;  // Grows over all changes of a disk.
  Kind kind = Kind::kWrite;
  State state = State::kInFlight;
  uint64_t completed_at = 0;  // On the disk's count of completions; 0 while in flight.
  // kWrite: whole sectors as they looked afterwards (a medium has no smaller unit, so a sector that
  // survives brings along what older writes had put into it), save that the last may end at the
  // end of the file.
  uint64_t offset = 0;
  std::shared_ptr<const std::vector<std::byte>> image;
  uint64_t bytes = 0;  // kTruncate, kAllocate: the length asked for.

  bool ApplyTo(CowBytes& content) const;
};

struct SimInode;
using SimEntries = std::map<std::string, std::shared_ptr<SimInode>>;

// One atomic change of names: a creation, a further name, a removal, or a rename (which is both).
struct SimEntryChange {
  uint64_t id = 0;
  bool durable = false;
  std::shared_ptr<SimInode> removed;     // Null: nothing.
  std::weak_ptr<SimInode> removed_from;  // Often the directory that keeps this change.
  std::string removed_name;
  std::shared_ptr<SimInode> added;  // To the directory that keeps this change; null: nothing.
  std::string added_name;
};

struct SimInode {
  SimInode(uint64_t inode_number, bool directory, std::shared_ptr<uint64_t> used)
      : number(inode_number), is_directory(directory), used_bytes(std::move(used)) {}
  ~SimInode() { *used_bytes -= content.allocated_bytes(); }

  const uint64_t number;
  const bool is_directory;
  const std::shared_ptr<uint64_t> used_bytes;  // The whole disk's.
  bool locked = false;

  // A file.
  CowBytes content;  // Change it through Update only.
  CowBytes durable_content;
  std::deque<SimChange> changes;

  // A directory.
  SimEntries entries;
  SimEntries durable_entries;
  std::deque<SimEntryChange> entry_changes;

  // Runs `update(content)` and keeps the books of used_bytes.
  template <typename Function>
  bool Update(Function update) {
    const uint64_t before = content.allocated_bytes();
    const bool done = update(content);
    *used_bytes += content.allocated_bytes() - before;
    return done;
  }

  SimChange* FindChange(uint64_t id);
  // Moves the oldest changes that are durable into durable_content.
  void SettleChanges();
  void SettleEntryChanges(uint64_t before = UINT64_MAX);  // Those with a lower id.
};

// Applies the change to the names of `directory` and of the directory that it removes from; `names`
// returns them: the current names, the durable ones, or those of a clone.
template <typename NamesOf>
void ApplyEntryChange(const SimEntryChange& change, SimInode& directory, NamesOf names) {
  if (const auto source = change.removed_from.lock(); source != nullptr) {
    SimEntries& from = names(*source);
    const auto found = from.find(change.removed_name);
    // Another file may have the name by now, or the creation may have been lost.
    if (found != from.end() && found->second == change.removed) from.erase(found);
  }
  if (change.added != nullptr) names(directory)[change.added_name] = change.added;
}

}  // namespace cairn::io
