// SPDX-License-Identifier: Apache-2.0
//
// A store: a directory that one process owns for writing. Everything begins here.
//
//   auto store = cairn::Store::Open("state", {.create_if_missing = true});   // or ":memory:"
//   auto model = store->RegisterModel(spec);
//   auto chat  = store->CreateBranch(*model, {.name = "chat-42"});
//   chat->AppendSync({.tokens = ids, .kv = &view}, {.durability = cairn::Durability::kPower});
//
// Thread-safe: all methods of one Store may be called from any thread at once, but for the
// destructor, moves and assignment, which have no other call of that object beside them. No thread
// exists before Open. A store does not survive fork(): in the child every call gives kInvalidState;
// Metrics and Models are empty there, and destructors touch nothing of the parent's. A thread that
// is cancelled (pthread_cancel) within a call is cancelled behind it.
//
// Locks, the index, coalesced appends, errors of every call and errors of every change are
// explained at the top of cairn/branch.h; the lists below name what comes beside them. A call that
// is said to change something blocks until its record is as durable as `durability` says, and
// before that while space or log memory for the record is lacking; it has no deadline.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/branch.h"
#include "cairn/completion.h"
#include "cairn/find.h"
#include "cairn/metrics.h"
#include "cairn/model.h"
#include "cairn/options.h"
#include "cairn/status.h"
#include "cairn/version.h"

namespace [[gnu::visibility("default")]] cairn {

// A registered model, with its spec as it is known by now.
struct ModelInfo {
  ModelId id{};
  ModelSpec spec;
};

// A page of ListBranches. A copy: it does not change with the branches.
struct BranchPage {
  std::vector<BranchInfo> branches;
  std::string cursor;  // Pass it on for the next page; empty: no more. Opaque.
};

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

// How much Store::Verify reads.
enum class VerifyLevel : uint8_t {
  kHeaders,  // As much as opening reads: MANIFEST, OPTIONS, headers of the log, footers of tables.
  // Also every block of the index, the directories of the tables, and whether all these fit each
  // other: parents exist, lanes have no gaps, what is sealed is there.
  kIndex,
  // Also every payload of the log and every frame of the tables, checksum and decoding.
  kAll,
};

// The result of Store::Verify: how much it read, and the damage that it found.
struct VerifyReport {
  uint64_t records = 0, strips = 0;       // Of the log.
  uint64_t index_tables = 0, tables = 0;  // Of the index; snapshot tables.
  uint64_t frames = 0;                    // Of snapshot tables.
  uint64_t bytes = 0;                     // Of strips and frames.
  // One damaged place. Branches that do not need it are not affected.
  struct Damage {
    // A path below the store's directory, as "log/0000000000000011.log: offset 4096" or
    // "tables/0000000000000012.snapshot"; or "log", "tree", MANIFEST, OPTIONS.
    std::string where;
    std::string what;       // A Status as text; its paths are below the store's directory, too.
    uint64_t sequence = 0;  // Of the damaged record; 0: it is none, or not known.
  };
  std::vector<Damage> damages;
};

// The result of Store::Refresh.
struct RefreshResult {
  bool changed = false;   // Something is shown that was not before.
  uint64_t sequence = 0;  // Every change up to here is shown, none behind.
};

// The result of Store::Checkpoint.
struct CheckpointInfo {
  // The prefix of the order of changes that it holds: every change up to here, none behind. It is
  // the last_sequence that Metrics() of the copy tells.
  uint64_t sequence = 0;
  uint64_t linked_tables = 0, linked_bytes = 0;  // Shared with the store.
  uint64_t copied_tables = 0;                    // The target is on another volume.
  uint64_t copied_bytes = 0;                     // Of the log and of these tables.
};
// Bytes copied, of those to copy. Called on a thread of the store, which it must neither call nor
// throw into.
using CheckpointProgress = std::function<void(uint64_t done, uint64_t total)>;

// How far Verify is, in bytes of the store's files of those that it had at the beginning. Called on
// the thread that verifies; must not throw.
using VerifyProgress = std::function<void(uint64_t done, uint64_t total)>;

// Owns an open store. Moving it moves that; branches and other handles stay good. They keep the
// store's memory, not the store, open.
class Store {
 public:
  // Opens a store, or makes one. `path` is a directory, looked up now and then held, or ":memory:",
  // which goes with this object. Blocking: reads the manifest and the index's footers, and replays
  // what the log has beyond the index, about Options::replay_records_max records. A new directory
  // is durable when this returns; a crash before leaves one that the next opening with
  // create_if_missing makes anew. A crash during the opening of an existing store loses nothing of
  // it. `options` is copied. Errors:
  //   kNotFound: no store there and create_if_missing is off; or no parent directory.
  //   kAlreadyExists: a store is there, and error_if_exists is on.
  //   kInvalidState: a file, or a directory with something else in it.
  //   kLocked: another process, or this one, has it open for writing.
  //   kCorruption: damage of what opening reads, by file and offset (see Options::salvage).
  //   kStale: of a follower: the writer replaced files faster than they were read; retry.
  //   kInvalidArgument: an option, by its name; segment_bytes or max_bytes do not fit the store.
  //   kUnsupportedFormat, kNoSpace, kReadOnly (the file system), kOutOfMemory, kIoError (the
  //     disk's, or no thread was to be had).
  static Result<Store> Open(const std::string& path, const Options& options = {});
  Store() = default;
  Store(Store&&) = default;
  Store& operator=(Store&& other) noexcept;  // Closes what it held, as the destructor.
  ~Store();  // Closes, and blocks as Close; errors are lost, so call Close.

