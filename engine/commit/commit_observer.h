// SPDX-License-Identifier: Apache-2.0
//
// Who is told of what was committed: metrics, and later the indexes of content and of objects.
//
// Every op that was applied to the tree and has its place in the log is told once: live, and again
// by a replay, which reads no payload and so knows ranges only. What a failed log takes back is not
// told as such: the replay that follows it begins anew.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/branch.h"
#include "engine/tree/op.h"
#include "engine/tree/tree.h"

namespace cairn::engine {

enum class CommitOrigin : uint8_t {
  kCaller,      // A call of the API.
  kBackground,  // Sealing, evicting, expiring, merging and trimming of nodes.
  kReplay,      // It was committed before, by this process or another.
};

struct CommittedOp {
  Op op;
  std::span<const Part> parts{};   // In earlier records: what the op makes count besides its own.
  std::span<const TokenId> ids{};  // Of the positions it appends; live only.
  uint64_t kv_bytes = 0;           // Raw, of all that it makes count; live only.
  bool fills = false;              // KV that comes later than its tokens.
  CommitOrigin origin = CommitOrigin::kCaller;
  // The node that the op is about; of a fill that of its first range. 0: none.
  uint64_t node = 0;
  uint64_t length_before = 0, length = 0;  // Tokens of the branch; live only.
  uint64_t sequence = 0;

  // visit(node, lane, begin, count) of every range of positions that the op names: what an append
  // or a fill brings, and what a seal or an eviction is about.
  template <typename Visit>
  void VisitRanges(const Visit& visit) const {
    for (const Part& part : parts) {
      for (const LaneRange& range : part.lanes) visit(node, range.lane, range.begin, range.count);
    }
    for (const LaneRange& range : op.lanes) visit(node, range.lane, range.begin, range.count);
    for (const SealedRange& range : op.sealed) {
      visit(range.node, range.lane, range.begin, uint64_t{range.count});
    }
  }
};

// CommittedOp::node of an op that is still to be applied.
uint64_t NodeOf(const Tree& tree, const Op& op);

class CommitObserver {
 public:
  virtual ~CommitObserver() = default;
  // All that `op` refers to is valid during the call only. Neither fails nor waits: the op is
  // committed. Must not call the committer.
  virtual void OnCommitted(const CommittedOp& op) noexcept = 0;
  // Whether it is told of what is replayed, too. Then OnReplay comes first: what follows is all
  // that is logged behind that sequence, though some of it was told before.
  virtual bool wants_replay() const { return false; }
  virtual void OnReplay(uint64_t /*after_sequence*/) {}
};

// When an observer is told.
enum class ObserverOrder : uint8_t {
  kAny,       // Behind the commit lock, once the record is published; by several threads at a time.
  kSequence,  // Under the commit lock, in the order of sequences.
};

}  // namespace cairn::engine
