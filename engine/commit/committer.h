// SPDX-License-Identifier: Apache-2.0
//
// The one way into the tree and the log.
//
//   prepare   the tree has in memory what the change needs         may give the lock back
//   resolve   what the change does is decided: ops                 commit lock
//   apply     each op changes the tree, and can be undone          same lock
//   encode    the ops become the fields of one record              same lock
//   reserve   the record gets its sequence and its place, or not   same lock
//   commit    nothing is undone any more                           same lock
//   publish   the payload is copied and the record handed over     no lock
//   report    observers learn of it                                no lock
//
// Each kind of change (append, batch, fill, ...) is a Resolver, which supplies the input of these
// steps. A refused change leaves no trace. A RetryPolicy says whether it is tried again, and what
// is waited for before that.
//
// One lock orders all changes. It is never held across I/O or a wait. Lock order: the commit lock
// -> the log's own -> that of the tickets.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "base/io/world.h"
#include "cairn/branch_types.h"
#include "cairn/status.h"
#include "engine/commit/commit_observer.h"
#include "engine/commit/durable_lengths.h"
#include "engine/tree/ops/transaction.h"
#include "engine/tree/ops/tree_changes.h"
#include "wal/log.h"

namespace cairn::engine {

// Services that committing needs from the layers above.
class CommitCallbacks {
 public:
  virtual ~CommitCallbacks() = default;
  virtual uint64_t NowNs() const = 0;  // Recorded as the time of an op.
  // Whether data of this size must wait: the log is as long as it may be.
  virtual bool LogIsHeld(uint64_t bytes) const = 0;
  // A record got its place. Under the commit lock.
  virtual void OnLogged(const wal::Log::Slot& slot, CommitOrigin origin) = 0;
  // The log refused a record.
  virtual void OnRefused(const Status& status) = 0;
  // After kNoSpace: looks at the disk again. True: there is room for a log segment by now, so the
  // refusal is out of date, and the log was notified. No lock may be held.
  virtual bool HasRoomAgain() = 0;
  // The waits of RetryPolicy. Ok: it is worth another try.
  virtual Status WaitForLog(uint64_t bytes, uint64_t deadline_ns) = 0;
  // `first_round`: the caller's, empty before the first of these calls.
  virtual Status MakeRoom(std::optional<BranchId> branch, uint64_t bytes, const Status& refusal,
                          uint64_t deadline_ns, std::optional<uint32_t>* first_round) = 0;
  virtual Status AwaitReclaim(const Status& refusal, uint64_t deadline_ns,
                              std::optional<uint32_t>* first_round) = 0;
};

// How one try ended.
struct Attempt {
  enum class Kind : uint8_t {
    kDone,
    kNothing,  // There is nothing left to commit.
    kFailed,   // It would fail again.
    kRefused,  // Not now: kBusy or kNoSpace, mostly.
    kHeld,     // The same, because of a large append of the branch that is under way.
  };
  Kind kind = Kind::kDone;
  Status status{};

  Attempt() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): so that CAIRN_RETURN_IF_ERROR works.
  Attempt(Status failure)
      : kind(failure.ok() ? Kind::kDone : Kind::kFailed), status(std::move(failure)) {}
  // For a call that may be tried again whatever refused it: the policy decides by the code.
  static Attempt Of(Status status) { return status.ok() ? Attempt() : Refused(std::move(status)); }
  static Attempt Nothing() { return Of(Kind::kNothing, Status::Ok()); }
  static Attempt Refused(Status why) { return Of(Kind::kRefused, std::move(why)); }
  static Attempt Held(Status why) { return Of(Kind::kHeld, std::move(why)); }
  bool done() const { return kind == Kind::kDone; }

 private:
  static Attempt Of(Kind kind, Status status) {
    Attempt attempt;
    attempt.kind = kind;
    attempt.status = std::move(status);
    return attempt;
  }
};