  // --- Models. All of them are in memory.
  // Idempotent: the same spec gives the same id. Fields that the spec sets and an earlier
  // registration left unset are added to it. A change. Errors:
  //   kModelMismatch: the same identity, variant and shard, but other shapes; names the field.
  //   kInvalidArgument: the spec, by its field; or its description does not fit a log record.
  //   kReadOnly: of a follower, for a model that is not there. A known one gives its id.
  Result<ModelId> RegisterModel(const ModelSpec& spec, Durability durability = Durability::kPower);
  // Does no I/O. kNotFound.
  Result<ModelInfo> GetModel(ModelId id) const;
  // In order of id. Does no I/O; also of a store that is closed. Empty for an empty Store.
  std::vector<ModelInfo> Models() const;

  // --- Branches and namespaces
  // A change: an empty branch of the model. Errors:
  //   kNotFound: the model is not registered.
  //   kAlreadyExists: the name is taken in its namespace.
  //   kInvalidArgument: name or namespace is too long, holds a NUL, or is one of objects.
  Result<Branch> CreateBranch(ModelId model, const BranchOptions& options = {});
  // By name; "" names no branch. kNotFound; kInvalidArgument: the namespace is one of objects.
  Result<Branch> FindBranch(std::string_view name, std::string_view ns = {}) const;
  // By id. kNotFound; kInvalidArgument: it is an object.
  Result<Branch> GetBranch(BranchId id) const;
  // Branches of a namespace whose names begin with `prefix`, in order of name. Unnamed ones have
  // the name "" and come first, in order of id. Blocking: reads the index, and applies all
  // coalesced appends first. A branch that is made, renamed or dropped meanwhile may show or not.
  // kInvalidArgument: `limit` is 0, or the namespace is one of objects.
  Result<BranchPage> ListBranches(std::string_view ns, std::string_view prefix, size_t limit,
                                  const std::string& cursor = {}) const;
  // Those that have branches or a policy, in order of name. All of them are in memory: a namespace
  // is for a tenant, not for every conversation. Does no I/O.
  Result<std::vector<NamespaceInfo>> Namespaces() const;
  // Replaces the policy. Also of one that has no branch yet. NamespacePolicy() is as if none had
  // been set. A change that works where there is no room for data. kInvalidArgument: the name, or a
  // value that an enum does not have.
  Status SetNamespace(const std::string& ns, const NamespacePolicy& policy,
                      Durability durability = Durability::kPower);

  // The branches that Create and Fork made, by their index, and how the batch ends: as the ticket
  // of Branch::Append.
  struct WriteResult {
    std::vector<Branch> created;
    Ticket ticket;
  };
  // Applies the batch. A failure applies nothing, and names the change ("op 3 of the batch"). Does
  // not wait for room, nor for the disk but for the index and for coalesced appends of its
  // branches; the ticket tells of `durability`. Of the options durability, ends_turn, timeout_ns,
  // queue and user_data count. Errors at once:
  //   kInvalidArgument: an empty or too large batch, an index that was never returned, a branch of
  //     another store, KV of a GPU, or what the single changes refuse.
  //   kConflict: the expected_length of an append.
  //   kNotFound, kAlreadyExists: as of the single changes.
  //   kBusy: as of Branch::Append; also when a large append of one of the branches is under way.
  //   those of every change but kUnknownOutcome.
  Result<WriteResult> Write(const WriteBatch& batch, const AppendOptions& options = {});

