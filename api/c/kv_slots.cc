// SPDX-License-Identifier: Apache-2.0
//
// Slots in C.
#include "cairn/kv_slots.h"

#include <optional>

#include "api/c/sized.h"

using cairn::KvSlots;
using cairn::SlotUse;
using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

struct cairn_kv_slots {
  std::optional<KvSlots> value;
};

namespace {

std::span<std::byte> Area(void* area, size_t size) { return {static_cast<std::byte*>(area), size}; }

SlotUse ToUse(const cairn_slot_use& use) { return {use.slot, use.number}; }

// A call about one use.
template <typename Body>
cairn_code OfUse(const cairn_kv_slots* slots, const cairn_slot_use* use, cairn_error** error,
                 const Body& body) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(slots);
    CAIRN_C_NEED(use);
    return body(*slots->value, ToUse(*use));
  });
}

template <typename Begin>
cairn_code BeginUse(const cairn_kv_slots* slots, cairn_slot_use* use, cairn_error** error,
                    const Begin& begin) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(slots);
    CAIRN_C_NEED(use);
    *use = {};
    CAIRN_ASSIGN_OR_RETURN(const SlotUse begun, begin(*slots->value));
    use->slot = begun.slot;
    use->number = begun.number;
    return Status::Ok();
  });
}

}  // namespace

extern "C" {

const char* cairn_slot_state_name(cairn_slot_state state) {
  if (state > CAIRN_SLOT_LEFT) return nullptr;
  return cairn::SlotStateName(static_cast<cairn::SlotState>(state));
}

cairn_code cairn_kv_slots_make(void* area, size_t area_size, uint64_t slot_bytes, uint32_t ranks,
                               cairn_kv_slots** slots, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(slots);
    CAIRN_C_NEED(area);
    return Give(slots, [&] { return KvSlots::Make(Area(area, area_size), slot_bytes, ranks); });
  });
}
void cairn_kv_slots_free(cairn_kv_slots* slots) { delete slots; }
cairn_code cairn_kv_slots_memory_of(void* area, size_t area_size, uint64_t slot_bytes,
                                    uint32_t slot, void** memory, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(memory);
    CAIRN_C_NEED(area);
    CAIRN_ASSIGN_OR_RETURN(const std::span<std::byte> bytes,
                           KvSlots::BytesOf(Area(area, area_size), slot_bytes, slot));
    *memory = bytes.data();
    return Status::Ok();
  });
}

cairn_code cairn_kv_slots_begin_save(const cairn_kv_slots* slots, cairn_slot_use* use,
                                     cairn_error** error) {
  return BeginUse(slots, use, error, [](const KvSlots& of) { return of.BeginSave(); });
}
cairn_code cairn_kv_slots_begin_load(const cairn_kv_slots* slots, cairn_slot_use* use,
                                     cairn_error** error) {
  return BeginUse(slots, use, error, [](const KvSlots& of) { return of.BeginLoad(); });
}
cairn_code cairn_kv_slots_report(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                 uint32_t rank, bool copied, cairn_slot_news* news,
                                 cairn_error** error) {
  return OfUse(slots, use, error, [&](const KvSlots& of, const SlotUse& one) -> Status {
    CAIRN_ASSIGN_OR_RETURN(const cairn::SlotNews made, of.Report(one, rank, copied));
    if (news != nullptr) {
      *news = {static_cast<cairn_slot_state>(made.state), made.all_reported, made.all_copied};
    }
    return Status::Ok();
  });
}
cairn_code cairn_kv_slots_begin_append(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                       cairn_error** error) {
  return OfUse(slots, use, error,
               [](const KvSlots& of, const SlotUse& one) { return of.BeginAppend(one); });
}
cairn_code cairn_kv_slots_end_append(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                     cairn_error** error) {
  return OfUse(slots, use, error,
               [](const KvSlots& of, const SlotUse& one) { return of.EndAppend(one); });
}
cairn_code cairn_kv_slots_end_restore(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                      bool restored, bool* tell, cairn_error** error) {
  return OfUse(slots, use, error, [&](const KvSlots& of, const SlotUse& one) -> Status {
    CAIRN_C_NEED(tell);
    CAIRN_ASSIGN_OR_RETURN(*tell, of.EndRestore(one, restored));
    return Status::Ok();
  });
}
cairn_code cairn_kv_slots_leave(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                cairn_slot_state* state, cairn_error** error) {
  return OfUse(slots, use, error, [&](const KvSlots& of, const SlotUse& one) -> Status {
    CAIRN_ASSIGN_OR_RETURN(const cairn::SlotState now, of.Leave(one));
    if (state != nullptr) *state = static_cast<cairn_slot_state>(now);
    return Status::Ok();
  });
}
cairn_code cairn_kv_slots_rank_gone(const cairn_kv_slots* slots, uint32_t rank,
                                    cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(slots);
    return slots->value->RankGone(rank);
  });
}
cairn_code cairn_kv_slots_rank_came(const cairn_kv_slots* slots, uint32_t rank,
                                    cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(slots);
    return slots->value->RankCame(rank);
  });
}

cairn_code cairn_kv_slots_state_of(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                   cairn_slot_state* state, cairn_error** error) {
  return OfUse(slots, use, error, [&](const KvSlots& of, const SlotUse& one) -> Status {
    CAIRN_C_NEED(state);
    CAIRN_ASSIGN_OR_RETURN(const cairn::SlotState now, of.StateOf(one));
    *state = static_cast<cairn_slot_state>(now);
    return Status::Ok();
  });
}
cairn_code cairn_kv_slots_bytes_of(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                   void** memory, cairn_error** error) {
  return OfUse(slots, use, error, [&](const KvSlots& of, const SlotUse& one) -> Status {
    CAIRN_C_OUT(memory);
    CAIRN_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, of.BytesOf(one));
    *memory = bytes.data();
    return Status::Ok();
  });
}
cairn_code cairn_kv_slots_missing_reports(const cairn_kv_slots* slots, const cairn_slot_use* use,
                                          uint32_t* missing, cairn_error** error) {
  return OfUse(slots, use, error, [&](const KvSlots& of, const SlotUse& one) -> Status {
    CAIRN_C_NEED(missing);
    CAIRN_ASSIGN_OR_RETURN(*missing, of.MissingReports(one));
    return Status::Ok();
  });
}
cairn_code cairn_kv_slots_counts(const cairn_kv_slots* slots, cairn_slot_counts* counts,
                                 cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(slots);
    CAIRN_C_NEED(counts);
    CAIRN_RETURN_IF_ERROR(CheckStructSize(counts, sizeof *counts, Sized<cairn_slot_counts>::kName));
    const cairn::SlotCounts now = slots->value->Counts();
    Write(cairn_slot_counts{sizeof *counts, now.slots, now.free, now.filling, now.filled,
                            now.appending, now.restoring, now.emptying, now.left, now.uses,
                            now.refused, now.failed, now.strange},
          counts);
    return Status::Ok();
  });
}
uint32_t cairn_kv_slots_slots(const cairn_kv_slots* slots) {
  return slots == nullptr ? 0 : slots->value->slots();
}
uint32_t cairn_kv_slots_ranks(const cairn_kv_slots* slots) {
  return slots == nullptr ? 0 : slots->value->ranks();
}
uint64_t cairn_kv_slots_slot_bytes(const cairn_kv_slots* slots) {
  return slots == nullptr ? 0 : slots->value->slot_bytes();
}

}  // extern "C"
