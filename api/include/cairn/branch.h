// SPDX-License-Identifier: Apache-2.0
//
// A branch: a named, movable head in the tree of conversations; users call it a session.
//
// Handles are small values that may be copied; all methods are thread-safe. They do not keep the
// store open: after Store::Close every call gives kInvalidState. A branch dropped through another
// handle gives kNotFound.
//
// token_length and kv_length: a sampled token has no KV before the next forward pass, so each layer
// group has a KV length that may lag behind the tokens. KV of a position is written once, with its
// token or later, in order. Nothing at or above kv_length is ever served.
//
// Ranges [begin, end) of positions: `end` UINT64_MAX is the branch's length. Nothing is clipped: a
// range that ends beyond the length, or begins behind its end, is kInvalidArgument, in every call
// that takes one. (RestorableLength, SamplerAt and MetadataAt take no range, but the largest
// position that may be found.)
//
// Sizes: cairn/limits.h says how large things may be. A larger thing is kInvalidArgument naming the
// field, and so is a value that an enum does not have; nothing is applied then.
//
// Hybrid models: a group whose retention rule is not kAll (cairn/model.h) may have gaps, positions
// that were never given KV: an append leaves out what the rule does not need. All groups are
// restored at one position; see Restore and RestorableLength.
//
// All calls have this in common, and the comments below do not repeat it:
//
//   Locks: a call that looks at a branch or changes one takes the store's commit lock, which orders
//     all changes, for a moment. It is never held across I/O or a wait.
//   The index: a branch that was not used for long is not in memory (Options::tree_memory_bytes).
//     The first call about it reads it from the index: some reads of the disk on the calling
//     thread, which no timeout bounds. RestoreAsync and Prefetch leave that to a thread of the
//     store.
//   Coalesced appends: with Options::delta_batch_tokens above 1 a call first applies what was
//     accepted for the branch. That waits while the log's memory is full, for a write of the log;
//     Append does not wait, and is kBusy.
//   Errors of every call: kInvalidState (the store is closed, the handle is empty, or this is a
//     child of fork()), kNotFound (the branch was dropped, or expired), kOutOfMemory, and of
//     reading the index kCorruption and kIoError.
//   Errors of every change: those, and kReadOnly (a follower), kPoisoned (the log failed earlier),
//     kNoSpace (max_bytes or the disk is full), kIoError (no further log segment can be made), and
//     kUnknownOutcome (the log failed after the change was given to it: reopen the store and look).
//   A crash: a change is there whole or not at all, and in the order of all changes. How much of
//     the acknowledged changes it may lose follows from their Durability (cairn/options.h): none at
//     kPower.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/completion.h"
#include "cairn/kv_view.h"
#include "cairn/model.h"
#include "cairn/options.h"
#include "cairn/status.h"

