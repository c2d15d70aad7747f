// SPDX-License-Identifier: Apache-2.0
//
// Property: a slot goes through its states as in C++; a use that is over, and arguments that are
// none, are refused with their code.
#include <stdlib.h>

#include "tests/c_abi/check.h"

enum { kSlotBytes = 1000, kRounded = 1024 };

static void CheckSave(cairn_kv_slots* slots, unsigned char* area) {
  cairn_error* error = NULL;
  cairn_slot_use use;
  cairn_slot_news news;
  cairn_slot_state state = 99;
  uint32_t missing = 0;
  void* memory = NULL;
  CHECK_OK(cairn_kv_slots_begin_save(slots, &use, &error));
  CHECK_OK(cairn_kv_slots_bytes_of(slots, &use, &memory, &error));
  CHECK(memory == area + use.slot * kRounded);
  CHECK_OK(cairn_kv_slots_report(slots, &use, 1, true, &news, &error));
  CHECK(news.state == CAIRN_SLOT_FILLING && !news.all_reported && !news.all_copied);
  CHECK_CODE(CAIRN_CONFLICT, cairn_kv_slots_report(slots, &use, 1, true, NULL, &error));
  CHECK_OK(cairn_kv_slots_missing_reports(slots, &use, &missing, &error));
  CHECK(missing == 1);
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_kv_slots_begin_append(slots, &use, &error));
  CHECK_OK(cairn_kv_slots_report(slots, &use, 0, true, &news, &error));
  CHECK(news.state == CAIRN_SLOT_FILLED && news.all_reported && news.all_copied);
  CHECK_OK(cairn_kv_slots_begin_append(slots, &use, &error));
  CHECK_OK(cairn_kv_slots_leave(slots, &use, &state, &error));
  CHECK(state == CAIRN_SLOT_APPENDING);
  CHECK_OK(cairn_kv_slots_end_append(slots, &use, &error));
  CHECK_CODE(CAIRN_STALE, cairn_kv_slots_state_of(slots, &use, &state, &error));
}

static void CheckLoad(cairn_kv_slots* slots) {
  cairn_error* error = NULL;
  cairn_slot_use use, other;
  cairn_slot_state state = 99;
  bool tell = false;
  CHECK_OK(cairn_kv_slots_begin_load(slots, &use, &error));
  CHECK_OK(cairn_kv_slots_begin_load(slots, &other, &error));
  CHECK_CODE(CAIRN_BUSY, cairn_kv_slots_begin_save(slots, &other, &error));
  CHECK(other.number == 0);
  CHECK_OK(cairn_kv_slots_end_restore(slots, &use, true, &tell, &error));
  CHECK(tell);
  CHECK_OK(cairn_kv_slots_state_of(slots, &use, &state, &error));
  CHECK(state == CAIRN_SLOT_EMPTYING);
  CHECK_OK(cairn_kv_slots_report(slots, &use, 0, true, NULL, &error));
  CHECK_OK(cairn_kv_slots_rank_gone(slots, 1, &error));
  CHECK_CODE(CAIRN_CONFLICT, cairn_kv_slots_rank_gone(slots, 1, &error));
  CHECK_CODE(CAIRN_BUSY, cairn_kv_slots_begin_load(slots, &use, &error));
  CHECK_OK(cairn_kv_slots_rank_came(slots, 1, &error));
  CHECK_CODE(CAIRN_CONFLICT, cairn_kv_slots_rank_came(slots, 1, &error));
  CHECK_REFUSED("rank 2", cairn_kv_slots_rank_gone(slots, 2, &error));
}

void TestSlots(const char* directory) {
  (void)directory;
  cairn_error* error = NULL;
  cairn_kv_slots* slots = NULL;
  unsigned char* area = calloc(1, 2 * kRounded + 100);
  const size_t size = 2 * kRounded + 100;
  void* memory = NULL;
  cairn_slot_counts counts;
  CHECK_OK(cairn_kv_slots_make(area, size, kSlotBytes, 2, &slots, &error));
  CHECK(cairn_kv_slots_slots(slots) == 2 && cairn_kv_slots_ranks(slots) == 2);
  CHECK(cairn_kv_slots_slot_bytes(slots) == kRounded);
  CheckSave(slots, area);
  CheckLoad(slots);
  cairn_slot_counts_init(&counts, sizeof counts);
  CHECK_OK(cairn_kv_slots_counts(slots, &counts, &error));
  CHECK(counts.slots == 2 && counts.free == 1 && counts.restoring == 1 && counts.uses == 3);
  CHECK(counts.refused == 1 && counts.failed == 1 && counts.strange == 1);
  CHECK_OK(cairn_kv_slots_memory_of(area, size, kSlotBytes, 1, &memory, &error));
  CHECK(memory == area + kRounded);
  CHECK_REFUSED("slot 2", cairn_kv_slots_memory_of(area, size, kSlotBytes, 2, &memory, &error));
  CHECK_REFUSED("slot_bytes", cairn_kv_slots_memory_of(area, size, 0, 0, &memory, &error));
  CHECK(strcmp(cairn_slot_state_name(CAIRN_SLOT_LEFT), "left") == 0);
  CHECK(cairn_slot_state_name(7) == NULL);
  cairn_kv_slots* none = NULL;
  CHECK_REFUSED("0 slots", cairn_kv_slots_make(area, 1023, kSlotBytes, 2, &none, &error));
  CHECK_REFUSED("ranks is 0", cairn_kv_slots_make(area, size, kSlotBytes, 0, &none, &error));
  CHECK_REFUSED("area is NULL", cairn_kv_slots_make(NULL, size, kSlotBytes, 1, &none, &error));
  CHECK_REFUSED("slots is NULL", cairn_kv_slots_make(area, size, kSlotBytes, 1, NULL, &error));
  cairn_slot_use use = {0, 0};
  CHECK_REFUSED("slots is NULL", cairn_kv_slots_begin_save(NULL, &use, &error));
  CHECK_REFUSED("use is NULL", cairn_kv_slots_begin_load(slots, NULL, &error));
  CHECK_REFUSED("use is NULL", cairn_kv_slots_end_append(slots, NULL, &error));
  CHECK_REFUSED("slots is NULL", cairn_kv_slots_leave(NULL, &use, NULL, &error));
  CHECK_REFUSED("slots is NULL", cairn_kv_slots_rank_gone(NULL, 0, &error));
  CHECK_REFUSED("slots is NULL", cairn_kv_slots_rank_came(NULL, 0, &error));
  CHECK_REFUSED("tell is NULL", cairn_kv_slots_end_restore(slots, &use, true, NULL, &error));
  CHECK_REFUSED("state is NULL", cairn_kv_slots_state_of(slots, &use, NULL, &error));
  CHECK_REFUSED("missing is NULL", cairn_kv_slots_missing_reports(slots, &use, NULL, &error));
  CHECK_REFUSED("memory is NULL", cairn_kv_slots_bytes_of(slots, &use, NULL, &error));
  CHECK_REFUSED("counts is NULL", cairn_kv_slots_counts(slots, NULL, &error));
  use.slot = 9;
  CHECK_REFUSED("slot 9", cairn_kv_slots_leave(slots, &use, NULL, &error));
  CHECK(cairn_kv_slots_slots(NULL) == 0 && cairn_kv_slots_ranks(NULL) == 0);
  CHECK(cairn_kv_slots_slot_bytes(NULL) == 0);
  cairn_kv_slots_free(slots);
  cairn_kv_slots_free(NULL);
  free(area);
}