// The waits after a refusal. Any other error is returned.
struct RetryPolicy {
  enum class Busy : uint8_t {
    kReturn,
    kAwaitMemory,  // Until a group of the log is written.
    kAwaitLog,     // That, or until the log may grow, or a large append of the branch has ended.
  };
  enum class NoSpace : uint8_t {
    kReturn,
    kEvict,    // Until something was evicted for it. If nothing may be evicted, as...
    kReclaim,  // ...until two rounds of the space thread have given back what they can.
  };
  Busy busy = Busy::kReturn;
  NoSpace no_space = NoSpace::kReturn;
  std::optional<BranchId> branch{};  // The branch that wants room, if it exists yet.
  uint64_t log_bytes = 0;            // Bytes that the log must have room for...
  uint64_t room_bytes = 0;           // ...and the store.
  uint64_t deadline_ns = io::kNoDeadline;
};

class CommitOps;

// One change: the input of the steps above. Lives for all tries of it.
class Resolver {
 public:
  using Lock = std::unique_lock<std::mutex>;  // Holds the commit lock.
  virtual ~Resolver() = default;

  // Makes sure that memory has the parts of the tree which the change needs, and that appends
  // accepted before it are applied. May release the lock meanwhile; its result is valid while the
  // lock is held afterwards.
  virtual Attempt Prepare(Lock* lock) = 0;
  // No large append of this branch may be under way. Nothing: that does not matter.
  virtual std::optional<BranchId> free_branch() const { return std::nullopt; }
  // Decides, and gives each op to `ops`, which applies it before the next is decided. Sets
  // record().
  virtual Status Resolve(CommitOps* ops) = 0;
  // After all ops are applied: checks whether they may stay.
  virtual Status CheckQuotas() const { return Status::Ok(); }
  // Under the lock, when the change will not be undone any more. Must not fail.
  virtual void OnPlaced() {}
  // After the lock is released. Copies the payload into the record's memory and publishes it. Must
  // not fail: all memory that it needs is allocated before the record is reserved.
  virtual void Publish(wal::Log* log) { log->Publish(slot_, {}); }
  virtual void OnRefused(const Status& /*status*/) {}

  uint64_t sequence() const { return slot_.sequence; }
  const wal::Log::Slot& slot() const { return slot_; }
  const std::vector<CommittedOp>& committed() const { return committed_; }
  // The only op, after it is committed. Allocates nothing: it is too late to fail.
  Op TakeOp() { return std::move(committed_.front().op); }

 protected:
  struct Record {
    wal::Log::Purpose purpose = wal::Log::Purpose::kData;
    bool held_by_limit = true;  // It waits while the log is as long as it may be.
    bool batch = false;         // Several ops, or one, in a record of kind kBatch.
    CommitOrigin origin = CommitOrigin::kCaller;
    uint64_t unit = 0;
    std::span<const wal::Strip> strips{};
    uint64_t token_strip_bytes = 0;  // The size of the first strip, if that has token ids.
  };
  Record record_;
  wal::Log::Slot slot_;

 private:
  friend class Committer;
  friend class CommitOps;
  uint64_t now_ns_ = 0;
  std::vector<CommittedOp> committed_;
};

// The ops of one record while they are decided.
class CommitOps {
 public:
  const Tree& tree() const { return *tree_; }
  // Announces how many ops will come.
  void Reserve(size_t ops) { resolver_->committed_.reserve(ops); }
  // The next op, to be filled in (op, parts, ids, kv_bytes, fills)...
  CommittedOp& Next();
  // ...and then applied, unless it is a part, and put into the record.
  Status Add();

 private:
  friend class Committer;
  CommitOps(Tree* tree, TreeChanges* changes, FieldWriter* fields, FieldWriter* one,
            Resolver* resolver)
      : tree_(tree), changes_(changes), fields_(fields), one_(one), resolver_(resolver) {}

  Tree* const tree_;
  TreeChanges* const changes_;
  FieldWriter* const fields_;  // The record's.
  FieldWriter* const one_;     // Scratch for the fields of an op.
  Resolver* const resolver_;
};

class Committer {
 public:
  using Lock = Resolver::Lock;

  Committer(CommitCallbacks* callbacks, io::Scheduler& scheduler)
      : callbacks_(callbacks), scheduler_(scheduler) {}
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // REQUIRES: before the first commit.
  void SetLog(wal::Log* log) { log_ = log; }
  // REQUIRES: before anything is replayed. The observer outlives this.
  void AddObserver(CommitObserver* observer, ObserverOrder order);

