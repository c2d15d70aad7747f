// SPDX-License-Identifier: Apache-2.0
//
// A branch: a named, movable head in the tree of conversations. What a user calls a session.
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
// Sizes: cairn/limits.h says how large things may be. What is larger is kInvalidArgument naming the
// field, and so is a value that an enum does not have; nothing is applied then.
//
// Hybrid models: a group whose retention rule is not kAll (cairn/model.h) may have gaps, positions
// that were never given KV: an append leaves out what the rule does not need. All groups are
// restored at one position; see Restore and RestorableLength.
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

enum class BranchId : uint64_t {};
enum class NodeId : uint64_t {};
using TokenId = uint32_t;

// Content that token ids alone do not identify: an image, audio, a prompt embedding. A fork or a
// rewind within one that is not atomic cuts it: it ends there then, and the hash is still of all.
struct ContentSpan {
  uint64_t begin = 0, end = 0;  // Positions.
  uint64_t hash[2] = {0, 0};
  bool atomic = false;  // No fork or rewind inside it.
  bool operator==(const ContentSpan&) const = default;
};

enum class GeneratorKind : uint8_t { kNone = 0, kPhilox = 1, kMt19937 = 2, kNamed = 3 };

// The sampler, so that the next token comes out the same.
struct SamplerState {
  GeneratorKind generator = GeneratorKind::kNone;
  uint64_t philox_seed = 0, philox_offset = 0;
  std::string blob_name{};  // kMt19937: empty; kNamed: whose state `blob` is.
  uint32_t blob_version = 0;
  std::vector<std::byte> blob{};
  double temperature = 1.0, top_p = 1.0, min_p = 0.0, repetition_penalty = 1.0;
  uint32_t top_k = 0;
  std::vector<float> last_logits{};  // Optional.
  bool operator==(const SamplerState&) const = default;
};

struct AppMetadata {
  std::string content_type{};  // "application/msgpack", ...
  std::vector<std::byte> bytes{};
  bool operator==(const AppMetadata&) const = default;
};

// What one append adds; atomic. Pointers may be null.
//
// Without tokens and KV it sets a state, sampler, metadata or both, at the length that the branch
// has, 0 included: instead of what stood there. Other branches keep what they have; forks and
// rewinds to that length have it.
struct Delta {
  std::span<const TokenId> tokens{};
  // Each group from its kv_length on; may lag behind the tokens. A group whose rule is not kAll may
  // also begin beyond its kv_length: what lies between is left out, a gap, and kv_length is then
  // where this view ends. A kPerRequest group: position 0 alone, once.
  const KvView* kv = nullptr;
  const SamplerState* sampler = nullptr;  // As it is after these tokens.
  const AppMetadata* metadata = nullptr;
  std::span<const ContentSpan> spans{};  // Within the new tokens.
  // `kv` is what the model computes for these tokens behind all tokens before them. False: it is an
  // approximation (taken from another context, or computed on top of KV that is one). The store
  // keeps the caller's word with the KV for as long as it has it, forks included; a restore tells
  // how much of what it delivers is approximate, and nothing approximate is ever taken for exact.
  bool exact = true;
};

// What an asynchronous append does when buffers are full.
enum class Overload : uint8_t {
  kFail,  // kBusy at once.
  // Keep the tokens, drop the KV: kv_length stays, until Fill. kBusy only if there is no room for
  // the tokens alone: while the log waits for its next segment.
  kShedKv,
};

struct AppendOptions {
  Durability durability = Durability::kProcess;
  // kConflict, naming the real length, when the branch is not this long: makes a retry after an
  // unknown outcome harmless.
  std::optional<uint64_t> expected_length{};
  // The last append of a turn: with Persist::kTurnEnd the one whose KV is kept.
  bool ends_turn = false;
  // From the call; then kDeadlineExceeded (nothing was applied) or kUnknownOutcome. 0: nothing is
  // waited for (cairn/completion.h).
  uint64_t timeout_ns = UINT64_MAX;
  Overload overload = Overload::kFail;     // Append only.
  bool exact = true;                       // Fill only: as Delta::exact.
  // Of KV in the memory of a GPU: an event of that device (a cudaEvent_t), recorded by the caller,
  // behind which it may be read. The host waits for it, asynchronous calls on a thread of the
  // store. It lives until the call has returned, or the ticket is over. 0: it may be read at once.
  uintptr_t gpu_ready = 0;
  const CompletionQueue* queue = nullptr;  // Append only: gets the completion.
  uint64_t user_data = 0;
  // Append and Commit: who owns what the call borrows, so that nobody has to wait with it for the
  // ticket. Let go of once none of it is read any more, mostly on a thread of the store: it must
  // not call into the store then, nor throw.
  std::shared_ptr<const void> keep{};
};

