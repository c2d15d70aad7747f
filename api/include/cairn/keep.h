// SPDX-License-Identifier: Apache-2.0
//
// Eviction, and which content is kept at all. Nothing is ever evicted unless Options::evict, or the
// policy of a namespace, allows it.
//
// Eviction takes the least recently used branch (by appends, restores and forks) of the lowest
// priority first. First its KV goes, from the leaf up to where a branch that still has its KV needs
// it, and its tokens stay: reading them works as before, restoring KV is kEvicted, and Branch::Fill
// brings it back. When no KV is left to take and whole branches may go, they are dropped, in the
// same order. Nothing is evicted for an append or an object that has no room even in an empty
// store, or in an empty namespace: it is kNoSpace at once.
//
// A thread of the store does it. Each step is one record of the log, so a crash leaves a step whole
// or not at all; a long branch takes several steps, from its end up.
//
// These plain structs are given to Store::SetNamespace, Branch::SetKeep, Objects::SetPolicy and the
// calls that make branches, and come back in BranchInfo and NamespaceInfo.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cairn/status.h"

namespace [[gnu::visibility("default")]] cairn {

// How long a branch is kept.
struct Keep {
  bool pinned = false;   // Neither evicted nor expired.
  uint8_t priority = 0;  // The lower one is evicted first, however new.
  // Nanoseconds: the branch is dropped when it has been unused for this long. 0: the namespace's
  // ttl, if one is set when the branch is made; else never for that reason. The drop is logged, a
  // few seconds later at most. Each opening of the store for writing counts as a use, so that a
  // wrong clock, at this opening or an earlier one, drops nothing. So a store that is opened more
  // often than this expires nothing. Time goes by the monotonic clock while the store is open.
  uint64_t ttl_ns = 0;
  bool operator==(const Keep&) const = default;
};

// The content that may go when room is needed.
enum class Evict : uint8_t {
  kNever,     // A call that needs room, also to make a branch, is kNoSpace then.
  kKv,        // KV, recurrent states too; tokens, sampler states and branches stay.
  kBranches,  // KV first, then whole branches.
};

// Which KV of appends is kept. KV that is not kept is as if it had been shed (Ticket::kv_shed): the
// tokens are appended, kv_length stays, and Fill, or a later append, may bring it.
enum class Persist : uint8_t {
  kAlways,
  // Only KV of appends with AppendOptions::ends_turn, which bring it from kv_length on. While a
  // turn goes on, only its tokens are written.
  kTurnEnd,
  // Only KV of branches that were used before: forks, and branches that were forked or restored
  // (tokens or KV).
  kReused,
  kTokensOnly,  // None; Fill still attaches it.
};

// What is indexed of the branches of a namespace, if the store indexes at all.
enum class Index : uint8_t {
  kPrefix,  // Token ids from the beginning on: Store::FindPrefix finds them (cairn/find.h).
  kNone,    // Nothing.
  // Prefixes, and chunks: runs of 47 ids and more, at any position, that have exact KV. Costs some
  // 3 bytes of disk a token (docs/blend.md). While a namespace is set so, libraries that do not
  // know it refuse the store.
  kChunks,
};
inline constexpr Index kLastIndex = Index::kChunks;

// Rules for the branches of one namespace. The default of each field says nothing special, and a
// policy of defaults is as if none had been set.
struct NamespacePolicy {
  // A cap on the content of its branches: stored bytes of content in tables, raw bytes of KV and
  // tokens that are still in the log. Content belongs to the namespace of the branch that wrote it,
  // until nothing needs it any more. Appends beyond are kNoSpace with
  // StatusReason::kNamespaceQuota, or wait for eviction in the namespace. Where something may go,
  // that begins in the background from seven eighths on, and ends at three quarters.
  uint64_t max_bytes = UINT64_MAX;
  std::optional<Evict> evict{};  // Nothing: as Options::evict says.
  Persist persist = Persist::kAlways;
  // Keep::ttl_ns of branches that are made in it without one of their own.
  uint64_t ttl_ns = 0;
  // Set to index more than before, what the namespace holds is indexed from the next MANIFEST on.
  Index index = Index::kPrefix;
  bool operator==(const NamespacePolicy&) const = default;
};

// A namespace that has branches, or a policy.
struct NamespaceInfo {
  std::string name{};  // "" is the one of branches that name none.
  NamespacePolicy policy{};
  uint64_t branches = 0;  // Objects::Usage: objects, and puts under way.
  uint64_t bytes = 0;     // As max_bytes counts them.
};

}  // namespace cairn
