// SPDX-License-Identifier: Apache-2.0
//
// A store: a directory that one process owns for writing. Everything begins here.
//
//   auto store = cairn::Store::Open("state", {.create_if_missing = true});   // or ":memory:"
//   auto model = store->RegisterModel(spec);
//   auto chat  = store->CreateBranch(*model, {.name = "chat-42"});
//   chat->AppendSync({.tokens = ids, .kv = &view}, {.durability = cairn::Durability::kPower});
//
// Thread-safe. No thread exists before Open. A store does not survive fork(): in the child every
// call gives kInvalidState; Metrics and Models are empty there.
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

struct ModelInfo {
  ModelId id{};
  ModelSpec spec;
};

struct BranchPage {
  std::vector<BranchInfo> branches;
  std::string cursor;  // Pass it on for the next page; empty: no more.
};

// Several changes, to one or many branches: all of them or none, in one record. Built on one
// thread, then given to Store::Write. At most kMaxBatchOps changes, and 4 MiB of tokens and KV in
// all, less where a log segment or half of hot_tail_bytes holds less; larger deltas are appended by
// themselves. All of it, names and states too, is one record of the log: kInvalidArgument when that
// would be larger than one may be. Deltas are borrowed until Write returns.
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
  struct Op {
    enum class Kind : uint8_t { kCreate, kFork, kAppend, kFill, kRewind, kRename, kDrop } kind{};
    Target target;  // kFork: what is forked.
    ModelId model{};
    uint64_t position = 0;  // kFork, kRewind.
    BranchOptions options;  // kCreate, kFork; kRename: name.
    Delta delta;            // kAppend, kFill.
    std::optional<uint64_t> expected_length{};
  };

  int Create(ModelId model, BranchOptions options);  // The index for later use in the batch.
  int Fork(Target from, uint64_t position, BranchOptions options);
  void Append(Target to, const Delta& delta, std::optional<uint64_t> expected_length = {});
  void Rewind(Target branch, uint64_t length);
  void Rename(Target branch, std::string name);
  void Drop(Target branch);
  const std::vector<Op>& ops() const { return ops_; }

 private:
  std::vector<Op> ops_;
  int created_ = 0;  // By Create and Fork.
};

enum class VerifyLevel : uint8_t {
  kHeaders,  // What opening reads: MANIFEST, OPTIONS, the log's headers, the tables' footers.
  kIndex,    // Also every block of the index, the directories of the tables, and whether all these
             // fit each other: parents exist, lanes have no gaps, what is sealed is there.
  kAll,      // Also every payload of the log and every frame of the tables, checksum and decoding.
};

struct VerifyReport {
  uint64_t records = 0, strips = 0;       // Of the log.
  uint64_t index_tables = 0, tables = 0;  // Of the index; snapshot tables.
  uint64_t frames = 0;                    // Of snapshot tables.
  uint64_t bytes = 0;                     // Of strips and frames.
  struct Damage {
    // A path below the store's directory, as "log/0000000000000011.log: offset 4096" or
    // "tables/0000000000000012.snapshot"; or "log", "tree", MANIFEST, OPTIONS.
    std::string where;
    std::string what;       // A Status as text; its paths are below the store's directory, too.
    uint64_t sequence = 0;  // Of the damaged record; 0: it is none, or not known.
  };
  std::vector<Damage> damages;
};

struct RefreshResult {
  bool changed = false;   // Something is shown that was not before.
  uint64_t sequence = 0;  // Every change up to here is shown, none behind.
};

// What Store::Checkpoint made.
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

class Store {
 public:
  // `path` is a directory, looked up now and then held, or ":memory:", which goes with this object.
  // kNotFound (no store there and create_if_missing is off), kInvalidState (a directory with
  // something else in it), kLocked, kCorruption, kUnsupportedFormat, kNoSpace, kReadOnly, kIoError
  // (the disk's, or no thread was to be had), kInvalidArgument.
  static Result<Store> Open(const std::string& path, const Options& options = {});
  Store() = default;
  Store(Store&&) = default;
  Store& operator=(Store&& other) noexcept;  // Closes what it held.
  ~Store();                                  // Closes; errors are lost, so call Close.

  // Idempotent: the same spec gives the same id. A spec with a known identity and variant but other
  // shapes is kModelMismatch, naming the field.
  Result<ModelId> RegisterModel(const ModelSpec& spec, Durability durability = Durability::kPower);
  Result<ModelInfo> GetModel(ModelId id) const;
  std::vector<ModelInfo> Models() const;

  Result<Branch> CreateBranch(ModelId model, const BranchOptions& options = {});
  Result<Branch> FindBranch(std::string_view name, std::string_view ns = {}) const;
  Result<Branch> GetBranch(BranchId id) const;
  // Named branches of a namespace whose names begin with `prefix`, in order of name. Unnamed ones
  // have the name "" and come first, in order of id.
  Result<BranchPage> ListBranches(std::string_view ns, std::string_view prefix, size_t limit,
                                  const std::string& cursor = {}) const;
  // Those that have branches or a policy, in order of name. All of them are in memory: a namespace
  // is for a tenant, not for every conversation.
  Result<std::vector<NamespaceInfo>> Namespaces() const;
  // Also of one that has no branch yet. NamespacePolicy() is as if none had been set.
  Status SetNamespace(const std::string& ns, const NamespacePolicy& policy,
                      Durability durability = Durability::kPower);

  // The branches that Create and Fork made, by their index. A failure applies nothing.
  struct WriteResult {
    std::vector<Branch> created;
    Ticket ticket;
  };
  Result<WriteResult> Write(const WriteBatch& batch, const AppendOptions& options = {});