struct BranchOptions {
  std::string name{};  // Unique in its namespace; empty: unnamed. At most kMaxNameBytes, no NUL.
  std::string ns{};    // Namespace; likewise.
  Keep keep{};
  Durability durability = Durability::kProcess;
};

struct BranchInfo {
  BranchId id{};
  std::string name{}, ns{};
  ModelId model{};
  NodeId node{};
  uint64_t length = 0;                            // Tokens.
  std::vector<uint64_t> kv_lengths{};             // One a layer group.
  uint64_t created_at_ns = 0, updated_at_ns = 0;  // Since 1970, written down only.
  uint64_t used_at_ns = 0;  // Appended to, forked or restored; the latter is lost in a crash.
  Keep keep{};
};

// Positions of a layer group that lost their KV (cairn/keep.h), or that were never given what the
// group's rule needs.
struct KvHole {
  uint32_t group = 0;
  uint64_t begin = 0, end = 0;
  bool operator==(const KvHole&) const = default;
};

// One stretch of the path from the root to the head. Empty: a node that only holds a state.
struct PathStep {
  NodeId node{};
  NodeId parent{};              // 0: none.
  uint64_t begin = 0, end = 0;  // Positions of this path on the node.
  BranchId owner{};             // 0: nobody may extend it any more.
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
  // nothing. Empty: none.
  std::span<const uintptr_t> layer_events{};
  // A window that the device refuses to unpack, or of which it tells a fault although its checksums
  // are right, is unpacked on the host, once, and goes there raw. Off: the restore fails then. With
  // layer_events it does so for a fault in any case, since what waited for an event may have read
  // the layer.
  bool fall_back_to_host = false;
};

struct RestoreRequest {
  uint64_t begin = 0;
  uint64_t end = UINT64_MAX;    // The branch's length.
  std::span<TokenId> tokens{};  // Room for end - begin ids, or empty.
  // Groups and layers wanted, and for which positions each GroupView has room. Restored are those
  // within [begin, L), where L is the largest position <= end that every group of the model reaches
  // that is not optional: the smallest kv_length, but a kChunkLocal group need not reach a
  // beginning of a chunk, and a kPerRequest group reaches everything. An optional group of the view
  // is restored up to L or to where it reaches itself. So whoever restores a branch in several
  // calls gives all of them the same `end`.
  //
  // Of what there is room for, what the group's rule needs at L must be there (else kEvicted); the
  // rest is restored where it is there, and where it is not the memory is left as it was. A
  // kCheckpoint group with room in [begin, end) must have room for the row of position L - 1, if
  // that is not below begin (else kInvalidArgument, naming L). RestorableLength tells which `end`
  // to ask for.
  const KvView* into = nullptr;
  // L must be `end`, and so must the position that optional groups of the view reach: else
  // kEvicted, before anything was read, names the groups and positions that were never given and up
  // to which position it would work. A token that was just sampled has no KV yet, so of a branch
  // that is being generated `end` is to be given. Off: RestoreResult::kv_ends tells how far KV
  // reaches.
  bool require_kv = false;
  // Of a view of GPU memory; null: the memory may be written at once, and only the host waits.
  const GpuSync* gpu = nullptr;
  uint64_t timeout_ns = UINT64_MAX;        // 0: kDeadlineExceeded unless memory holds all of it.
  const CompletionQueue* queue = nullptr;  // RestoreAsync only.
  uint64_t user_data = 0;
  // RestoreAsync: who owns what the call borrows, as AppendOptions::keep.
  std::shared_ptr<const void> keep{};
};

// What Branch::Prefetch is to bring in, and where.
struct PrefetchRequest {
  uint64_t begin = 0;
  uint64_t end = UINT64_MAX;  // The branch's length.
  // The ordinal of a GPU that it will be restored into: KV comes into the pinned memory that the
  // store has for it (GpuOptions::pinned_bytes; where there is none, nowhere). Nothing: all comes
  // into the page cache, for restores into host memory.
  std::optional<uint32_t> gpu{};
};

