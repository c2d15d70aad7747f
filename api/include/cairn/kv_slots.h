// SPDX-License-Identifier: Apache-2.0
//
// Slots of shared memory (cairn/shared_memory.h) between the process that has the store, the owner,
// and processes that have KV of the model, the ranks: which slot may be touched by whom, and when.
// The owner has a KvSlots. Ranks have none: they do what messages of the owner say, and report.
//
//   saving    BeginSave -> tell all ranks -> each copies its rows in, and reports -> Report says
//             that all have -> BeginAppend, the append borrows the slot -> EndAppend
//   loading   BeginLoad -> the owner restores into the slot -> EndRestore -> tell all ranks -> each
//             copies its rows out, and reports
//
// So no slot is read before all ranks have written it, no append lacks a rank, and no slot is given
// again while a process may still touch it: a use that is given up (Leave) keeps its slot until
// each rank that was told has reported or is gone. Messages are the program's: on channels that
// keep their order, or in any other way. A report carries the number of its use, so that one that
// comes late, twice, or from a rank's earlier life is noticed.
//
// The state of a slot, and what takes it on:
//
//   free       BeginSave: filling;  BeginLoad: restoring
//   filling    the last report: filled, or free where a rank failed or is gone;  Leave: left
//   filled     BeginAppend: appending;  Leave: free
//   appending  EndAppend: free
//   restoring  EndRestore: emptying, or free where it failed;  Leave: left
//   emptying   the last report: free;  Leave: left
//   left       the last report, or EndRestore: free
//
// Nothing here blocks, does I/O or touches the memory of a slot. What is in slots is lost with the
// owner: after a crash of it all ranks begin anew, with other slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cairn/status.h"

namespace cairn::engine {
class KvSlotsState;
}

namespace [[gnu::visibility("default")]] cairn {

// The values are part of the C ABI and never change.
enum class SlotState : uint8_t {
  kFree = 0,       // Nobody touches it.
  kFilling = 1,    // Ranks copy rows into it.
  kFilled = 2,     // All of them have.
  kAppending = 3,  // An append reads it.
  kRestoring = 4,  // A restore writes to it.
  kEmptying = 5,   // Ranks copy rows out of it.
  kLeft = 6,       // Its use was given up; a rank, or a restore, may still touch it.
};
// "free", "filling", ...; "unknown" for another value. The text is static.
const char* SlotStateName(SlotState state);

// One use of a slot, from BeginSave or BeginLoad on. Plain data, for messages.
struct SlotUse {
  uint32_t slot = 0;
  uint64_t number = 0;  // No two uses have the same; 0: none.
  bool operator==(const SlotUse&) const = default;
};

// What a report led to.
struct SlotNews {
  SlotState state = SlotState::kFree;  // The slot's, now.
  bool all_reported = false;           // It was the last one.
  bool all_copied = false;  // And each rank had copied its rows: of a save, it is filled now.
};

// How many slots are in which state, and what happened so far.
struct SlotCounts {
  uint64_t slots = 0, free = 0, filling = 0, filled = 0, appending = 0;
  uint64_t restoring = 0, emptying = 0, left = 0;
  uint64_t uses = 0;     // Begun.
  uint64_t refused = 0;  // Not begun, since no slot was free.
  uint64_t failed = 0;   // A rank or a restore failed, or a rank was gone.
  uint64_t strange = 0;  // Reports of no such use.
};

inline constexpr uint32_t kMaxSlotRanks = 1024, kMaxSlots = 1u << 20;

// A handle, which may be copied. Thread-safe. Calls about a use give kStale if it is over,
// kInvalidArgument if there is no such slot, and kInvalidState if its slot is in another state;
// then nothing changes.
class KvSlots {
 public:
  // `area` is cut into slots of `slot_bytes`, rounded up to 64; what is left over is not used. The
  // memory is the caller's, and outlives the handles' use. kInvalidArgument: it has no room for one
  // slot, or more than 2^20; `ranks` is 0 or above 1024; `slot_bytes` is 0.
  static Result<KvSlots> Make(std::span<std::byte> area, uint64_t slot_bytes, uint32_t ranks);
  // The memory of a slot, in any process that has the area: messages say which slot.
  // kInvalidArgument: it is beyond the area, or slot_bytes is 0.
  static Result<std::span<std::byte>> BytesOf(std::span<std::byte> area, uint64_t slot_bytes,
                                              uint32_t slot);

  // A free slot for a save, which all ranks are told of from now on. kBusy: none is free, so the
  // save has to wait; or a rank is gone.
  Result<SlotUse> BeginSave() const;
  // A free slot for a load, into which the owner restores. No rank may be told before EndRestore
  // says so. kBusy as BeginSave.
  Result<SlotUse> BeginLoad() const;
  // A rank has ended its copy for a use, or failed; either way it touches the slot no more.
  // kInvalidArgument: no such rank or slot. kStale: of no use that is. kConflict: it has reported
  // already, or is gone. kInvalidState: ranks were told of nothing. None of these changes anything;
  // all count as strange.
  Result<SlotNews> Report(const SlotUse& use, uint32_t rank, bool copied) const;

  // From here on an append may read the slot, up to EndAppend: where it borrows, when its ticket is
  // released.
  Status BeginAppend(const SlotUse& use) const;
  Status EndAppend(const SlotUse& use) const;
  // The restore of a load has ended, however: nothing writes to the slot any more. True: it was
  // `restored`, and the ranks are to be told. False: it was not, or the use was given up: the slot
  // is free.
  Result<bool> EndRestore(const SlotUse& use, bool restored) const;
  // Gives a use up: an aborted request. Its slot is free at once, or once nobody touches it any
  // more. The state that it has now; an append under way goes on to its end.
  Result<SlotState> Leave(const SlotUse& use) const;

  // A rank's process has ended: what was told to it will not be reported. To be called only when it
  // can write nothing any more: its exit was waited for, or its socket says so. kConflict: it is
  // gone already. While one is gone no use begins.
  Status RankGone(uint32_t rank) const;
  // Another process has taken its place, which was told of nothing yet. kConflict: it is not gone.
  Status RankCame(uint32_t rank) const;

  Result<SlotState> StateOf(const SlotUse& use) const;
  // The memory of its slot.
  Result<std::span<std::byte>> BytesOf(const SlotUse& use) const;
  // How many ranks have not reported yet, that were told.
  Result<uint32_t> MissingReports(const SlotUse& use) const;
  SlotCounts Counts() const;
  uint32_t slots() const;
  uint32_t ranks() const;
  uint64_t slot_bytes() const;  // Rounded up.

  // For the library.
  explicit KvSlots(std::shared_ptr<engine::KvSlotsState> state);

 private:
  std::shared_ptr<engine::KvSlotsState> state_;
};

}  // namespace cairn