  // --- What is there already (cairn/find.h)
  // Of all that has a prefix in common with the tokens the place that has most of it: among those
  // that agree on the last whole block of 64 positions that anybody has, the one of which most can
  // be restored, then the longest, then the newest. Exact to the token, where no more than
  // kPrefixCandidates nodes hold the same first tokens; else to 64. No hit is no error. What others
  // append beside the call may be seen or not.
  // A store that is read only answers from what it shows (Refresh), if its writer indexes.
  // kInvalidArgument (naming the field), kNotFound (no such model), kInvalidState (nothing is
  // indexed: Options::index is kNone, or was the writer's), kBusy (memory_only),
  // kCorruption, kIoError, kOutOfMemory.
  Result<PrefixHit> FindPrefix(const PrefixQuery& query) const;
  // A branch that begins with the hit's first `position` tokens, up to `matched`. The hit may be
  // old: kConflict when other tokens have taken the place, kNotFound when it was dropped. Either
  // way it never is a branch of other tokens. Other errors are those of Branch::Fork, and what
  // reading ends with.
  Result<Branch> Fork(const PrefixHit& hit, uint64_t position, const BranchOptions& options = {});
  // As Branch::Restore, of positions up to `matched`, which is also the `end` that is left out; and
  // the errors of Fork before anything is written.
  Result<RestoreResult> Restore(const PrefixHit& hit, const RestoreRequest& request,
                                LayerProgress* progress = nullptr) const;
  // From now on for so long. kNotFound: it is over; what it held may be gone.
  Status Renew(LeaseId lease, uint64_t lease_ns);
  Status Release(LeaseId lease);  // Also of one that is over, and of none.

  // Everything acknowledged or applied so far becomes durable (kPower).
  Status Flush();
  // Of a store that is read only: shows what has become durable since it was opened or refreshed
  // last. Cheap when nothing has. Beside a writer an append shows some ten milliseconds after it
  // was made durable; one that was only written, kProcess or kMemory, when a later one is. Writes
  // nothing. Other calls may go on meanwhile: each sees the store before or after.
  // kInvalidState (not read only), kStale (the writer replaces files faster than they are read),
  // kCorruption (also when a writer salvaged the store and cut what was shown: open it anew),
  // kUnsupportedFormat, kIoError, kOutOfMemory. After an error it shows what it showed before.
  Result<RefreshResult> Refresh();
  // Everything that was appended so far is sealed into tables: packed without loss, and no longer
  // in need of the log. Happens by itself in the background; a caller who wants it now waits here.
  // Where max_bytes or the disk leaves little room it goes segment by segment; kNoSpace when there
  // is not even room for one (others filled the disk). Goes as fast as the background may
  // (Options::background_bytes_per_second). kInvalidState while that is paused; a call that waits
  // already when it is paused waits until it is resumed, or the store closed. kCorruption: what is
  // damaged stays where it is, until it is dropped or evicted; of the log what comes after it, too.
  Status Compact();
  // A copy of the store at `path` that opens as a store, made while others write: it holds all that
  // was acknowledged or applied before the call, and is durable when the call returns. Tables are
  // hard links (copies on another volume), the log is copied. Sealing waits meanwhile; Compact
  // before it makes the log, and so the copy, small.
  //
  // `path` is in the same world, and absent or an empty directory, whose parent is there.
  // kAlreadyExists (a store is there), kInvalidState (something else is, the background is paused,
  // or the store is closed), kLocked (another checkpoint goes there), kReadOnly, kPoisoned,
  // kCorruption, kNoSpace, kIoError, kCancelled (Close came first). After an error nothing is left,
  // or the message says what; after a crash a directory that does not open.
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
  // checkpoint or old log segment written or deleted, until ResumeBackground was called as many
  // times: for quiet moments, and for copying the files. Work under way stands still where it is.
  // Everything else goes on. What is appended meanwhile stays in the log, which grows beyond
  // log_bytes_max if it must; only max_bytes and the disk bound it then, with kNoSpace as ever, and
  // also where a call would wait for eviction. Not to be called from an EventListener.
  Status PauseBackground();
  Status ResumeBackground();  // kInvalidState without a pause.
  Result<CompletionQueue> NewCompletionQueue();

  // Reads from the device, not from memory, in large pieces on the calling thread, and goes on
  // after damage, which the report lists place by place. What comes while it runs is not checked;
  // space is given back meanwhile, except in the part that is being read. Beside a writer in
  // another process: kStale when that replaces files faster than they are read.
  Result<VerifyReport> Verify(VerifyLevel level, const VerifyProgress& progress = {}) const;
  StoreMetrics Metrics() const;
  // Of the metrics now, see cairn/metrics.h.
  std::string PrometheusText(std::string_view label = {}) const;
  cairn::Health Health() const;
  Status poisoned() const;  // Ok while healthy, else why.
  // "io_uring", "threads", "memory", "simulated"; and how a commit becomes durable.
  std::string io_name() const;
  std::string sync_method() const;
  // What recovery had to drop at the end of the log, or had to cut when salvaging; empty if
  // nothing.
  std::string recovery_note() const;

  // Waits for what was given to the log, makes it durable, ends all threads, closes the files of
  // log and tables and gives buffers and caches back; tree, index and directories go with the last
  // handle of the store, its branches and tickets. Of a log that short-lived processes or a cap
  // have made too long it waits for the background to seal some.
  // Idempotent: another call returns what the first one did, when that is over.
  Status Close();
  std::shared_ptr<StoreCore> core() const { return core_; }

 private:
  std::shared_ptr<StoreCore> core_;
};

// The version of the store's directory as a whole. Each file has a version of its own besides.
inline constexpr uint32_t kFormatVersion = 1;

}  // namespace cairn
