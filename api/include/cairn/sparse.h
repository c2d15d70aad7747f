// SPDX-License-Identifier: Apache-2.0
//
// Sparse attention reads little of a long context in each step, and which part is not known before.
// A sparse session keeps the KV of a branch where it lies, in tables on the disk, and brings the
// pieces that a step asks for into a buffer of slots on the GPU. The buffer remembers: a piece that
// an earlier step wanted stays until its slot is needed for another.
//
//   device     slots: for each layer and head the pieces that were wanted last, exact LRU
//   pinned pages: pieces of one head of one layer, about 64 KiB, shared by sessions and forks disk
//   tables and the log: all there is
//
//   auto arena = SparseArena::Make(store, gpu, {.pinned_bytes = 8ull << 30,
//                                               .device_bytes = 4ull << 30});
//   auto session = arena->Open(branch, {.piece_tokens = 4, .slots = 1024, .wanted_max = 512});
//   for each step, for each layer:
//     auto view = session->Fetch({.layer = layer, .pieces = chosen, .count = 512,
//                                 .stride = 512, .stream = stream});
//     attention<<<..., stream>>>(view->planes[0], view->slot_of, ...)
//
// Sources: the resolver and the gather over the bus are those of ShadowKV (arXiv 2410.21465) and of
// HiSparse (SGLang, vLLM), with an exact LRU of any size instead of the last step's choice, and
// with tables below the host's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "cairn/branch.h"
#include "cairn/gpu.h"
#include "cairn/status.h"
#include "cairn/store.h"

namespace [[gnu::visibility("default")]] cairn {

class SparseArenaState;
class SparseSessionState;

// The memory that an arena may take. Bytes; neither has a default.
struct SparseArenaOptions {
  uint64_t pinned_bytes = 0;  // For pages. From 1 MiB; registered with the device once.
  uint64_t device_bytes = 0;  // All sessions' buffers together; taken as they are opened.
};

// Which KV a session fetches, and how.
//
// Sizes by an example: values of Llama 3 8B, 32 layers of 8 heads of 128 bf16. A row has 256 bytes,
// so with the defaults a piece of 4 tokens has 1 KiB, a page of 64 KiB has 256 tokens, and 1024
// slots take 1024 * 8 * 32 KiB = 256 MiB of the device. A context of 128 Ki tokens has 512 pages
// per head and layer; with tokens_max it takes 9 * 512 * 8 * 32 bytes, 1.2 MB, of pinned memory to
// know them.
struct SparseOptions {
  uint32_t group = 0;  // The model's group. It keeps all positions (Retention::kAll).
  // Which planes of the group are fetched, a bit each, one or two of them, with as many heads. By
  // default the values, plane 1 of keys and values; both planes of MLA are 3.
  uint32_t planes = 2;
  // This many tokens of one head form a piece: 1 for models that choose tokens, the chunk of
  // ShadowKV. Its bytes, of each plane, are a multiple of 16.
  uint32_t piece_tokens = 4;
  // Tokens that come from the disk at once, a multiple of piece_tokens. 0: as many as make 64 KiB.
  uint32_t page_tokens = 0;
  uint32_t slots = 1024;      // Pieces on the device, by layer and head; up to 65,536.
  uint32_t wanted_max = 512;  // Pieces of a fetch, by head; up to `slots`, and 4096.
  uint64_t end = UINT64_MAX;  // Tokens before this one are fetched. By default all.
  // Room for this many tokens of the branch, for Extend: 9 bytes of pinned memory per page, head
  // and layer. 0: for its current tokens.
  uint64_t tokens_max = 0;
  // Begins with the pieces that an earlier session had when it was saved, of this branch or of one
  // that it was forked from, with the same group, planes and piece_tokens: Open reads them. Where
  // there is none, or it cannot be read, slots are empty.
  bool warm = true;
};

// How a fetch treats pieces that no page has.
enum class SparseMode : uint8_t {
  // All wanted pieces are in place when the stream goes on: the call reads the missing ones first.
  kStrict,
  // Pieces that no page has are left out of this step, and read for the next. The call does not
  // block.
  kRelaxed,
};

struct SparseWanted {
  uint32_t layer = 0;
  // Head h wants those at pieces[h * stride], `count` of them: piece p is tokens [p * piece_tokens,
  // (p + 1) * piece_tokens). None twice.
  const uint32_t* pieces = nullptr;
  uint32_t count = 0;
  uint32_t stride = 0;
  bool on_device = false;  // `pieces` is memory of the device, written by the stream before.
  uintptr_t stream = 0;    // A cudaStream_t, in which the pieces are brought.
  SparseMode mode = SparseMode::kStrict;
  // kStrict: kDeadlineExceeded. Of a prefetch: pages whose reading has not begun by then are left.
  uint64_t timeout_ns = UINT64_MAX;
};

// Where a step finds what it wanted, in memory of the device. Valid, once the stream has come so
// far, until the next Fetch of the layer.
struct SparseView {
  struct PlaneSlots {
    const std::byte* base = nullptr;  // Slot s of head h: base + h * head_stride + s * piece_bytes.
    uint64_t head_stride = 0;
    uint64_t piece_bytes = 0;  // piece_tokens rows, one behind the other.
  };
  std::array<PlaneSlots, 2> planes{};  // Those of SparseOptions::planes, in order.
  // The slot of wanted piece i of head h: slot_of[h * slot_of_stride + i]; -1: it was left out.
  const int32_t* slot_of = nullptr;
  uint32_t slot_of_stride = 0;
};

// What a session, or all sessions of an arena, did since it was opened.
struct SparseStats {
  uint64_t fetches = 0, wanted = 0;  // Calls; pieces.
  uint64_t faults = 0;               // Pieces that no page had when they were first asked for.
  uint64_t left_out = 0;             // Those of these that relaxed fetches skipped.
  uint64_t pages_read = 0, page_bytes_read = 0;
};

// A handle that may be copied; the session ends with the last copy. Calls are thread-safe, and
// those of one session wait for each other. The content that it reads stays while the session
// lives: a rewind goes on elsewhere, and nothing evicts it. Neither a drop of the last branch that
// needs it, nor a rewind of that branch to before its fork point, waits for the session: then Fetch
// gives kNotFound when it needs the disk.
class SparseSession {
 public:
  SparseSession() = default;
  explicit SparseSession(std::shared_ptr<SparseSessionState> state) : state_(std::move(state)) {}