  // Tries until the change is committed, fails, or is refused in a way that the policy does not
  // wait for. The resolver may set the policy's bytes in Prepare.
  Attempt Commit(Resolver* resolver, const RetryPolicy& policy);
  // A part of Commit, for callers that must do more under the lock. REQUIRES: the lock is held and
  // the change is prepared. Afterwards the caller releases the lock and calls Publish.
  Attempt CommitLocked(Resolver* resolver);
  void Publish(Resolver* resolver);
  // Calls `attempt`, which returns an Attempt, as often as the policy says.
  template <typename Call>
  Status Retrying(const RetryPolicy& policy, const Call& attempt) {
    Retry retry(this, policy);
    while (true) {
      const Attempt ended = attempt();
      if (!retry.MayFollow(ended)) return ended.status;
      CAIRN_RETURN_IF_ERROR(retry.Await(ended));
    }
  }

  // --- Replay. Observers learn of a record's ops once all of the record is applied.
  bool ReplayIsObserved() const;
  void BeginReplay(uint64_t after_sequence);
  void ReportReplayed(std::span<CommittedOp> ops, uint64_t sequence);

  // --- Large appends, of which a branch has one at a time. The lock guards which.
  bool HasLargeAppend(BranchId branch) const { return large_appends_.contains(branch); }
  // REQUIRES: the lock is held, and the branch has none. RetryPolicy says how to wait for another's
  // end.
  void BeginLargeAppend(BranchId branch) { large_appends_.insert(branch); }
  void EndLargeAppend(BranchId branch);  // Takes the lock.
  static Status LargeAppendUnderWay();

  // --- Guarded by the lock.
  std::mutex& mutex() { return mutex_; }
  Tree& tree() { return tree_; }
  DurableLengths& lengths() { return lengths_; }
  // The record of the youngest model that was registered since the opening.
  uint64_t models_sequence() const { return models_sequence_; }
  // The log failed, and the tree was rebuilt up to what it acknowledged.
  bool rolled_back() const { return rolled_back_; }
  void RollBack(Tree tree);

 private:
  // The state of a call that is tried again.
  class Retry {
   public:
    Retry(Committer* committer, const RetryPolicy& policy)
        : committer_(committer), policy_(policy) {}
    static bool MayFollow(const Attempt& ended) {
      return ended.kind == Attempt::Kind::kRefused || ended.kind == Attempt::Kind::kHeld;
    }
    // Ok: try again. Else the call returns this.
    Status Await(const Attempt& refused);

   private:
    Committer* const committer_;
    const RetryPolicy& policy_;
    std::optional<uint32_t> first_round_;
    bool looked_again_ = false;
  };

  template <typename Call>
  void ForReplayObservers(const Call& call) const {
    for (const auto* const observers : {&in_sequence_, &in_any_order_}) {
      for (CommitObserver* const observer : *observers) {
        if (observer->wants_replay()) call(observer);
      }
    }
  }
  Attempt Try(Resolver* resolver);
  Result<wal::Log::Slot> Reserve(const Resolver& resolver, OpKind kind, const FieldWriter& fields);
  void OnCommittedOp(const CommittedOp& op);
  Status AwaitLargeAppend(BranchId branch, uint64_t deadline_ns);

  CommitCallbacks* const callbacks_;
  io::Scheduler& scheduler_;
  wal::Log* log_ = nullptr;
  std::vector<CommitObserver*> in_any_order_, in_sequence_;

  std::mutex mutex_;  // Guards the rest, but for the atomic one.
  Tree tree_;
  Transaction transaction_;
  TreeChanges tree_changes_{&tree_, &transaction_};
  // Where a record and one of its ops are encoded, under the lock: an append of a token allocates
  // nothing for that.
  FieldWriter record_fields_, op_fields_;
  DurableLengths lengths_;
  uint64_t models_sequence_ = 0;
  bool rolled_back_ = false;
  std::set<BranchId> large_appends_;
  std::atomic<uint32_t> large_appends_ended_{0};
};

}  // namespace cairn::engine
