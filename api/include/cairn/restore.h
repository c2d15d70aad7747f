// SPDX-License-Identifier: Apache-2.0
//
// What restores and prefetches (cairn/branch.h) take and return. Plain values.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/branch_types.h"
#include "cairn/completion.h"
#include "cairn/kv_view.h"

namespace [[gnu::visibility("default")]] cairn {

// How a restore into a GPU and the caller's own work there wait for each other. The handles are
// CUDA's (a cudaEvent_t), of events of that device, which live until the restore is over.
struct GpuSync {
  // Recorded by the caller: what comes before it has ended with the memory that is written, and has
  // made the tables that are read. The host waits for it, on a thread of the store, when the first
  // window has been read, or before a table on the device is. 0: none.
  uintptr_t ready = 0;
  // Recorded by the restore, one per (group, layer) of the view, in view order, before the layer's
  // word says kLayerEnqueued: not before, since a wait for an event that was not recorded waits for
  // nothing. Empty: none; another number than the view has layers is kInvalidArgument.
  std::span<const uintptr_t> layer_events{};
  // A window that the device refuses to unpack, or reports a fault in although its checksums are
  // right, is unpacked on the host, once, and copied to the device raw. Off: the restore fails
  // then. With layer_events a fault always fails the restore, since work that waited for an event
  // may have read the layer.
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
  // group's rule needs at L (else kEvicted). The rest is restored where it exists; where it does
  // not, the caller's memory is left as it was. RestorableLength says which `end` to ask for.
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
  // that is being generated `end` is to be given. Off: RestoreResult::kv_ends says how far KV
  // reaches.
  bool require_kv = false;
  // The events of a view of GPU memory; null: the memory may be written at once, and only the host
  // waits. With a view of host memory kInvalidArgument.
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

// Filled as a restore goes on. Must outlive it. One word per (group, layer) of the view, in view
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
  // Those of `bytes` that came from tables of planes whose `sealed_as` is not kLossless: they may
  // differ from what was appended (cairn/model.h). 0: every bit is as it was appended.
  uint64_t lossy_bytes = 0;
  // Those of `bytes` that were given with Delta::exact off. Content older than that field counts as
  // exact.
  uint64_t approximate_bytes = 0;
};

}  // namespace cairn