  // --- What is there already (cairn/find.h)
  // The place that has most of the tokens as its prefix: among places that agree on the last whole
  // block of 64 positions that any place has, the one of which most can be restored, then the
  // longest, then the newest. Exact to the token, where no more than kPrefixCandidates nodes hold
  // the same first tokens; else to 64. No hit is no error. Appends that others make beside the call
  // may be seen or not.
  //
  // Blocking, unless memory_only is on: indexes earlier appends (of 256 nodes at most, else the hit
  // is not `complete`), reads the index, and the ids of what it confirms. A store that is read only
  // answers from what it shows (Refresh), if its writer indexes. Index entries that a crash loses
  // are made again. Errors:
  //   kInvalidArgument: names the field.
  //   kNotFound: no such model.
  //   kInvalidState: nothing is indexed: Options::index is kNone, or was the writer's.
  //   kBusy: memory_only, and something that is needed is not in memory.
  //   kCorruption, kIoError, kOutOfMemory
  Result<PrefixHit> FindPrefix(const PrefixQuery& query) const;
  // A branch that begins with the hit's first `position` tokens, up to `matched`. A change; reads
  // ids again where anything may have changed since the hit was found. The hit may be old; either
  // way it never is a branch of other tokens:
  //   kConflict: other tokens have taken the place.
  //   kNotFound: it was dropped.
  //   kInvalidArgument: nothing was found, `position` is beyond `matched`, and what Branch::ForkAt
  //     refuses.
  //   kInvalidState: nothing is indexed in this store.
  //   those of Branch::ForkAt, and what reading ends with.
  Result<Branch> Fork(const PrefixHit& hit, uint64_t position, const BranchOptions& options = {});
  // As Branch::Restore, of positions up to `matched`, which is also the `end` that is left out; and
  // the errors of Fork before anything is written. kStale: the tree changes faster than it is read.
  // No branch counts as used.
  Result<RestoreResult> Restore(const PrefixHit& hit, const RestoreRequest& request,
                                LayerProgress* progress = nullptr) const;
  // From now on for `lease_ns` nanoseconds, max_lease_ns at most. Does no I/O. kNotFound: it is
  // over; what it held may be gone.
  Status Renew(LeaseId lease, uint64_t lease_ns);
  Status Release(LeaseId lease);  // Also of one that is over, and of none. Does no I/O.

  // --- Care. Blocking, but for what tells of itself at the end.
  // Everything acknowledged or applied so far becomes durable (kPower), coalesced appends included;
  // borrowed appends that are not applied yet are not. Errors: kReadOnly, kPoisoned,
  // kUnknownOutcome.
  Status Flush();
  // Of a store that is read only: shows what has become durable since it was opened or refreshed
  // last. Cheap when nothing has. Beside a writer an append shows some ten milliseconds after it
  // was made durable; one that was only written, kProcess or kMemory, when a later one is. Writes
  // nothing. Other calls may go on meanwhile: each sees the store before or after. Two calls of it
  // wait for each other. After an error the store shows what it showed before. Errors:
  //   kInvalidState: not read only; or another directory, or another history of the store, has
  //     taken its place: open that anew.
  //   kStale: the writer replaces files faster than they are read; retry.
  //   kCorruption: also when a writer salvaged the store and cut what was shown: open it anew.
  //   kUnsupportedFormat, kIoError, kOutOfMemory
  Result<RefreshResult> Refresh();
  // Everything that was appended so far is sealed into tables: packed without loss, and no longer
  // in need of the log. Happens by itself in the background; a caller that wants it now waits here,
  // without a deadline. Goes as fast as the background may (Options::background_bytes_per_second).
  // Where max_bytes or the disk leaves little room it goes segment by segment. A crash meanwhile
  // costs nothing but the work. Errors:
  //   kNoSpace: there is not even room for one segment (others filled the disk).
  //   kInvalidState: the background is paused. A call that waits already when it is paused waits
  //     until it is resumed, or the store closed.
  //   kCorruption: what is damaged stays where it is, until it is dropped or evicted; of the log
  //     what comes after it, too.
  //   kReadOnly, kPoisoned, kIoError, kOutOfMemory
  Status Compact();
  // A copy of the store at `path` that opens as a store, made while others write: it holds all that
  // was acknowledged or applied before the call, and is durable when the call returns. Tables are
  // hard links (copies on another volume), the log is copied. Sealing waits meanwhile; Compact
  // before it makes the log, and so the copy, small.
  //
  // `path` is in the same world, and absent or an empty directory, whose parent is there. After an
  // error nothing is left, or the message says what; after a crash a directory that does not open.
  // Errors:
  //   kAlreadyExists: a store is there.
  //   kInvalidState: something else is there, the background is paused, or the store is closed.
  //   kInvalidArgument: an empty path, ":memory:", or one within the store itself.
  //   kNotFound: there is no parent directory.
  //   kLocked: another checkpoint goes there.
  //   kCancelled: Close came first.
  //   kReadOnly, kPoisoned, kUnknownOutcome, kCorruption, kNoSpace, kIoError, kOutOfMemory
  //
  // The copy is outside of max_bytes. Linked tables take space once, and give it back when both
  // stores have deleted them; damage to such a file is damage to both.
  //
  // The copy is the same store at an earlier time: it keeps the store's id, which every checksum is
  // sealed with. Opened for writing, the two diverge but go on with the same numbers of segments,
  // tables and ids, so never put files of one into the other: a log segment that does not continue
  // the one before it is mostly noticed, a table of the same number is not.
  Result<CheckpointInfo> Checkpoint(const std::string& path,
                                    const CheckpointProgress& progress = {});
  // When this returns, nothing is sealed, rewritten, merged or given back any more, and no table,
  // MANIFEST or old log segment written or deleted, until ResumeBackground was called as many
  // times: for quiet moments, and for copying the files. Waits until work under way has come to its
  // next step, and pauses there. Everything else goes on. Content that is appended meanwhile
  // stays in the log, which grows beyond log_bytes_max if it must; only max_bytes and the disk
  // bound it then, with kNoSpace as ever, and also where a call would wait for eviction. Not to be
  // called from an EventListener. A store that is read only has no background: both calls do
  // nothing.
  Status PauseBackground();
  Status ResumeBackground();  // kInvalidState without a pause. Does not block.
  // Does not block. Made for calls of this store; see cairn/completion.h.
  Result<CompletionQueue> NewCompletionQueue();