// Filled as a restore goes on. Must outlive it. One word a (group, layer) of the view, in view
// order, each a LayerState (cairn/completion.h). The call sets all to kLayerPending; when the
// restore is over each is kLayerComplete or kLayerFailed, also where the call failed at once or was
// cancelled. To be polled, or waited for: Ticket::WaitForLayer has a deadline; std::atomic::wait is
// woken as well.
struct LayerProgress {
  std::span<std::atomic<uint32_t>> layers{};
};

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
  // Of `bytes` those that were given with Delta::exact off. What stores hold from before there was
  // that field counts as exact.
  uint64_t approximate_bytes = 0;
};

// Memory for positions that are filled layer by layer and then committed as one delta: those that
// BeginAppend asked for, and before them the ones whose KV lags. Put may be called from any thread,
// in any order, for different (group, layer) pairs at once. Destroying a draft aborts it.
class Draft {
 public:
  Draft() = default;
  explicit Draft(std::shared_ptr<DraftState> state) : state_(std::move(state)) {}
  // Copies one layer of the positions that the view describes; of each (group, layer) they go on
  // from, or repeat, what was staged, from the group's kv_length on. The view's planes have exactly
  // one layer base each. Nothing is kept of the view. kInvalidArgument for groups that keep states
  // (kCheckpoint, kPerRequest): these are given to Commit.
  Status Put(uint32_t layer, const GroupView& view);
  // The same out of the memory of a GPU; the view has one group. Does not wait for the device: the
  // layer is gathered, by a thread of the store, when `ready` (AppendOptions::gpu_ready) was
  // reached, so that it leaves the GPU while later layers are computed. View and memory are
  // borrowed until the ticket of Commit is released, or Abort or the draft's destructor returns.
  // What goes wrong on the way, Commit or its ticket tells. kBusy: what is repeated is still on its
  // way.
  Status PutFromGpu(uint32_t layer, const KvView& view, uintptr_t ready = 0);
  // Appends the first `tokens.size()` positions of the range, which may be fewer than were staged
  // (accepted speculation); KV of a group counts as far as all its layers were Put. Of `delta.kv`
  // only groups that keep states may be given, in host memory, borrowed as by Append. Ends the
  // draft, unless it fails: then nothing was applied and it may be tried again. kConflict when the
  // branch was changed since BeginAppend, since what was Put would belong to other tokens.
  Result<Ticket> Commit(const Delta& delta, const AppendOptions& options);
  void Abort();  // Waits for what is being gathered from a GPU just now.

 private:
  std::shared_ptr<DraftState> state_;
};

class Branch {
 public:
  Branch() = default;
  Branch(std::shared_ptr<StoreCore> core, BranchId id) : core_(std::move(core)), id_(id) {}
  bool valid() const { return core_ != nullptr; }
  BranchId id() const { return id_; }
  const std::shared_ptr<StoreCore>& core() const { return core_; }

  Result<BranchInfo> Info() const;
  Result<uint64_t> length() const;             // Applied: you read your writes.
  Result<uint64_t> durable_length() const;     // Tokens that survive power loss.
  Result<std::vector<PathStep>> Path() const;  // Root first.