  // Blocking when strict: waits for the device, and where pages must be read for the disk. A strict
  // call reports a bad piece (beyond the end, or wanted twice) with its head, and fetches nothing;
  // a relaxed one skips that head, and the layer's next strict call reports it.
  // kBusy (a relaxed one: the last of its layer is still reading pages), kInvalidArgument,
  // kDeadlineExceeded, kNotFound (the branch was dropped), kCorruption, kIoError,
  // kEvicted (KV of these positions was never given, or was evicted before the session began),
  // kOutOfMemory (the arena is smaller than the pages of one piece), kInvalidState (the store is
  // closed), and what the device says.
  Result<SparseView> Fetch(const SparseWanted& wanted);
  // The pages of these pieces, in host memory, are read in the background, after what fetches need.
  // Never blocks. `wanted` is borrowed for the call. Errors:
  //   kBusy: earlier ones are still under way; nothing was noted.
  //   kInvalidArgument: names the field, or head and piece; or pieces in device memory.
  Status Prefetch(const SparseWanted& wanted);
  // For engines that launch a step as a graph (a cudaGraph): puts a relaxed fetch into the graph
  // that wanted.stream is captured into, and gives the view that holds after each replay.
  // wanted.pieces, in device memory, stay at their address: each replay reads them again. The count
  // is fixed for each layer. Nothing runs yet. Never blocks. After an error the graph is of no use.
  //
  //   cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  //   session.Capture({.layer = layer, .pieces = chosen, .count = 512, .stride = 512,
  //                    .on_device = true, .stream = stream, .mode = SparseMode::kRelaxed});
  //   ...                                              // Each layer, and the attention.
  //   cudaStreamEndCapture(stream, &graph);            // And instantiate it.
  //   SparseSession::Replay({&session, 1}, stream, [&] { return Launch(graph, stream); });
  //
  // Errors:
  //   kInvalidArgument: names the field; strict; pieces in host memory; the stream is not captured;
  //     another count than an earlier capture of the layer had.
  //   kInvalidState (the store is closed), kOutOfMemory, and what the device says.
  Result<SparseView> Capture(const SparseWanted& wanted);
  // Launches such a graph, or several that have all captured layers together: `launch` enqueues
  // them in `stream`, once, and gives Ok or its own error, which is returned. `sessions` are all
  // those that are captured in them, each once. They must be launched in no other way, nor when a
  // session of them has ended.
  // Blocking: waits until the last replay of each session has ended. Pieces that it left out are
  // read in the background then; while many are still to be read, those of some layers later.
  // `launch` is called on this thread, and must not call these sessions. Where it fails, or an
  // event behind it does, slots of captured layers are emptied; also where it throws, and then the
  // exception goes on to the caller (bad_alloc: kOutOfMemory).
  // Errors, before the launch but for the last:
  //   kInvalidArgument: no sessions, one of them twice, or of several GPUs; the stream is captured.
  //   kInvalidState (the store is closed), those of a background read, as Fetch gives them, what
  //   the device says, and what `launch` says.
  static Status Replay(std::span<const SparseSession> sessions, uintptr_t stream,
                       const std::function<Status()>& launch);
  // Which pieces are in slots, and their order of use, becomes a state of the branch, and the next
  // session begins with it (SparseOptions::warm); the last Save counts. A table of 4 bytes per
  // slot. Blocking: waits for the device and the disk, and for other calls of the session. Lost in
  // a crash, or damaged, it costs a cold beginning. Errors: kConflict (the branch was rewound to
  // before what the session has), kNotFound (the branch was dropped), those of appends, and of the
  // device.
  Status Save();
  // The branch has grown: of its tokens those before `end`, its length by default, may be wanted
  // from here on. Slots and pages keep what they have; a page that was not full is read again.
  // Blocking: waits for the device, and for other calls of the session. After an error the session
  // is as it was, unless it is the device's. Errors:
  //   kConflict: the branch was rewound to before what the session has.
  //   kInvalidArgument: more than tokens_max, or no such end.
  //   kNotFound, kIoError (the device's, or the index's), kCorruption, kOutOfMemory
  Status Extend(uint64_t end = UINT64_MAX);
  // These three do not block, and may be asked when the store is closed.
  uint64_t pieces() const;        // Whole ones: a valid number is below.
  uint64_t device_bytes() const;  // That it holds.
  SparseStats stats() const;

