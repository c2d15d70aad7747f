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
//   A crash: changes are atomic, and survive in their order. Which acknowledged changes it may lose
//     follows from their Durability (cairn/options.h): none at kPower.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/branch_types.h"
#include "cairn/completion.h"
#include "cairn/kv_view.h"
#include "cairn/model.h"
#include "cairn/options.h"
#include "cairn/restore.h"
#include "cairn/status.h"

namespace [[gnu::visibility("default")]] cairn {

class StoreCore;
class DraftState;

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
  // Commit's ticket reports an error on the way. Errors: those of Put, and
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
  //   kInvalidArgument: staging could never hold `positions`, or it is 0 or beyond
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
  // when one fails, or in a crash, those before it survive. Branches that share the positions get
  // them as well. Blocking, as AppendSync; the view is borrowed until it returns. Errors: those of
  // AppendSync, and
  //   kConflict: expected_length; or another call shortened the branch meanwhile.
  Status Fill(const KvView& kv, const AppendOptions& options = {});
  // --- Which KV exists. As Info, these read no content.
  // The evicted parts of [begin, end), by group and position. Of a group whose rule is not kAll:
  // what a restore of [begin, end) needs and misses, evicted or never given. KV that lags, beyond a
  // group's kv_length, is not listed. kInvalidArgument: no such range.
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
  // that this branch filled in for tokens it shares with an older one, is not passed on, and must
  // be filled in the new branch. Info() has its kv_lengths.
  //   kInvalidArgument: beyond the length, inside an atomic span, or the name or namespace is too
  //     long, holds a NUL, or is one of objects.
  //   kAlreadyExists: the name is taken in its namespace.
  Result<Branch> ForkAt(uint64_t position, const BranchOptions& options = {}) const;
  // Forgets everything from `length` on. In place when no other branch reaches beyond; else the
  // tokens stay for those that do. A rewind below its own first token loses the KV that this branch
  // filled in, as in ForkAt. Works where there is no room for data.
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
  //   kCorruption: names file, offset and the longest restorable prefix. On a GPU also a fault that
  //     it reports although the checksums are right.
  //   kStale: a follower whose writer repeatedly deleted files that were needed; retry.
  //   kDeadlineExceeded; kIoError, the disk's or the device's; kOutOfMemory, pinned and device
  //     memory included; and those of every call.
  Result<RestoreResult> Restore(const RestoreRequest& request,
                                LayerProgress* progress = nullptr) const;
  // The same by a thread of the store; does not block. The request's spans, views, events and
  // `progress` are borrowed until the ticket is done; Ticket::restored() is then what Restore would
  // have returned. At once only kInvalidState and kOutOfMemory; every other error is the ticket's,
  // and kCancelled (Ticket::Cancel, which takes effect between pieces).
  Result<Ticket> RestoreAsync(const RestoreRequest& request,
                              LayerProgress* progress = nullptr) const;
  // A hint that positions [begin, end) will be restored soon, when a request waits in a queue, say:
  // what tables hold of them, ids and KV of all groups, is brought into memory in the background,
  // from `begin` on and up to half of what the page cache may have. Never blocks on the disk, and
  // does not read the index. Errors, damage and a branch that was dropped included, are left to the
  // restore; metrics count them.
  //   kBusy: many prefetches are waiting (64); nothing is done.
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
