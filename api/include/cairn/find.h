// SPDX-License-Identifier: Apache-2.0
//
// Store::FindPrefix looks for the longest prefix of a prompt that a branch holds. The caller gives
// token ids; the store looks in all branches of a namespace. docs/reuse.md goes from a prompt to a
// branch.
//
//   auto hit = store.FindPrefix({.model = model, .tokens = prompt, .lease_ns = 5'000'000'000});
//   if (hit->found()) auto chat = store.Fork(*hit, hit->restorable, {.name = "chat-43"});
//   store.Release(hit->lease);
//
// The calls, with what they cost and how they fail, are in cairn/store.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cairn/branch_types.h"
#include "cairn/model.h"

namespace [[gnu::visibility("default")]] cairn {

// Tokens of a block by which prefixes are looked for: shorter prefixes are not found at all.
inline constexpr uint64_t kPrefixBlock = 64;
// Nodes examined when several hold the same first tokens: the newest ones.
inline constexpr size_t kPrefixCandidates = 8;
// Namespaces of one query, PrefixQuery::ns included.
inline constexpr size_t kMaxQueryNamespaces = 16;
// Leases that may be held at once; beyond that a hit comes without one. Each takes about 200 bytes,
// and every change to a node looks up its leases. Each object (Objects::Exists) counts as one.
inline constexpr size_t kMaxLeases = 65'536;

// Names a lease. Numbers are not given again, and those of an earlier opening of the store name
// none.
enum class LeaseId : uint64_t {};

// A search. Everything that it points to is borrowed for the call.
struct PrefixQuery {
  ModelId model{};                    // State of other models, variants or shards is never found.
  std::span<const TokenId> tokens{};  // Up to 2^31 - 1.
  // Content of these tokens (images, audio), in order and within them. A prefix must have the same
  // spans with the same hashes.
  std::span<const ContentSpan> spans{};
  // The caller's namespace, and others that it may see. There is no "all". At most
  // kMaxQueryNamespaces together.
  std::string_view ns{};
  std::span<const std::string_view> also{};
  // Nanoseconds for which the hit stays as it is (Options::max_lease_ns at most): no eviction,
  // expiry or rewind takes it. A drop of the last branch that needs it does, or that branch's
  // rewind to before its own part; the lease is over then. 0: no lease.
  uint64_t lease_ns = 0;
  // Never touches the disk: kBusy when something that is needed is not in memory.
  bool memory_only = false;
  // Off: the answer is by hash alone, its ids are not read, and it gets no lease. Fork and Restore
  // confirm it.
  bool confirm = true;
  // On: what was appended with Delta::exact off counts, too.
  bool approximate = false;
};

// Where a branch has, or had, the first `matched` of the tokens. All lengths are positions. A plain
// value, which may be kept, copied and used from any thread. Only its lease holds content.
struct PrefixHit {
  // 0: nothing was found.
  NodeId node{};
  // Ids and content spans are the same up to here...
  uint64_t matched = 0;
  // ...and KV up to here can be restored, and a fork here has it.
  uint64_t restorable = 0;
  // The longest match of ids and spans that the search met, perhaps of another node, which may have
  // less KV or none. If it is another one it is by hash, not compared, and not held by the lease.
  struct Longest {
    NodeId node{};
    uint64_t matched = 0;
  } longest{};
  // Up to here no KV was appended with Delta::exact off.
  uint64_t exact = 0;
  // Ids and spans were compared, one by one.
  bool confirmed = false;
  // Everything that was appended before the call was looked at. Off: the index is being rebuilt, or
  // is behind; a better hit may exist.
  bool complete = true;
  // 0: none was asked for, the hit is not confirmed, max_leased_bytes or kMaxLeases are held, or
  // the store is read only: leases are the writer's.
  LeaseId lease{};

  // How Fork and Restore know that it is still true. Not for callers.
  struct Seen {
    uint64_t opening = 0, generation = 0, changes = 0;
    uint64_t digest[2] = {0, 0};
  } seen{};

  bool found() const { return node != NodeId{}; }
};

}  // namespace cairn
