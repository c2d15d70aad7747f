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

#include "cairn/blend.h"
#include "cairn/branch.h"
#include "cairn/completion.h"
#include "cairn/compose.h"
#include "cairn/find.h"
#include "cairn/metrics.h"
#include "cairn/model.h"
#include "cairn/options.h"
#include "cairn/status.h"
#include "cairn/store_types.h"
#include "cairn/version.h"
#include "cairn/write_batch.h"

namespace [[gnu::visibility("default")]] cairn {

// Owns an open store. Moving it moves that; branches and other handles stay good. They keep the
// store's memory, not the store, open.
class Store {
 public:
  // Opens a store, or makes one. `path` is a directory, looked up now and then held, or ":memory:",
  // which goes with this object. Blocking: reads the manifest and the index's footers, and replays
  // what the log has beyond the index, about Options::replay_records_max records. A new directory
  // is durable when this returns; after a crash before that, the next opening with
  // create_if_missing starts over. A crash during the opening of an existing store loses nothing of
  // it. `options` is copied. Errors:
  //   kNotFound: no store there and create_if_missing is off; or no parent directory.
  //   kAlreadyExists: a store exists there, and error_if_exists is on.
  //   kInvalidState: a file, or a directory with something else in it.
  //   kLocked: another process (named if /proc shows it), or this one, has it open for writing.
  //   kCorruption: damage of what opening reads, by file and offset (see Options::recovery).
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
  // Those that have branches or a policy, in order of name. Blocking: those without a policy and
  // without a branch in memory are read from the index, all again if it was flushed meanwhile.
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
  // Applies the batch. A failure applies nothing, and names the change ("op 3 of the batch"). Waits
  // for no room, and for the disk only to read the index and to apply coalesced appends of its
  // branches; the ticket reports `durability`. Only durability, ends_turn, timeout_ns, queue and
  // user_data of the options count. Errors at once:
  //   kInvalidArgument: an empty or too large batch, an index that was never returned, a branch of
  //     another store, KV of a GPU, or what the single changes refuse.
  //   kConflict: the expected_length of an append.
  //   kNotFound, kAlreadyExists: as of the single changes.
  //   kBusy: as of Branch::Append; also when a large append of one of the branches is under way.
  //   those of every change but kUnknownOutcome.
  Result<WriteResult> Write(const WriteBatch& batch, const AppendOptions& options = {});

  // --- Finding prefixes (cairn/find.h)
  // Returns, among the places that begin with these tokens, the one with the longest restorable
  // prefix, then the one that matches more tokens, then the newest. PrefixHit::longest names the
  // longest match of ids. The search takes the deepest whole block of 64 positions that matches
  // anywhere and compares the places that share it. Where none of them can be restored up to there,
  // it tries two shallower blocks at most, so `restorable` may then be less than another place has.
  // Exact to the token where no more than kPrefixCandidates nodes hold the same first tokens; else
  // to 64. No hit is no error. Concurrent appends may be seen or not.
  //
  // Blocking, unless memory_only is on: indexes earlier appends (of 256 nodes at most, else the hit
  // is not `complete`), reads the index, and the ids of what it confirms. A follower answers from
  // what it shows (Refresh), if its writer indexes. Index entries that a crash loses are rebuilt.
  // Errors:
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
  // --- Reuse at any position (cairn/blend.h)
  // Returns what of the prompt is loaded from where, and what is computed. The query is
  // FindPrefix's; `confirm` counts as on: every id was compared. With `approximate` the prefix may
  // go on behind PrefixHit::exact, as a segment of its own. Nothing found is no error: all of it is
  // computed.
  //
  // The longest run of equal ids is taken first; of equally long ones one that stood behind
  // something before one at position 0, then the newest. Of each fingerprint (docs/blend.md) only
  // the 8 newest living places are looked at.
  //
  // Blocking, unless memory_only is on: as FindPrefix, and reads ids of what it finds. Errors,
  // beside those of FindPrefix:
  //   kInvalidArgument: no tokens; an option, by its name; a model with a group of states. Where a
  //     key would have to be turned: it is opaque or fp8, pairing or angles are unset, or tokens
  //     have several positions and a content span stands before the segment's end.
  //   kInvalidState: no namespace of the query indexes chunks, and there are no `sources`.
  //   kModelMismatch: rope_theta or head_dim; a source is of another model; stored keys do not turn
  //     as the model says.
  //   kNotFound: a source's branch does not exist. kConflict: it has other ids. kEvicted: it lacks
  //     KV there.
  //   kStale: the tree changes faster than it is read.
  Result<BlendPlan> PlanBlend(const PrefixQuery& query, const BlendOptions& options = {}) const;
  // Brings what the plan loads of [begin, end), positions of the prompt; `end` UINT64_MAX: up to
  // its end. The rest of the view stays as it is. The view's positions are those of the prompt,
  // too. Keys are turned on their way (cairn/rotary.h). All or nothing, as Branch::Restore, and its
  // errors. The plan may be old: without its lease ids are read and compared again. All bytes but
  // those of kPrefix segments count as approximate_bytes. Errors besides:
  //   kInvalidArgument: a range beyond the plan, `tokens` (a plan brings KV alone), a plan that is
  //     not whole, or of another store.
  //   kNotFound: a source was dropped. kConflict: it has other ids by now, or KV that is not exact
  //     where the plan calls it so. kEvicted: it lacks KV.
  //   kStale: the tree changes faster than it is read.
  Result<RestoreResult> Restore(const BlendPlan& plan, const RestoreRequest& request,
                                LayerProgress* progress = nullptr) const;