  // Asynchronous; never blocks on the disk. Sources up to submit_copy_max_bytes are copied in the
  // call, larger ones are borrowed until the ticket is released; while one is being gathered,
  // further appends to this branch give kBusy. KV in the memory of a GPU is always borrowed, and
  // read when AppendOptions::gpu_ready was reached; nothing on the GPU waits for that. kBusy when
  // staging memory, a share of max_memory_bytes, is used up; a table on the device that leads out
  // of the view ends the ticket with kInvalidArgument, and nothing was applied.
  // Fails at once (no ticket) with kInvalidArgument, kConflict, kModelMismatch, kNotFound, kBusy,
  // kNoSpace, kIoError (no further log segment can be made), kPoisoned, kReadOnly: then nothing was
  // applied.
  // The append is applied, in order, when this returns (borrowed: when it is released).
  Result<Ticket> Append(const Delta& delta, const AppendOptions& options = {});
  // Blocking: leads the group commit on this thread. The length after the append.
  Result<uint64_t> AppendSync(const Delta& delta, const AppendOptions& options = {});
  // Staging for positions [length, length + positions). kBusy when staging memory is used up,
  // kInvalidArgument when it could never hold so many.
  Result<Draft> BeginAppend(uint64_t positions);
  // Attaches recomputed KV to positions that have none: from a group's kv_length on (or beyond, as
  // in Delta::kv), and those that were evicted (EvictedKv) or left out. So a state may be given for
  // a position that had none. Of the view what lies below kv_length and is there already is left
  // alone, so that the KV of a whole prefix may be given; up to kv_length the bytes must be those
  // of the branch's own tokens, which nobody can check. What goes beyond kv_length is one delta;
  // positions below it get theirs in steps, each of them atomic: when one fails, or in a crash,
  // those before it are there. Branches that share the positions get them as well.
  Status Fill(const KvView& kv, const AppendOptions& options = {});
  // What of [begin, end) was evicted, by group and position. Of a group whose rule is not kAll:
  // what a restore of [begin, end) needs and misses, evicted or never given.
  Result<std::vector<KvHole>> EvictedKv(uint64_t begin = 0, uint64_t end = UINT64_MAX) const;
  // The largest position <= at_most, and <= length(), at which every group of the model that is not
  // optional has what its rule needs: what Restore can deliver with this `end`; 0: none. Reads no
  // content, so damage is not noticed. A model without groups: its tokens.
  Result<uint64_t> RestorableLength(uint64_t at_most = UINT64_MAX) const;
  Status SetKeep(const Keep& keep, Durability durability = Durability::kProcess);

  // A new branch with this one's first `position` tokens. Constant time; no data is copied. It
  // shares the KV that lies on the same nodes as those tokens: KV that lags behind `position`, or
  // that this branch filled in for tokens it shares with an older one, is not passed on, and the
  // new branch is filled by itself. Info() tells its kv_lengths.
  Result<Branch> ForkAt(uint64_t position, const BranchOptions& options = {}) const;
  // Forgets everything from `length` on. In place when nobody else reaches beyond. Below the first
  // token of its own a branch loses KV that it filled in by itself, as in ForkAt.
  Status Rewind(uint64_t length, Durability durability = Durability::kProcess);
  Status Rename(const std::string& name, Durability durability = Durability::kProcess);
  Status Drop(Durability durability = Durability::kProcess);

  // Blocking. On failure the target's contents are undefined and nothing was reported good beyond
  // `progress`. kCorruption names file, offset and the longest restorable prefix; kEvicted the
  // positions that are missing (EvictedKv) and up to which position it would work, before anything
  // was read.
  Result<RestoreResult> Restore(const RestoreRequest& request,
                                LayerProgress* progress = nullptr) const;
  // The request's spans and views are borrowed until the ticket is done; Ticket::restored() then
  // tells what Restore would have returned.
  Result<Ticket> RestoreAsync(const RestoreRequest& request,
                              LayerProgress* progress = nullptr) const;
  // A hint that positions [begin, end) will be restored soon, when a request waits in a queue, say:
  // what tables hold of them, ids and KV of all groups, is brought into memory in the background,
  // from `begin` on and up to half of what the page cache may have. Never blocks on the disk.
  // Errors, damage included, are left to the restore; metrics count them. kBusy, and nothing is
  // done, when many hints are waiting.
  Status Prefetch(uint64_t begin = 0, uint64_t end = UINT64_MAX) const;
  // The same for a GPU: KV comes into pinned memory, up to half of it. kInvalidArgument for one
  // that the store was not given.
  Status Prefetch(const PrefetchRequest& request) const;
  Result<std::vector<TokenId>> ReadTokens(uint64_t begin, uint64_t end) const;
  // The newest state set at a position <= `position` tokens; kNotFound when none is.
  struct StateAt {
    uint64_t position = 0;  // Number of tokens it belongs after.
    std::optional<SamplerState> sampler;
    std::optional<AppMetadata> metadata;
  };
  Result<StateAt> SamplerAt(uint64_t position) const;
  Result<StateAt> MetadataAt(uint64_t position) const;
  // Those with a position in [begin, end), whole, by position.
  Result<std::vector<ContentSpan>> Spans(uint64_t begin, uint64_t end) const;

 private:
  std::shared_ptr<StoreCore> core_;
  BranchId id_{};
};

}  // namespace cairn