 private:
  std::shared_ptr<SparseSessionState> state_;
};

// Memory that sessions of one store on one GPU share: pinned memory for pages, and room on the
// device. It is the caller's choice, and counts toward no other limit. Handles may be copied;
// sessions keep their arena, and it keeps the store's memory, not the store, open. Thread-safe.
class SparseArena {
 public:
  SparseArena() = default;
  explicit SparseArena(std::shared_ptr<SparseArenaState> state) : state_(std::move(state)) {}

  // `gpu`: one of Options::gpus of the store. Blocking: pinned_bytes are allocated and registered
  // with the device. Errors:
  //   kInvalidArgument: another GPU, or pinned_bytes below 1 MiB.
  //   kOutOfMemory: the system or the driver does not give it.
  //   kReadOnly: of a follower; kPoisoned.
  static Result<SparseArena> Make(const Store& store, const Gpu& gpu,
                                  const SparseArenaOptions& options);
  // Blocking: makes the session's buffers on the device; and with SparseOptions::warm, where a
  // session was saved, reads the pieces that it had. An error of that reading costs a cold
  // beginning alone. Else no content is read yet. Errors:
  //   kInvalidArgument: names the option; or the branch is of another store, or has no tokens.
  //   kNotFound: the branch was dropped.
  //   kOutOfMemory: device_bytes do not suffice, with what is needed and what is left; or the
  //     device has no more.
  //   kReadOnly: of a follower; kPoisoned; and what the device says.
  Result<SparseSession> Open(const Branch& branch, const SparseOptions& options = {});

  // These do not block, and may be asked when the store is closed.
  uint64_t pinned_bytes() const;       // In use by pages.
  uint64_t device_bytes() const;       // In use by sessions.
  SparseStats stats() const;
  // For the library.
  const std::shared_ptr<SparseArenaState>& state() const { return state_; }

 private:
  std::shared_ptr<SparseArenaState> state_;
};

}  // namespace cairn
