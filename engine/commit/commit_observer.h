// SPDX-License-Identifier: Apache-2.0
//
// The interface by which metrics, and indexes of content and of objects, learn of commits.
//
// Every op that was applied to the tree and placed in the log is reported once: live, and again by
// a replay, which reads no payload and so knows only ranges. An op that a failed log takes back is
// not reported as taken back: the replay that follows starts over.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/branch_types.h"
#include "engine/tree/memory/op.h"
#include "engine/tree/memory/tree.h"

namespace cairn::engine {

enum class CommitOrigin : uint8_t {
  kCaller,      // A call of the API.
  kBackground,  // Sealing, evicting, expiring, merging and trimming of nodes.
  kReplay,      // Committed before, by this process or another.
};

struct CommittedOp {
  Op op;
  std::span<const Part> parts{};   // In earlier records: more payload that the op makes count.
  std::span<const TokenId> ids{};  // The ids of the positions that it appends; live only.
  uint64_t kv_bytes = 0;           // Raw, of everything that it makes count; live only.
  bool fills = false;              // KV that comes later than its tokens.
  CommitOrigin origin = CommitOrigin::kCaller;
  // The node of the op; for a fill that of its first range. 0: none.
  uint64_t node = 0;
  uint64_t length_before = 0, length = 0;  // Tokens of the branch; live only.
  uint64_t sequence = 0;

  // visit(node, lane, begin, count) for every range of positions that the op names: those of an
  // append or a fill, of a seal or an eviction.
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
  // All that `op` refers to is valid during the call only. Must neither fail nor wait, since the op
  // is committed. Must not call the committer.
  virtual void OnCommitted(const CommittedOp& op) noexcept = 0;
  // Whether it also learns of replays. Then OnReplay comes first: everything that is logged behind
  // that sequence follows, even if some of it was reported before.
  virtual bool wants_replay() const { return false; }
  virtual void OnReplay(uint64_t /*after_sequence*/) {}
};

// When an observer is notified.
enum class ObserverOrder : uint8_t {
  // After the commit lock is released and the record published; several threads at once.
  kAny,
  kSequence,  // Under the commit lock, in the order of sequences.
};

}  // namespace cairn::engine
