// SPDX-License-Identifier: Apache-2.0
//
// Sparse attention by a shadow (cairn/shadow.h). The shadow of a context is made once, of stored
// keys, and kept in a table: forks and later processes find it there. A session has it on a GPU,
// chooses with it the chunks that the queries of a step need, and brings their values from the
// branch; what it attends to is a small part of what is stored.
//
//   BuildShadow(branch);                                   // Or the first Open does it.
//   auto session = ShadowSession::Open(arena, branch, {.query_heads = 32});
//   for each step, for each layer:
//     session->Append({.layer = layer, .keys = k, .values = v, .stream = stream});
//     session->Select({.layer = layer, .queries = q, .stream = stream});
//     session->Fetch({.layer = layer, .stream = stream});
//     session->Rebuild(layer, stream);
//     attention<<<..., stream>>>(session->View(layer)...)
//
// Source: ShadowKV (arXiv 2410.21465). Its arithmetic, and what is different here, is in
// docs/shadow.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cairn/branch.h"
#include "cairn/shadow.h"
#include "cairn/sparse.h"
#include "cairn/status.h"

namespace [[gnu::visibility("default")]] cairn {

class ShadowSessionState;

// Which shadow of a branch.
struct ShadowOf {
  ShadowSpec spec{};
  uint32_t group = 0;         // The model's group: K and V of bf16 or fp16, all positions kept.
  uint64_t end = UINT64_MAX;  // Only the branch's tokens before it. Default: its length.
};

// The properties of a shadow, or of the one that a session has. Counts are by head and layer.
struct ShadowInfo {
  uint64_t tokens = 0;         // The context's length.
  uint64_t covered = 0;        // Tokens that the shadow covers. 0: too few, attention is dense.
  uint32_t chunks = 0;         // Covered; of one head of one layer, here and below.
  uint32_t always_chunks = 0;  // Sinks and outliers among these: always attended to.
  uint32_t budget_chunks = 0;  // Selected in a step.
  uint64_t table_bytes = 0;    // On the disk. 0: there is no table, since attention is dense.
  uint64_t tokens_read = 0;    // Whose keys were read to make it. 0: it was there.
};

// Makes the shadow where there is none, from the one of a shorter part of the context if there is
// that. It is a table of the branch, and of those that are forked behind `covered`. Where the
// context is too short for a shadow there is nothing to make: Ok, with `covered` 0. Blocking: reads
// the keys of the context, with up to 16 MiB of memory beside 8 bytes per chunk, head and layer,
// and writes the table; no deadline. Safe from any thread; two that make the same one both do the
// work. A crash costs the table at most. Errors:
//   kInvalidArgument: names the field, or says where a key is NaN, infinite or too large.
//   kConflict: the branch was rewound meanwhile.
//   kReadOnly: of a follower.
//   and what Branch::Restore and appends say: kNotFound (the branch was dropped), kEvicted,
//     kCorruption, kNoSpace, kPoisoned, kIoError, kOutOfMemory.
Result<ShadowInfo> BuildShadow(const Branch& branch, const ShadowOf& of = {});
// Finds the shadow of this spec that covers the same tokens; makes none. A context that is too
// short is reported as by BuildShadow. Blocking: may read the table's head and the index. Works on
// a follower. A table that turns out to be lost or damaged is forgotten. kNotFound: there is none;
// it was never made, or was lost. kInvalidArgument names the field.
Result<ShadowInfo> FindShadow(const Branch& branch, const ShadowOf& of = {});
// Forgets it, here and for the forks that share it. Sessions that are open keep what they have. A
// change at Durability::kMemory: a crash may bring the shadow back. kNotFound: there is none.
Status DropShadow(const Branch& branch, const ShadowOf& of = {});

// How a session is opened. `spec`, `group` and `end` are as in ShadowOf.
struct ShadowOptions {
  ShadowSpec spec{};
  uint32_t group = 0;
  uint64_t end = UINT64_MAX;
  uint32_t query_heads = 0;       // Per layer: a multiple of the kv heads.
  uint32_t slots = 0;             // Chunks whose values stay on the device. 0: twice the budget.
  uint32_t append_tokens = 256;   // Room for tokens that are appended before an Extend.
  // The longest context that Extend may come to; memory of the device is taken for it, but for that
  // of slots, which is taken once a step selects something. 0: sized for the current context.
  // Low-rank keys without a fixed rank get room for the vectors of the current basis; see Extend.
  uint64_t tokens_max = 0;
  bool build = true;              // Where there is no shadow; else kNotFound.
};

// The queries of one step, for one layer.
struct ShadowQuery {
  uint32_t layer = 0;
  // Rows of the model's rotated queries, in device memory, query head g of kv head h in row
  // h * (query_heads / kv heads) + g; of fp32, or of the dtype of keys.
  const void* queries = nullptr;
  bool is_fp32 = false;
  uint64_t head_stride = 0;  // Elements from a row to the next. 0: one behind the other.
  float scale = 0;           // Multiplies scores. 0: 1 / sqrt(elements of a row).
  uintptr_t stream = 0;      // A cudaStream_t.
};

struct ShadowFetch {
  uint32_t layer = 0;
  uintptr_t stream = 0;
  SparseMode mode = SparseMode::kStrict;
  uint64_t timeout_ns = UINT64_MAX;
};

// The rows of one new token, for one layer. Borrowed until the stream has come so far.
struct ShadowRows {
  uint32_t layer = 0;
  // A row for each kv head, in device memory: head h at keys + h * key_stride, in bytes. 0: one
  // behind the other.
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  uint64_t key_stride = 0, value_stride = 0;
  uintptr_t stream = 0;
};

// The rows that a step attends to, in device memory: `resident_tokens` rows of each kv head, and
// `count` chunks besides. Valid, once the stream has come so far, until the next call for the
// layer, and selected keys until the next Rebuild.
struct ShadowView {
  // Sinks and outliers, then the newest. Row t of head h: resident_keys + h * key_stride + t * the
  // bytes of a row.
  const std::byte* resident_keys = nullptr;
  const std::byte* resident_values = nullptr;
  uint64_t resident_key_stride = 0, resident_value_stride = 0;
  uint32_t resident_tokens = 0;
  // Chunk i of head h is of the tokens [c * chunk, ...), chunk = chunks[h * stride + i]; its rows
  // lie in slot key_slot_of[h * stride + i] of the keys, value_slot_of[...] of the values. A value
  // slot of -1: a relaxed fetch left it out.
  uint32_t count = 0, stride = 0;
  const uint32_t* chunks = nullptr;
  const int32_t* key_slot_of = nullptr;
  const int32_t* value_slot_of = nullptr;
  SparseView::PlaneSlots keys{}, values{};
};

// A handle that may be copied; the session ends with the last copy. Calls are thread-safe, and
// those of one session wait for each other. Streams that several layers are worked on in are the
// caller's to order: what a step chooses lies in memory that all layers share. A stream that is
// captured into a graph is kInvalidArgument: the rows to attend to are more with every token.
class ShadowSession {
 public:
  ShadowSession() = default;
  explicit ShadowSession(std::shared_ptr<ShadowSessionState> state) : state_(std::move(state)) {}

