// SPDX-License-Identifier: Apache-2.0
//
// What calls about branches (cairn/branch.h) take and return: ids, what an append adds, how a
// branch is kept. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/completion.h"
#include "cairn/keep.h"
#include "cairn/kv_view.h"
#include "cairn/model.h"
#include "cairn/options.h"

namespace [[gnu::visibility("default")]] cairn {

enum class BranchId : uint64_t {};  // Given by the store, stable for its life. 0 is none.
// A stretch of a path, which branches share. Given by the store; 0 is none.
enum class NodeId : uint64_t {};
using TokenId = uint32_t;  // Any number; the store does not interpret it.

// Content that token ids alone do not identify: an image, audio, a prompt embedding. A fork or a
// rewind within one that is not atomic shortens it; its hash stays that of the whole.
struct ContentSpan {
  uint64_t begin = 0, end = 0;  // Positions.
  uint64_t hash[2] = {0, 0};    // The caller's hash of the content, compared as it is.
  bool atomic = false;          // No fork or rewind inside it.
  bool operator==(const ContentSpan&) const = default;
};

// The generator of a sampler's random numbers: none, a counter-based generator by seed and offset,
// a Mersenne twister by its state in `blob`, or one that blob_name names. The store keeps it and
// computes nothing from it.
enum class GeneratorKind : uint8_t { kNone = 0, kPhilox = 1, kMt19937 = 2, kNamed = 3 };

// The sampler, so that the next token comes out the same. Every field is the caller's word and
// comes back as it was given.
struct SamplerState {
  GeneratorKind generator = GeneratorKind::kNone;
  uint64_t philox_seed = 0, philox_offset = 0;
  std::string blob_name{};  // kMt19937: empty; kNamed: whose state `blob` is.
  uint32_t blob_version = 0;
  std::vector<std::byte> blob{};
  double temperature = 1.0, top_p = 1.0, min_p = 0.0, repetition_penalty = 1.0;
  uint32_t top_k = 0;
  std::vector<float> last_logits{};  // Optional; of the last position, by token id.
  bool operator==(const SamplerState&) const = default;
};

// Bytes that a program keeps beside a position; the store does not interpret them.
struct AppMetadata {
  std::string content_type{};  // "application/msgpack", ...
  std::vector<std::byte> bytes{};
  bool operator==(const AppMetadata&) const = default;
};

// The content that one append adds; atomic. Pointers may be null. A description only: it owns
// nothing, and all that it points to lives as long as the call that takes it says.
//
// Without tokens and KV it sets a state, sampler, metadata or both, at the length that the branch
// has, 0 included: instead of what stood there. Other branches keep what they have; forks and
// rewinds to that length have it.
struct Delta {
  // The ids behind the branch's last one. Up to kMaxAppendTokens.
  std::span<const TokenId> tokens{};
  // Each group from its kv_length on; may lag behind the tokens. A group whose rule is not kAll may
  // also begin beyond its kv_length: what lies between is left out, a gap, and kv_length is then
  // where this view ends. A kPerRequest group: position 0 alone, once.
  const KvView* kv = nullptr;
  const SamplerState* sampler = nullptr;  // As it is after these tokens.
  const AppMetadata* metadata = nullptr;  // The application's, at the same position.
  std::span<const ContentSpan> spans{};   // Within the new tokens, in order.
  // `kv` is what the model computes for these tokens behind all tokens before them. False: it is an
  // approximation (taken from another context, or computed on top of KV that is one). The store
  // keeps the caller's word with the KV for as long as it has it, forks included; a restore counts
  // the approximate bytes that it delivers, and nothing approximate is ever taken for exact.
  bool exact = true;
};

// How an asynchronous append ends when buffers are full.
enum class Overload : uint8_t {
  kFail,  // kBusy at once.
  // Keep the tokens, drop the KV: kv_length stays, until Fill. kBusy only if there is no room for
  // the tokens alone: while the log waits for its next segment.
  kShedKv,
};

// How an append, a fill, a draft's commit or a batch is done. Each field says which of these look
// at it; the others ignore it.
struct AppendOptions {
  // What must be reached before the call returns, or its ticket is over. All of them.
  Durability durability = Durability::kProcess;
  // kConflict, naming the real length, when the branch is not this long: makes a retry after an
  // unknown outcome harmless. Appends, Fill and Commit; in a batch each append has its own.
  std::optional<uint64_t> expected_length{};
  // The last append of a turn: with Persist::kTurnEnd the one whose KV is kept. Appends, Commit,
  // batches.
  bool ends_turn = false;
  // Nanoseconds from the call; then kDeadlineExceeded (nothing was applied) or kUnknownOutcome. 0:
  // nothing is waited for (cairn/completion.h). All of them.
  uint64_t timeout_ns = UINT64_MAX;
  Overload overload = Overload::kFail;  // Append and Commit.
  bool exact = true;                    // Fill only: as Delta::exact.
  // For KV in GPU memory: an event of that device (a cudaEvent_t), recorded by the caller, after
  // which the KV may be read. The host waits for it, asynchronous calls on a thread of the store.
  // It lives until the call has returned, or the ticket is over. 0: it may be read at once. Append,
  // AppendSync and Fill; with a view of host memory kInvalidArgument.
  uintptr_t gpu_ready = 0;
  // Gets the completion, with `user_data`. Append, Commit, batches. Null: none. The queue is used
  // in the call alone, and need not outlive it.
  const CompletionQueue* queue = nullptr;
  uint64_t user_data = 0;  // As `queue`; the library does not interpret it.
  // Append and Commit: keeps the borrowed memory alive, so that no thread has to wait with it for
  // the ticket. The store drops this pointer when it does not read the memory any more: perhaps a
  // moment after the ticket is over, always before Close returns; of a draft that was copied also
  // not before its other handles are gone. Its deleter mostly runs on a thread of the store, and
  // must not call the store, nor throw.
  std::shared_ptr<const void> owner{};
};

// How a new branch is called and kept.
struct BranchOptions {
  std::string name{};  // Unique in its namespace; empty: unnamed. At most kMaxNameBytes, no NUL.
  std::string ns{};    // Namespace; likewise. It need not exist before, and never changes.
  Keep keep{};
  Durability durability = Durability::kProcess;  // When the record that makes the branch counts.
};

// A branch as it was at one moment. A copy: it does not change with the branch.
struct BranchInfo {
  BranchId id{};
  std::string name{}, ns{};
  ModelId model{};
  NodeId node{};
  uint64_t length = 0;                 // Tokens.
  std::vector<uint64_t> kv_lengths{};  // Positions; one per layer group.
  // Nanoseconds since 1970, written down only: nothing is ordered by them.
  uint64_t created_at_ns = 0, updated_at_ns = 0;
  // When it was last appended to, forked or restored. A restore is noted once a second at most,
  // only where eviction or expiry may ask for it, and is lost in a crash.
  uint64_t used_at_ns = 0;
  Keep keep{};
};

// Positions [begin, end) of a layer group that lost their KV (cairn/keep.h), or that were never
// given what the group's rule needs.
struct KvHole {
  uint32_t group = 0;  // Index in ModelSpec::groups.
  uint64_t begin = 0, end = 0;
  bool operator==(const KvHole&) const = default;
};

// One stretch of the path from the root to the head. Empty: a node that only holds a state.
struct PathStep {
  NodeId node{};
  NodeId parent{};              // 0: none.
  uint64_t begin = 0, end = 0;  // Positions of this path on the node.
  BranchId owner{};             // 0: no branch may extend it any more.
};

}  // namespace cairn
