// SPDX-License-Identifier: Apache-2.0
//
// Replays the requests of a trace on a store, as a serving process would that keeps every
// conversation in it.
//
// For a request the longest prefix of its prompt that the store has (Store::FindPrefix, by token
// ids, to whole blocks) is restored, and the rest is appended (the prompt in pieces of 2 MiB, the
// output 16 tokens at a time). The prefix is continued in place if it ends where the identified
// part of a branch ends; a later part, an output, is rewound, since no hash id says that the next
// prompt repeats it. Otherwise a branch is forked off there. When a session ends its branches are
// dropped.
//
// KV and token ids follow from (session, hash id, offset in the block). Some positions of every
// restored stretch are compared, outside the timing.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cairn/store.h"
#include "tools/bench/generated_kv.h"
#include "tools/bench/trace_reader.h"

namespace cairn::bench {

struct ReplayTotals {
  uint64_t requests = 0, sessions = 0;
  uint64_t input_tokens = 0, hit_tokens = 0;         // In the requests replayed.
  uint64_t appended_tokens = 0, restored_bytes = 0;  // Outputs included.
  uint64_t forks = 0, rewinds = 0, drops = 0;
  uint64_t verified_tokens = 0;
  std::vector<double> append_us{};   // A call each, waits for room included.
  uint64_t waits_for_room = 0;       // Appends that the store's cap refused at first.
  std::vector<double> restore_us{};  // A request each.
  std::vector<double> find_us{};     // The same.
};

struct ReplayLimits {
  uint64_t requests = 0, kv_bytes = 0;  // 0: none.
  uint32_t sessions_at_once = 1;
};

class Replay {
 public:
  // `restore_bytes`: memory to restore to; longer prefixes are restored piece by piece.
  static Result<std::unique_ptr<Replay>> Create(const ModelSpec& model, Durability durability,
                                                uint64_t restore_bytes);
  // Takes turns between `sessions_at_once` sessions, a request each, until the trace or a limit
  // ends; open sessions then stay. Once. kCorruption when the trace contradicts itself, or when
  // restored content differs from the appended.
  Status Run(Store& store, TraceReader& reader, const ReplayLimits& limits);
  const ReplayTotals& totals() const { return totals_; }
  uint64_t branches() const;
  // Tokens on the paths of the branches that exist now, those shared counted once.
  Result<uint64_t> LiveTokens() const;
  // Restores, from `store`, which holds the same branches, up to one buffer of each and checks it.
  Status VerifyAll(Store& store);

 private:
  // A branch, and how many of its first positions are identified by the ids of a request.
  struct Line {
    Branch branch{};
    NodeId node{};  // That it ends on.
    uint64_t length = 0;
    uint64_t identified = 0;  // The last block may be partial.
    std::vector<uint64_t> ids{};
  };
  // The place of an id: an id names a whole prefix.
  struct Stand {
    size_t block = 0;
    uint64_t behind = 0;  // The id before it.
  };
  // Branches among which ids mean the same.
  struct Tree {
    uint64_t salt = 0;
    uint64_t block_tokens = 0;
    std::vector<std::unique_ptr<Line>> lines{};
    std::unordered_map<NodeId, Line*> by_node{};
    std::unordered_map<uint64_t, Stand> stands{};
  };
  struct Conversation {
    TraceSession session{};
    size_t next = 0;
    std::shared_ptr<Tree> tree{};
  };
  struct Match {
    size_t blocks = 0;
    uint64_t tokens = 0;
    PrefixHit hit{};
  };

  Replay(const ModelSpec& model, Durability durability, std::unique_ptr<FlatKv> source,
         std::unique_ptr<FlatKv> target);
  Result<bool> StartNext(TraceReader& reader, Conversation* conversation);
  Status End(Conversation& conversation);
  Status Serve(Tree& tree, const TraceRequest& request);
  static Status CheckIds(Tree& tree, const TraceRequest& request);
  Result<Match> FindPrefix(const Tree& tree, const TraceRequest& request);
  // The line to extend, of exactly match.tokens tokens.
  Result<Line*> Continue(Tree& tree, const TraceRequest& request, const Match& match);
  Status RestorePiece(const Tree& tree, const Line& line, const Branch& branch, uint64_t begin,
                      uint64_t end, double* us);
  // The space of dropped sessions comes back with a delay: until then it retries.
  Result<uint64_t> AppendWithRoom(Branch& branch, const Delta& delta, uint64_t expected_length);
  // Up to position `end`, or to the limit.
  Status AppendUntil(const Tree& tree, const TraceRequest& request, Line& line, uint64_t end,
                     uint64_t piece_tokens);
  static void Identify(const Tree& tree, const TraceRequest& request, Line& line);
  uint64_t KvBytes() const { return totals_.appended_tokens * token_bytes_; }
  bool LimitReached() const;

  Store* store_ = nullptr;
  const ModelSpec spec_;
  ModelId model_{};
  const Durability durability_;
  const uint64_t token_bytes_;
  std::unique_ptr<FlatKv> source_, target_;
  std::vector<TokenId> source_ids_, target_ids_;
  ReplayLimits limits_{};
  ReplayTotals totals_{};
  std::map<uint64_t, std::shared_ptr<Tree>> shared_trees_{};  // By block size.
  std::vector<std::shared_ptr<Tree>> trees_{};                // All that have branches.
};

}  // namespace cairn::bench