  // Blocking: finds or makes the shadow, and copies it to the device, into room of the arena. The
  // session keeps its arena, and has a lease on the content that it reads. Errors: those of
  // BuildShadow, of SparseArena::Open, and of the device; and
  //   kNotFound: `build` is off, and there is no shadow.
  //   kInvalidArgument: the arena is of another store; query_heads, slots or tokens_max do not fit.
  static Result<ShadowSession> Open(const SparseArena& arena, const Branch& branch,
                                    const ShadowOptions& options = {});

  // Enqueues; does not block. The chunks that the queries need, by landmarks. kInvalidArgument
  // names the field; and what the device says.
  Status Select(const ShadowQuery& query);
  // Brings the values of what was selected (and exact keys). Errors: those of SparseSession::Fetch.
  // REQUIRES: Select of the layer, before it in the stream; kInvalidState otherwise.
  Status Fetch(const ShadowFetch& fetch);
  // Enqueues; does not block. The keys of what was selected, from their codes or coefficients. It
  // needs no value, and may run in another stream than Fetch, behind Select. kInvalidState: nothing
  // was selected.
  Status Rebuild(uint32_t layer, uintptr_t stream);
  // kInvalidState: nothing was selected.
  Result<ShadowView> View(uint32_t layer) const;
  // Enqueues; does not block. A token more is attended to in this layer from now on. The branch
  // does not learn of it: appends to it are the caller's, with `exact` = false, since these rows
  // come from sparse attention. kBusy: append_tokens were appended, and Extend makes room.
  Status Append(const ShadowRows& rows);
  // The branch has grown, by what the session was appended as a rule: its tokens before `end`, its
  // length by default, are the context from here on. Whole blocks of 64 come into the shadow, with
  // keys and values as the branch has them; what was appended and is not in the branch is gone.
  // REQUIRES: what reads a View of the session has ended: resident rows are rewritten. The session
  // becomes what one opened now would be, but for the order of resident rows. No table is made;
  // BuildShadow or the next Open does that. Low-rank keys keep their vectors (also where the table
  // was dropped), which the host has in memory as well; where these do not serve the new keys
  // (docs/shadow.md), or somebody has made a longer table, all comes from a table, which is made
  // where `build` says so.
  //
  //   session.Append({.layer = layer, ...});                      // Each layer of each new token.
  //   branch.Append({.tokens = id, .kv = rows, .exact = false});  // The same token.
  //   if (++since == 256) { // append_tokens were appended.
  //     cudaStreamSynchronize(stream);
  //     session.Extend();                                         // Up to tokens_max.
  //     since = 0;
  //   }
  //
  // Blocking: reads the new keys, up to a part of 1024 tokens before them, and the rows of chunks
  // that have become outliers; waits for the device. Errors beside those of BuildShadow:
  //   kConflict: the branch was rewound to before what the session has, or while its shadow was
  //     made.
  //   kInvalidArgument: more than tokens_max, or no such end.
  //   kInvalidState: low-rank keys, of a share of the energy, need more vectors than there is room
  //     for. Another session of the branch has it; nothing is lost.
  //   kNotFound: low-rank keys need a table, and `build` is off.
  // After these the session is as it was. After any other error, that of a key out of range
  // included, it is of no use until an Extend succeeds: kInvalidState.
  Status Extend(uint64_t end = UINT64_MAX);
  // Pages that a fetch of these chunks would read are read in the background. `chunks`: in host
  // memory, [kv head][stride], `count` of each; borrowed for the call. Errors: those of
  // SparseSession::Prefetch.
  Status Prefetch(uint32_t layer, const uint32_t* chunks, uint32_t count, uint32_t stride);
  // See SparseSession::Save.
  Status Save();

  // The state of the session. Like all calls of a session these wait for those that are under way;
  // they do no I/O of their own. They may be asked when the store is closed.
  ShadowInfo info() const;
  uint64_t device_bytes() const;  // That it holds, with those of its slots.
  SparseStats stats() const;      // Counts its fetches.

 private:
  std::shared_ptr<ShadowSessionState> state_;
};

}  // namespace cairn