namespace [[gnu::visibility("default")]] cairn {

class StoreCore;
class DraftState;

enum class BranchId : uint64_t {};  // Given by the store, stable for its life. 0 is none.
// A stretch of a path, which branches share. Given by the store; 0 is none.
enum class NodeId : uint64_t {};
using TokenId = uint32_t;  // Any number; the store does not interpret it.

// Content that token ids alone do not identify: an image, audio, a prompt embedding. A fork or a
// rewind within one that is not atomic shortens it; its hash stays that of the whole.
struct ContentSpan {
  uint64_t begin = 0, end = 0;  // Positions.
  uint64_t hash[2] = {0, 0};    // Of the content; the caller's, and compared as it is.
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
  const AppMetadata* metadata = nullptr;  // Of the same position.
  std::span<const ContentSpan> spans{};   // Within the new tokens, in order.
  // `kv` is what the model computes for these tokens behind all tokens before them. False: it is an
  // approximation (taken from another context, or computed on top of KV that is one). The store
  // keeps the caller's word with the KV for as long as it has it, forks included; a restore tells
  // how much of what it delivers is approximate, and nothing approximate is ever taken for exact.
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
  // Of KV in the memory of a GPU: an event of that device (a cudaEvent_t), recorded by the caller,
  // behind which it may be read. The host waits for it, asynchronous calls on a thread of the
  // store. It lives until the call has returned, or the ticket is over. 0: it may be read at once.
  // Append, AppendSync and Fill; with a view of host memory kInvalidArgument.
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
  Durability durability = Durability::kProcess;  // Of the record that makes the branch.
};

// A branch as it was at one moment. A copy: it does not change with the branch.
struct BranchInfo {
  BranchId id{};
  std::string name{}, ns{};
  ModelId model{};
  NodeId node{};
  uint64_t length = 0;                 // Tokens.
  std::vector<uint64_t> kv_lengths{};  // Positions; one a layer group of the model.
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

// How a restore into a GPU and the caller's own work there wait for each other. The handles are
// CUDA's (a cudaEvent_t), of events of that device, which live until the restore is over.
struct GpuSync {
  // Recorded by the caller: what comes before it has ended with the memory that is written, and has
  // made the tables that are read. The host waits for it, on a thread of the store, when the first
  // window has been read, or before a table on the device is. 0: none.
  uintptr_t ready = 0;
  // Recorded by the restore, one a (group, layer) of the view, in view order, before the layer's
  // word says kLayerEnqueued: not before, since a wait for an event that was not recorded waits for
  // nothing. Empty: none; another number than the view has layers is kInvalidArgument.
  std::span<const uintptr_t> layer_events{};
  // A window that the device refuses to unpack, or of which it tells a fault although its checksums
  // are right, is unpacked on the host, once, and goes there raw. Off: the restore fails then. With
  // layer_events it does so for a fault in any case, since what waited for an event may have read
  // the layer.
  bool fall_back_to_host = false;
};

// The content that a restore brings, and the memory it goes to. A description only: it owns
// nothing.
struct RestoreRequest {
  // Positions [begin, end).
  uint64_t begin = 0;
  uint64_t end = UINT64_MAX;    // The branch's length.
  std::span<TokenId> tokens{};  // Room for end - begin ids at least, or empty: no ids.
  // Groups and layers wanted, and for which positions each GroupView has room. Null: no KV.
  //
  // How far: KV is restored for all groups up to one position L, the largest position <= end that
  // every group of the model reaches that is not optional. That is the smallest kv_length; but a
  // kChunkLocal group need not reach a beginning of a chunk, and a kPerRequest group reaches
  // everything. An optional group of the view is restored up to L, or to where it reaches itself. A
  // program that restores a branch in several calls gives all of them the same `end`.
  //
  // KV that must exist: of the positions in [begin, L) that the view has room for, those that the
  // group's rule needs at L (else kEvicted). The rest is restored where it is there; where it is
  // not, the caller's memory is left as it was. RestorableLength tells which `end` to ask for.
  //
  // Room: a kCheckpoint group with room in [begin, end) must have room for the row of position L -
  // 1, if that is not below `begin` (else kInvalidArgument, naming L).
  //
  // An example. A model has group 0, which keeps all positions, and group 1, a recurrent state
  // (kCheckpoint). The branch has 5000 tokens, the last of which was just sampled, so both
  // kv_lengths are 4999; states were given after 4096 and after 4999 tokens.
  //
  //   // All of it: L is 4999, though `end` is 5000. The state is row 4998.
  //   groups[0] = {.group = 0, .position = 0, .count = 5000, .planes = attention};
  //   groups[1] = {.group = 1, .position = 4998, .count = 1, .planes = state};
  //   auto all = branch.Restore({.tokens = ids, .into = &view});     // kv_ends {4999, 4999}
  //
  //   // At 4500 there is no state: .end = 4500 is kEvicted, "restorable up to position 4096".
  //   uint64_t end = branch.RestorableLength(4500).value();          // 4096
  //   groups[0].count = end;
  //   groups[1].position = end - 1;                                  // Row L - 1.
  //   auto part = branch.Restore({.end = end, .tokens = ids, .into = &view});
  //
  //   // The first half of the positions now, the rest later: the same `end` in both.
  //   groups[0] = {.group = 0, .position = 0, .count = 2048, .planes = attention};
  //   branch.Restore({.end = end, .into = &first_half});
  //   groups[0] = {.group = 0, .position = 2048, .count = 2048, .planes = attention_rest};
  //   branch.Restore({.begin = 2048, .end = end, .into = &second_half});
  //
  // A window group has two views when its sinks do not touch the window: positions [0, sinks) and
  // then [L - window, L).
  const KvView* into = nullptr;
  // L must be `end`, and so must the position that optional groups of the view reach: else
  // kEvicted, before anything was read, names the groups and positions that were never given and up
  // to which position it would work. A token that was just sampled has no KV yet, so of a branch
  // that is being generated `end` is to be given. Off: RestoreResult::kv_ends tells how far KV
  // reaches.
  bool require_kv = false;
  // Of a view of GPU memory; null: the memory may be written at once, and only the host waits. With
  // a view of host memory kInvalidArgument.
  const GpuSync* gpu = nullptr;
  uint64_t timeout_ns = UINT64_MAX;        // 0: kDeadlineExceeded unless memory holds all of it.
  const CompletionQueue* queue = nullptr;  // RestoreAsync only.
  uint64_t user_data = 0;
  // RestoreAsync: the owner of the memory that the call borrows, as AppendOptions::owner.
  std::shared_ptr<const void> owner{};
};

// The content that Branch::Prefetch brings in, and the memory it goes to.
struct PrefetchRequest {
  uint64_t begin = 0;
  uint64_t end = UINT64_MAX;  // The branch's length.
  // The ordinal of a GPU that it will be restored into: KV comes into the pinned memory that the
  // store has for it (GpuOptions::pinned_bytes; where there is none, nowhere). Nothing: all comes
  // into the page cache, for restores into host memory.
  std::optional<uint32_t> gpu{};
};

// Filled as a restore goes on. Must outlive it. One word a (group, layer) of the view, in view
// order, each a LayerState (cairn/completion.h); fewer words than layers are kInvalidArgument. The
// call sets all to kLayerPending; when the restore is over each is kLayerComplete or kLayerFailed,
// also where the call failed at once or was cancelled. To be polled with acquire order, or waited
// for: Ticket::WaitForLayer has a deadline; std::atomic::wait is woken as well.
struct LayerProgress {
  std::span<std::atomic<uint32_t>> layers{};
};

// The outcome of a restore.
struct RestoreResult {
  uint64_t begin = 0, end = 0;  // Tokens.
  // Per GroupView of the view: KV is in place up to here. Where there is room enough this is one
  // position for all groups that are not optional: the L of RestoreRequest::into. Of a group that
  // has two views, the first one's ends within it.
  std::vector<uint64_t> kv_ends{};
  uint64_t bytes = 0, hot_bytes = 0;  // KV bytes delivered; of these from memory.
  // Of `bytes` those out of tables of planes with another `sealed_as` than kLossless: they may
  // differ from what was appended (cairn/model.h). 0: every bit is as it was appended.
  uint64_t lossy_bytes = 0;
  // Of `bytes` those that were given with Delta::exact off. Content that stores hold from before
  // there was that field counts as exact.
  uint64_t approximate_bytes = 0;
};

// Memory for positions that are filled layer by layer and then committed as one delta: those that
// BeginAppend asked for, and before them the ones whose KV lags. Destroying a draft aborts it,
// unless it was committed. A crash costs the draft; nothing of it is in the store before Commit.
//
// A handle that may be copied; copies are of one draft. It keeps the store's memory, not the store,
// open.
//
// Threads: Put and PutFromGpu may be called from any thread, in any order, for different (group,
// layer) pairs at once. Commit, Abort and the destructor have no other call of the same handle, and
// no Put of the draft, beside them.
class Draft {
 public:
  Draft() = default;
  // For the library; programs get drafts from Branch::BeginAppend.
  explicit Draft(std::shared_ptr<DraftState> state) : state_(std::move(state)) {}
  // Copies one layer of the positions that the view describes; of each (group, layer) they go on
  // from, or repeat, what was staged, from the group's kv_length on. The view is of host memory,
  // and its planes have exactly one layer base each. Nothing is kept of the view. Takes no lock of
  // the store, does no I/O, and does not block. Errors:
  //   kInvalidArgument: the view does not fit the model or the draft; or the group keeps states
  //     (kCheckpoint, kPerRequest): these are given to Commit.
  //   kBusy: what is repeated is on its way from a GPU.
  //   kInvalidState: the draft is empty, committed or aborted.
  Status Put(uint32_t layer, const GroupView& view);
  // The same out of the memory of a GPU; the view has one group. Does not wait for the device: the
  // layer is gathered, by a thread of the store, when `ready` (AppendOptions::gpu_ready) was
  // reached, so that it leaves the GPU while later layers are computed. View and memory are
  // borrowed until the ticket of Commit is released, or Abort or the draft's destructor returns.
  // Commit's ticket tells an error on the way. Errors: those of Put, and
  //   kInvalidArgument: there is no such GPU in Options::gpus, or the view has not one group.
  //   kInvalidState: the store is closed.
  //   kIoError: the device refused; kOutOfMemory.
  Status PutFromGpu(uint32_t layer, const KvView& view, uintptr_t ready = 0);
  // Appends the first `tokens.size()` positions of the range, which may be fewer than were staged
  // (accepted speculation); KV of a group counts as far as all its layers were Put. Of `delta.kv`
  // only groups that keep states may be given, in host memory, borrowed as by Append. Ends the
  // draft, unless it fails: then nothing was applied and it may be tried again. Does not block on
  // the disk. Errors: those of Append, and
  //   kConflict: the branch was changed since BeginAppend, since what was Put would belong to other
  //     tokens.
  //   kInvalidArgument: more tokens than the draft has positions, or KV of a group that keeps no
  //     states.
  //   kInvalidState: committed or aborted before.
  Result<Ticket> Commit(const Delta& delta, const AppendOptions& options);
  // Ends the draft and frees its memory; what was committed goes on. Waits for what is being
  // gathered from a GPU just now.
  void Abort();