  // Reads from the device, not from memory, in large pieces on the calling thread, and goes on
  // after damage, which the report lists place by place: Ok says that it ran, not that all is well.
  // A store that writes is flushed first (Flush), unless it is poisoned. Content that comes while
  // it runs is not checked; space is given back meanwhile, except in the part that is being read.
  // Repairs nothing. Errors:
  //   kStale: beside a writer in another process that replaces files faster than they are read.
  //   kInvalidArgument: the level.
  //   those of Flush, and kOutOfMemory.
  Result<VerifyReport> Verify(VerifyLevel level, const VerifyProgress& progress = {}) const;
  // --- What it tells of itself. None of these does I/O or waits; Metrics takes the commit lock for
  // a moment. They may be asked of a closed store as well, and tell of it as it was.
  // See cairn/metrics.h. All zeros for an empty Store and in a child of fork().
  StoreMetrics Metrics() const;
  // Of the metrics now, see cairn/metrics.h.
  std::string PrometheusText(std::string_view label = {}) const;
  cairn::Health Health() const;
  // Ok while healthy, else why: kPoisoned with the first cause. kInvalidState once it is closed.
  Status poisoned() const;
  // "io_uring", "threads", "memory", "simulated"; and how a commit becomes durable, "dsync" (writes
  // that are durable when they return) or "fdatasync".
  std::string io_name() const;
  std::string sync_method() const;
  // The part that recovery had to drop at the end of the log, or had to cut when salvaging; empty
  // if nothing.
  std::string recovery_note() const;

  // Waits for what was given to the log, makes it durable, ends all threads, closes the files of
  // log and tables and gives buffers and caches back; tree, index and directories go with the last
  // handle of the store, its branches and tickets. Of a log that short-lived processes or a cap
  // have made too long it waits for the background to seal some. Calls that are under way end as
  // ever or with kInvalidState, tickets that are open with kUnknownOutcome. Idempotent: another
  // call returns what the first one did, when that is over. A crash meanwhile costs what a crash
  // before it would have.
  //
  // Errors, after which the store is closed all the same: kPoisoned (the log had failed), and of
  // the last writes kUnknownOutcome, kNoSpace, kIoError, kOutOfMemory.
  Status Close();
  // For the library.
  std::shared_ptr<StoreCore> core() const { return core_; }

 private:
  std::shared_ptr<StoreCore> core_;
};

// The version of the store's directory as a whole. Each file has a version of its own besides.
inline constexpr uint32_t kFormatVersion = 1;

}  // namespace cairn
