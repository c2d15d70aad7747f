// SPDX-License-Identifier: Apache-2.0
//
// exact. Finds the pieces that a step wants in a buffer of slots, and makes room for missing ones
// in the slots that were wanted longest ago. A block for each row, which is one head of one layer
// of one sequence.
//
//   hit      the piece is in a slot
//   load     it is not, and a page in host memory has it: it gets a slot, and `source` says where
//            it is to be copied from (gather_pieces.h)
//   fault    no page has it: it is listed, and has no slot
//
// The order of use is exact. The pieces of one step count as used one after the other, in the
// listed order. Wanted pieces are checked: a piece that does not exist, or is listed twice, leaves
// the row unchanged.
#pragma once

#include <cstdint>

#include "gpu/kernels/block_rank.h"
#include "gpu/lane.h"

namespace cairn::gpu {

inline constexpr uint32_t kNoPiece = UINT32_MAX;
inline constexpr uint64_t kNoPage = 0;
inline constexpr int32_t kNoSlot = -1;
// Limits of a row. More would not fit into the shared memory that every card has.
inline constexpr uint32_t kWantedMax = 4096, kSlotsMax = 65'536;

struct SlotRow {
  // --- The state of the buffer
  uint32_t* pieces_in = nullptr;  // By slot: its piece, or kNoPiece.
  // Twice `slots` slots, the one wanted longest ago first; the present order is at `turn` % 2.
  uint32_t* orders = nullptr;
  uint32_t* turn = nullptr;
  // --- Input
  const uint32_t* wanted = nullptr;
  const uint32_t* count = nullptr;  // How many. REQUIRES: at most `slots`, and count_max.
  const uint64_t* pages = nullptr;  // By page: its address in host memory, or kNoPage.
  uint8_t* page_used = nullptr;     // By page: set to 1 when something is loaded from it.
  // --- Output, by wanted piece
  int32_t* slot_of = nullptr;  // kNoSlot: a fault.
  uint64_t* source = nullptr;  // The address of the page to copy it from, or kNoPage.
  uint32_t* faults = nullptr;  // Room for count_max pieces.
  uint32_t* fault_count = nullptr;
  uint32_t slots = 0;
  uint32_t pieces_end = 0;  // All pieces are below.
  uint32_t pieces_of_page = 1;
};

struct ResolveSlots {
  const SlotRow* rows = nullptr;
  // For the lowest row with a wrong piece the lowest such: WrongPiece. Initially kNothingWrong.
  uint64_t* wrong = nullptr;
  uint32_t row_count = 0;
  uint32_t count_max = 0, slots_max = 0;  // The largest of all rows.
};
inline constexpr uint64_t kNothingWrong = UINT64_MAX;
CAIRN_GPU uint64_t WrongPiece(uint32_t row, uint32_t piece) { return uint64_t{row} << 32 | piece; }
// Entries of the table of wanted pieces: a power of two, at most half full.
CAIRN_GPU uint32_t WantedTableSize(uint32_t count) {
  uint32_t size = 64;
  while (size < 2 * count) size *= 2;
  return size;
}

// The shared memory of a row's block.
struct ResolveScratch {
  uint32_t* table;  // 0: free; else 1 and the index of a wanted piece. Then: slots to be reused.
  uint32_t table_size;  // A power of two.
  uint32_t* used;       // A bit a slot: wanted by this step.
  uint32_t* counts;     // For BlockRank.
  uint32_t count;       // Wanted pieces.
  const uint32_t* order;
  uint32_t* next_order;
  uint32_t* is_wrong;
};
CAIRN_GPU uint32_t ResolveSharedBytes(const ResolveSlots& k) {
  const uint32_t words = WantedTableSize(k.count_max) + (k.slots_max + 31) / 32 + 1;
  return words * static_cast<uint32_t>(sizeof(uint32_t)) + kRankBytes;
}

CAIRN_GPU uint32_t HashOfPiece(uint32_t piece) { return piece * 0x9e3779b1u; }

// Puts all wanted pieces into the table.
template <typename Lane>
CAIRN_GPU void EnterWanted(const Lane& at, const ResolveSlots& k, const SlotRow& row,
                           const ResolveScratch& room) {
  for (uint32_t i = at.thread(); i < room.count; i += at.threads()) {
    const uint32_t piece = row.wanted[i];
    row.slot_of[i] = kNoSlot;
    row.source[i] = kNoPage;
    bool wrong = piece >= row.pieces_end;
    for (uint32_t probe = HashOfPiece(piece); !wrong; ++probe) {
      const uint32_t there = at.AtomicCas(&room.table[probe & (room.table_size - 1)], 0, i + 1);
      if (there == 0) break;
      wrong = row.wanted[there - 1] == piece;
    }
    if (wrong) {
      at.AtomicOr(room.is_wrong, 1);
      at.AtomicMin(k.wrong, WrongPiece(at.block(), piece));
    }
  }
}

// Finds those that are in slots.
template <typename Lane>
CAIRN_GPU void FindHits(const Lane& at, const SlotRow& row, const ResolveScratch& room) {
  for (uint32_t slot = at.thread(); slot < row.slots; slot += at.threads()) {
    const uint32_t piece = row.pieces_in[slot];
    if (piece == kNoPiece) continue;
    for (uint32_t probe = HashOfPiece(piece);; ++probe) {
      const uint32_t there = room.table[probe & (room.table_size - 1)];
      if (there == 0) break;
      if (row.wanted[there - 1] != piece) continue;
      row.slot_of[there - 1] = static_cast<int32_t>(slot);
      at.AtomicOr(&room.used[slot / 32], 1u << slot % 32);
      break;
    }
  }
}

struct Misses {
  uint32_t loads, faults;
};

// Finds those that are not: the n-th to be loaded is noted as -2 - n, faults are listed.
template <typename Lane>
CAIRN_GPU Misses SplitMisses(const Lane& at, const SlotRow& row, const ResolveScratch& room) {
  BlockRank<Lane> ranks(room.counts);
  for (uint32_t base = 0; base < room.count; base += at.threads()) {
    const uint32_t i = base + at.thread();
    const bool miss = i < room.count && row.slot_of[i] == kNoSlot;
    uint64_t page = kNoPage;
    if (miss) page = row.pages[row.wanted[i] / row.pieces_of_page];
    uint32_t rank[kRanks];
    ranks.Next(at, {miss && page != kNoPage, miss && page == kNoPage}, rank);
    if (!miss) continue;
    if (page == kNoPage) {
      row.faults[rank[1]] = row.wanted[i];
    } else {
      row.source[i] = page;
      at.Flag(&row.page_used[row.wanted[i] / row.pieces_of_page]);
      row.slot_of[i] = -2 - static_cast<int32_t>(rank[0]);
    }
  }
  if (at.thread() == 0) *row.fault_count = ranks.total(1);
  return {ranks.total(0), ranks.total(1)};
}

// The first `loads` slots that this step does not want become free; the others keep their order.
template <typename Lane>
CAIRN_GPU void TakeOldest(const Lane& at, const SlotRow& row, const ResolveScratch& room,
                          uint32_t loads) {
  BlockRank<Lane> ranks(room.counts);
  for (uint32_t base = 0; base < row.slots; base += at.threads()) {
    const uint32_t i = base + at.thread();
    const uint32_t slot = i < row.slots ? room.order[i] : 0;
    const bool unused = i < row.slots && (room.used[slot / 32] >> slot % 32 & 1) == 0;
    uint32_t rank[kRanks];
    ranks.Next(at, {unused, false}, rank);
    if (!unused) continue;
    if (rank[0] < loads) {
      room.table[rank[0]] = slot;
    } else {
      room.next_order[rank[0] - loads] = slot;
    }
  }
}

// Gives slots to the pieces to be loaded; the step's pieces become the newest.
template <typename Lane>
CAIRN_GPU void GiveSlots(const Lane& at, const SlotRow& row, const ResolveScratch& room,
                         uint32_t faults) {
  const uint32_t first = row.slots - (room.count - faults);
  BlockRank<Lane> ranks(room.counts);
  for (uint32_t base = 0; base < room.count; base += at.threads()) {
    const uint32_t i = base + at.thread();
    int32_t slot = i < room.count ? row.slot_of[i] : kNoSlot;
    const bool has = slot != kNoSlot;
    uint32_t rank[kRanks];
    ranks.Next(at, {has, false}, rank);
    if (!has) continue;
    if (slot < kNoSlot) {
      slot = static_cast<int32_t>(room.table[-2 - slot]);
      row.slot_of[i] = slot;
      row.pieces_in[slot] = row.wanted[i];
    }
    room.next_order[first + rank[0]] = static_cast<uint32_t>(slot);
  }
}

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const ResolveSlots& k) {
  const SlotRow& row = k.rows[at.block()];
  const uint32_t turn = *row.turn;
  ResolveScratch room{};
  room.count = *row.count;
  room.order = row.orders + turn % 2 * row.slots;
  room.next_order = row.orders + (turn + 1) % 2 * row.slots;
  room.counts = at.template Shared<uint32_t>(0);
  room.table = at.template Shared<uint32_t>(kRankBytes);
  room.table_size = WantedTableSize(room.count);
  const uint32_t used_words = (row.slots + 31) / 32;
  room.used = room.table + room.table_size;
  room.is_wrong = room.used + used_words;
  const uint32_t words = room.table_size + used_words + 1;
  for (uint32_t i = at.thread(); i < words; i += at.threads()) room.table[i] = 0;
  at.SyncBlock();
  EnterWanted(at, k, row, room);
  at.SyncBlock();
  if (*room.is_wrong != 0) {
    if (at.thread() == 0) *row.fault_count = 0;
    return;
  }
  FindHits(at, row, room);
  at.SyncBlock();
  const Misses misses = SplitMisses(at, row, room);
  at.SyncBlock();  // The table is used for something else.
  TakeOldest(at, row, room, misses.loads);
  at.SyncBlock();
  GiveSlots(at, row, room, misses.faults);
  if (at.thread() == 0) *row.turn = turn + 1;
}

}  // namespace cairn::gpu