 private:
  std::shared_ptr<DraftState> state_;
};

// A handle of a branch. The top of this file says what all its calls have in common.
class Branch {
 public:
  Branch() = default;
  // For the library; programs get branches from Store.
  Branch(std::shared_ptr<StoreCore> core, BranchId id) : core_(std::move(core)), id_(id) {}
  bool valid() const { return core_ != nullptr; }  // Not an empty handle.
  BranchId id() const { return id_; }
  const std::shared_ptr<StoreCore>& core() const { return core_; }

  // --- What it is. These read no content, and block only for the index and for coalesced appends.
  // All of it in one look.
  Result<BranchInfo> Info() const;
  // Tokens, all that were applied: you read your writes. Not a mere accessor: it may read the
  // index.
  Result<uint64_t> length() const;
  // Tokens that survive power loss; at most length(). Of a follower it is length().
  Result<uint64_t> durable_length() const;
  // Root first.
  Result<std::vector<PathStep>> Path() const;

  // --- Appends
  // Asynchronous; never blocks on the disk, but for the index. Sources up to submit_copy_max_bytes
  // are copied in the call, larger ones are borrowed until the ticket is released; while one is
  // being gathered, further appends to this branch give kBusy. KV in the memory of a GPU is always
  // borrowed, and read when AppendOptions::gpu_ready was reached; nothing on the GPU waits for
  // that. Borrowed is all that the delta points to: tokens, the KvView with its arrays, tables and
  // memory, states, spans.
  //
  // The append is applied, in order, when this returns (borrowed: when the ticket is released);
  // with Options::delta_batch_tokens it may be accepted, and is applied before any other call looks
  // at the branch. Errors at once, without a ticket; then nothing was applied:
  //   kInvalidArgument: the delta does not fit the model, the branch or a limit; names the field.
  //   kConflict: expected_length.
  //   kBusy: group memory of the log is full, the log is as long as log_bytes_max allows, a large
  //     append of this branch is under way, room is being made by eviction, or staging memory, a
  //     share of max_memory_bytes, is used up (KV of a GPU).
  //   kNoSpace: no room, and nothing may be evicted for it. StatusReason::kNamespaceQuota: it is
  //     the namespace's cap.
  //   those of every change but kUnknownOutcome.
  // The ticket ends with Ok when `durability` is reached. Otherwise it was not applied:
  //   kCancelled, kDeadlineExceeded, kPoisoned
  //   kInvalidArgument: a borrowed delta does not go on where the branch ends, or a table on the
  //     device leads out of the view.
  //   kBusy, kNoSpace, kIoError, kOutOfMemory: a borrowed or coalesced append found no room, or the
  //     device failed.
  // or it was applied, and is not known to be as durable as asked:
  //   kUnknownOutcome: the log failed, the deadline passed, the ticket was cancelled, or the store
  //     closed.
  Result<Ticket> Append(const Delta& delta, const AppendOptions& options = {});
  // Blocking: waits for room, and leads the group commit on this thread, until `durability` is
  // reached or timeout_ns is over. The delta is borrowed until it returns. Where the live log nears
  // log_bytes_max the call is slowed, and held at the limit. The length after the append. Errors:
  //   kInvalidArgument, kConflict: as of Append.
  //   kNoSpace: no room came, after eviction or two rounds of the background.
  //   kDeadlineExceeded: nothing was applied.
  //   kUnknownOutcome: applied, but not known to be as durable as asked; retry with
  //     expected_length.
  //   kBusy: KV of a GPU, and staging memory is used up.
  //   those of every change, and of a GPU kIoError.
  Result<uint64_t> AppendSync(const Delta& delta, const AppendOptions& options = {});
  // Staging for positions [length, length + positions), and for those before it whose KV lags, in
  // host memory of the store. Does no I/O but for the index. Errors:
  //   kBusy: staging memory, a share of max_memory_bytes, is used up.
  //   kInvalidArgument: it could never hold so many, or `positions` is 0 or beyond
  //     kMaxAppendTokens.
  //   kReadOnly, kPoisoned, and those of every call.
  Result<Draft> BeginAppend(uint64_t positions);
  // Attaches recomputed KV to positions that have none: from a group's kv_length on (or beyond, as
  // in Delta::kv), and those that were evicted (EvictedKv) or left out. So a state may be given for
  // a position that had none. KV of the view below kv_length is ignored where the branch has it
  // already, so that the KV of a whole prefix may be given; up to kv_length the bytes must be those
  // of the branch's own tokens, which the store cannot check.
  //
  // KV beyond kv_length is one delta; positions below it get theirs in steps, each of them atomic:
  // when one fails, or in a crash, those before it are there. Branches that share the positions get
  // them as well. Blocking, as AppendSync; the view is borrowed until it returns. Errors: those of
  // AppendSync, and
  //   kConflict: expected_length; or another call shortened the branch meanwhile.
  Status Fill(const KvView& kv, const AppendOptions& options = {});
  // --- How far KV is there. As Info, these read no content.
  // The evicted parts of [begin, end), by group and position. Of a group whose rule is not kAll:
  // what a restore of [begin, end) needs and misses, evicted or never given. KV that lags, beyond a
  // group's kv_length, is not told. kInvalidArgument: no such range.
  Result<std::vector<KvHole>> EvictedKv(uint64_t begin = 0, uint64_t end = UINT64_MAX) const;
  // The largest position <= at_most, and <= length(), at which every group of the model that is not
  // optional has what its rule needs: what Restore can deliver with this `end`; 0: none. Reads no
  // content, so damage is not noticed. A model without groups: its tokens.
  Result<uint64_t> RestorableLength(uint64_t at_most = UINT64_MAX) const;
  // --- Changes without content. Blocking: until the record is as durable as `durability` says, and
  // before that while the log's memory or space for the record is lacking. No deadline. Errors:
  // those of every change, and what is listed.
  // Replaces all of Keep. Works where there is no room for data. kInvalidArgument: `durability`.
  Status SetKeep(const Keep& keep, Durability durability = Durability::kProcess);

