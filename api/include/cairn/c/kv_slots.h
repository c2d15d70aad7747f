// SPDX-License-Identifier: Apache-2.0
//
// C API: slots of shared memory between the process that has the store and the ranks of an engine.
// The C++ twin is cairn/kv_slots.h, which has the states and what takes a slot from one to the
// next.
//
// Nothing here blocks, does I/O or touches the memory of a slot. All calls are thread-safe. Calls
// about a use that do not name their errors give CAIRN_STALE (it is over), CAIRN_INVALID_ARGUMENT
// (no such slot) and CAIRN_INVALID_STATE (its slot is in another state); then nothing changes.
#pragma once

#include "cairn/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::SlotState.
typedef uint32_t cairn_slot_state;
enum {
  CAIRN_SLOT_FREE = 0,
  CAIRN_SLOT_FILLING = 1,    // Ranks copy rows into it.
  CAIRN_SLOT_FILLED = 2,     // All of them have.
  CAIRN_SLOT_APPENDING = 3,  // An append reads it.
  CAIRN_SLOT_RESTORING = 4,  // A restore writes to it.
  CAIRN_SLOT_EMPTYING = 5,   // Ranks copy rows out of it.
  CAIRN_SLOT_LEFT = 6        // Given up; a rank, or a restore, may still touch it.
};
// "free", "filling", ...; a static text. NULL of a number that is no state.
CAIRN_API const char* cairn_slot_state_name(cairn_slot_state state);

// cairn::SlotUse: one use of a slot; plain data, for messages. Never gets another field.
typedef struct cairn_slot_use {
  uint32_t slot;
  uint64_t number;  // No two uses have the same; 0: none.
} cairn_slot_use;

// cairn::SlotNews: what a report led to. Never gets another field.
typedef struct cairn_slot_news {
  cairn_slot_state state;  // The slot's, now.
  bool all_reported;       // It was the last one.
  bool all_copied;         // And each rank had copied its rows.
} cairn_slot_news;

// cairn::SlotCounts.
typedef struct cairn_slot_counts {
  size_t struct_size;
  uint64_t slots, free, filling, filled, appending, restoring, emptying, left;
  uint64_t uses;     // Begun.
  uint64_t refused;  // Not begun, since no slot was free.
  uint64_t failed;   // A rank or a restore failed, or a rank was gone.
  uint64_t strange;  // Reports of no such use.
} cairn_slot_counts;
CAIRN_API void cairn_slot_counts_init(cairn_slot_counts* counts, size_t struct_size);

// --- cairn::KvSlots
typedef struct cairn_kv_slots cairn_kv_slots;

// `area` is cut into slots of `slot_bytes`, rounded up to 64. It is borrowed until the slots are
// freed. *slots is freed with cairn_kv_slots_free.
//   CAIRN_INVALID_ARGUMENT: no room for one slot; more than 2^20; `ranks` is 0 or above 1024.
CAIRN_API cairn_code cairn_kv_slots_make(void* area, size_t area_size, uint64_t slot_bytes,
                                         uint32_t ranks, cairn_kv_slots** slots,
                                         cairn_error** error);
CAIRN_API void cairn_kv_slots_free(cairn_kv_slots* slots);
// The memory of a slot, in any process that has the area. CAIRN_INVALID_ARGUMENT: it is beyond it.
CAIRN_API cairn_code cairn_kv_slots_memory_of(void* area, size_t area_size, uint64_t slot_bytes,
                                              uint32_t slot, void** memory, cairn_error** error);

// A free slot for a save, which all ranks are told of from now on; or for a load, which they are
// told of when cairn_kv_slots_end_restore says so. CAIRN_BUSY: none is free, or a rank is gone.
CAIRN_API cairn_code cairn_kv_slots_begin_save(const cairn_kv_slots* slots, cairn_slot_use* use,
                                               cairn_error** error);
CAIRN_API cairn_code cairn_kv_slots_begin_load(const cairn_kv_slots* slots, cairn_slot_use* use,
                                               cairn_error** error);
// A rank has ended its copy for a use, or failed. `news` may be NULL.
//   CAIRN_CONFLICT: it has reported already, or is gone.
CAIRN_API cairn_code cairn_kv_slots_report(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                           uint32_t rank, bool copied, cairn_slot_news* news,
                                           cairn_error** error);
// An append may read the slot in between.
CAIRN_API cairn_code cairn_kv_slots_begin_append(const cairn_kv_slots* slots,
                                                 const cairn_slot_use* use, cairn_error** error);
CAIRN_API cairn_code cairn_kv_slots_end_append(const cairn_kv_slots* slots,
                                               const cairn_slot_use* use, cairn_error** error);
// The restore of a load has ended. *tell: the ranks are to be told; else the slot is free.
CAIRN_API cairn_code cairn_kv_slots_end_restore(const cairn_kv_slots* slots,
                                                const cairn_slot_use* use, bool restored,
                                                bool* tell, cairn_error** error);
// Gives a use up. *state, which may be NULL, is that of its slot now.
CAIRN_API cairn_code cairn_kv_slots_leave(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                          cairn_slot_state* state, cairn_error** error);
// A rank's process has ended, and can write nothing any more; another one has taken its place.
//   CAIRN_CONFLICT: it is gone already; it is not gone. CAIRN_INVALID_ARGUMENT: no such rank.
CAIRN_API cairn_code cairn_kv_slots_rank_gone(const cairn_kv_slots* slots, uint32_t rank,
                                              cairn_error** error);
CAIRN_API cairn_code cairn_kv_slots_rank_came(const cairn_kv_slots* slots, uint32_t rank,
                                              cairn_error** error);

CAIRN_API cairn_code cairn_kv_slots_state_of(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                             cairn_slot_state* state, cairn_error** error);
// The memory of its slot.
CAIRN_API cairn_code cairn_kv_slots_bytes_of(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                             void** memory, cairn_error** error);
// How many ranks have not reported yet, that were told.
CAIRN_API cairn_code cairn_kv_slots_missing_reports(const cairn_kv_slots* slots,
                                                    const cairn_slot_use* use, uint32_t* missing,
                                                    cairn_error** error);
// Only struct_size of *counts need be set.
CAIRN_API cairn_code cairn_kv_slots_counts(const cairn_kv_slots* slots, cairn_slot_counts* counts,
                                           cairn_error** error);
CAIRN_API uint32_t cairn_kv_slots_slots(const cairn_kv_slots* slots);
CAIRN_API uint32_t cairn_kv_slots_ranks(const cairn_kv_slots* slots);
CAIRN_API uint64_t cairn_kv_slots_slot_bytes(const cairn_kv_slots* slots);  // Rounded up.

#ifdef __cplusplus
}  // extern "C"
#endif