  // Puts named branches of a namespace in a row and plans that, with them as sources, where they
  // have exact KV: what they lack is computed, and nothing is searched. Neither the store nor the
  // namespace need index anything. Blocking: reads the ids. Errors, beside those of PlanBlend:
  //   kInvalidArgument: the request, by its field, 2^31 tokens, a range beyond a document or one
  //     that cuts its content, or options.sources.
  //   kNotFound: the model or a document, by its name. kModelMismatch: a document of another model.
  //   kConflict: a document changed meanwhile.
  Result<Composed> Compose(const ComposeRequest& request, const BlendOptions& options = {}) const;

  // --- Leases
  // From now on for `lease_ns` nanoseconds, max_lease_ns at most. Does no I/O. kNotFound: it is
  // over, and what it held may be gone; or that was dropped, of objects all of it.
  Status Renew(LeaseId lease, uint64_t lease_ns);
  Status Release(LeaseId lease);  // Also of one that is over, and of none. Does no I/O.

  // --- Maintenance. Blocking, except the getters at the end.
  // Everything acknowledged or applied so far becomes durable (kPower), coalesced appends included;
  // borrowed appends that are not applied yet are not. Errors: kReadOnly, kPoisoned,
  // kUnknownOutcome.
  Status Flush();
  // Shows a follower what has become durable since it was opened or refreshed last. Cheap when
  // nothing has. Beside a writer an append shows about ten milliseconds after it was made durable;
  // one that was only written, kProcess or kMemory, when a later one is. Refreshes wait for each
  // other. After an error the store shows what it showed before. Errors:
  //   kInvalidState: not read only; or another directory, or another history of the store, has
  //     taken its place: open that one.
  //   kStale: the writer replaces files faster than they are read; retry.
  //   kCorruption: also when a writer salvaged the store and cut what was shown: reopen it.
  //   kUnsupportedFormat, kIoError, kOutOfMemory
  Result<RefreshResult> Refresh();
  // Makes the log short, and what was appended so far as small as it gets without loss: seals it
  // into tables, but for full segments of KV that was packed when it was appended, and of which a
  // tenth is dead at most. The background does the like; a caller that wants it now waits here,
  // without a deadline.
  // Limited to Options::background_bytes_per_second. Where max_bytes or the disk leaves little room
  // it goes segment by segment. A crash meanwhile costs nothing but the work. Errors:
  //   kNoSpace: there is not even room for one segment (others filled the disk).
  //   kBusy: all is done, and the log cannot give back its oldest segment, as a read or an append
  //     has been in need of it for longer than two seconds. The message names that one; retry.
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
  // `path` is in the same world, and absent or an empty directory; its parent exists. After an
  // error nothing is left, or the message says what; after a crash a directory that does not open.
  // Errors:
  //   kAlreadyExists: a store exists there.
  //   kInvalidState: something else exists there, the background is paused, or the store is closed.
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
  // --- State of the store. None of these does I/O or waits; Metrics takes the commit lock for a
  // moment. Also valid after Close: they return the last values.
  // See cairn/metrics.h. All zeros for an empty Store and in a child of fork().
  StoreMetrics Metrics() const;
  // The metrics now, as text and as alarms; see cairn/metrics.h.
  std::string PrometheusText(std::string_view label = {}) const;
  cairn::Health Health() const;
  // Ok while healthy, else why: kPoisoned with the first cause. kInvalidState once it is closed.
  Status poisoned() const;
  // "io_uring", "threads", "memory", "simulated"; and how a commit becomes durable, "dsync" (writes
  // that are durable when they return) or "fdatasync".
  std::string io_name() const;
  std::string sync_method() const;
  // The part that recovery had to drop at the end of the log; with Recovery::kSetAside also what is
  // gone, in one line. Empty if nothing.
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

}  // namespace cairn