  // A new branch with this one's first `position` tokens. Constant time; no data is copied. It
  // shares the KV that lies on the same nodes as those tokens: KV that lags behind `position`, or
  // that this branch filled in for tokens it shares with an older one, is not passed on, and the
  // new branch is filled by itself. Info() tells its kv_lengths.
  //   kInvalidArgument: beyond the length, inside an atomic span, or the name or namespace is too
  //     long, holds a NUL, or is one of objects.
  //   kAlreadyExists: the name is taken in its namespace.
  Result<Branch> ForkAt(uint64_t position, const BranchOptions& options = {}) const;
  // Forgets everything from `length` on. In place when no other branch reaches beyond; else the
  // tokens stay for those that do. Below the first token of its own a branch loses KV that it
  // filled in by itself, as in ForkAt. Works where there is no room for data.
  //   kInvalidArgument: beyond the branch's length, or inside an atomic span.
  //   kBusy: a large append of this branch is under way.
  Status Rewind(uint64_t length, Durability durability = Durability::kProcess);
  // An empty name makes it unnamed. The namespace stays.
  //   kInvalidArgument: too long, or holds a NUL.
  //   kAlreadyExists: another branch has the name.
  Status Rename(const std::string& name, Durability durability = Durability::kProcess);
  // The branch is gone for all handles; content that no other branch needs is given back in the
  // background. Works where there is no room for data.
  //   kBusy: a large append of this branch is under way.
  Status Drop(Durability durability = Durability::kProcess);

  // --- Reading content
  // Blocking: reads the disk for what memory does not hold, on this thread and on helpers, and may
  // stand in line for memory (max_memory_bytes), until timeout_ns. The request's memory is borrowed
  // until it returns. The branch counts as used. Content that is being read is pinned: a rewind, an
  // eviction or a drop meanwhile does not disturb it.
  //
  // On failure the target's contents are undefined and nothing was reported good beyond `progress`.
  // Errors:
  //   kInvalidArgument: the range, the view, room for ids or words, or the GPU; names the field.
  //   kEvicted: positions that are missing (EvictedKv), and up to which position it would work;
  //     before anything was read.
  //   kCorruption: names file, offset and the longest restorable prefix. Of a GPU also a fault that
  //     it tells although the checksums are right.
  //   kStale: of a follower whose writer gave files back again and again; retry.
  //   kDeadlineExceeded; kIoError, the disk's or the device's; kOutOfMemory, pinned and device
  //     memory included; and those of every call.
  Result<RestoreResult> Restore(const RestoreRequest& request,
                                LayerProgress* progress = nullptr) const;
  // The same by a thread of the store; does not block. The request's spans, views, events and
  // `progress` are borrowed until the ticket is done; Ticket::restored() then tells what Restore
  // would have returned. At once only kInvalidState and kOutOfMemory; every other error is the
  // ticket's, and kCancelled (Ticket::Cancel, which is heard between pieces).
  Result<Ticket> RestoreAsync(const RestoreRequest& request,
                              LayerProgress* progress = nullptr) const;
  // A hint that positions [begin, end) will be restored soon, when a request waits in a queue, say:
  // what tables hold of them, ids and KV of all groups, is brought into memory in the background,
  // from `begin` on and up to half of what the page cache may have. Never blocks on the disk, and
  // does not read the index. Errors, damage and a branch that was dropped included, are left to the
  // restore; metrics count them.
  //   kBusy: many hints are waiting (64); nothing is done.
  //   kInvalidArgument: the range, as far as the branch is in memory.
  Status Prefetch(uint64_t begin = 0, uint64_t end = UINT64_MAX) const;
  // The same for a GPU: KV comes into pinned memory, up to half of it. kInvalidArgument for one
  // that the store was not given.
  Status Prefetch(const PrefetchRequest& request) const;
  // The ids of [begin, end). As Restore of ids alone, without a deadline; needs memory for all of
  // them at once.
  Result<std::vector<TokenId>> ReadTokens(uint64_t begin, uint64_t end) const;
  // The newest state set at a position <= `position` tokens.
  struct StateAt {
    uint64_t position = 0;  // Number of tokens it belongs after.
    std::optional<SamplerState> sampler;
    std::optional<AppMetadata> metadata;
  };
  // Blocking: may read the disk; no deadline. `position` may be beyond the length. The branch does
  // not count as used. Errors: kNotFound, when no such state was set, kCorruption, kIoError, kStale
  // (of a follower), and those of every call.
  Result<StateAt> SamplerAt(uint64_t position) const;
  Result<StateAt> MetadataAt(uint64_t position) const;
  // Those with a position in [begin, end), whole, by position. Reads no content. kInvalidArgument:
  // no such range.
  Result<std::vector<ContentSpan>> Spans(uint64_t begin, uint64_t end) const;

 private:
  std::shared_ptr<StoreCore> core_;
  BranchId id_{};
};

}  // namespace cairn
