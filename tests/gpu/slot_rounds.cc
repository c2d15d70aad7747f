// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/slot_rounds.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/core/seeded_random.h"

namespace cairn::testing {
namespace {

using gpu::kNoPage;
using gpu::kNoPiece;
using gpu::kNoSlot;

// A buffer that forgets what was wanted longest ago.
struct LruModel {
  explicit LruModel(uint32_t slots) : piece_of(slots, kNoPiece) {
    for (uint32_t slot = 0; slot < slots; ++slot) order.push_back(slot);
  }
  struct Step {
    std::vector<int32_t> slot_of;
    std::vector<uint64_t> source;
    std::vector<uint32_t> faults;
  };
  // `page_of(piece)`: its page's address.
  template <typename PageOf>
  Step Want(const std::vector<uint32_t>& wanted, const PageOf& page_of) {
    Step step{std::vector<int32_t>(wanted.size(), kNoSlot),
              std::vector<uint64_t>(wanted.size(), kNoPage),
              {}};
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto at = std::find(piece_of.begin(), piece_of.end(), wanted[i]);
      if (at == piece_of.end()) continue;
      step.slot_of[i] = static_cast<int32_t>(at - piece_of.begin());
      std::erase(order, static_cast<uint32_t>(step.slot_of[i]));
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (step.slot_of[i] != kNoSlot) continue;
      step.source[i] = page_of(wanted[i]);
      if (step.source[i] == kNoPage) {
        step.faults.push_back(wanted[i]);
        continue;
      }
      step.slot_of[i] = static_cast<int32_t>(order.front());
      piece_of[order.front()] = wanted[i];
      order.erase(order.begin());
    }
    for (const int32_t slot : step.slot_of) {
      if (slot != kNoSlot) order.push_back(static_cast<uint32_t>(slot));
    }
    return step;
  }

  std::vector<uint32_t> piece_of, order;
};

constexpr uint32_t kUntouched = 0xcdcdcdcd;

// One row, as the device has it and as it must be.
struct DrawnRow {
  DrawnRow(KernelMachine& machine, SeededRandom* random, uint64_t page_bytes)
      : slots(1 + static_cast<uint32_t>(random->Below(180))), model(slots) {
    pieces_end = slots + static_cast<uint32_t>(random->Below(400));
    pieces_of_page = 1 + static_cast<uint32_t>(random->Below(20));
    pages.resize((pieces_end + pieces_of_page - 1) / pieces_of_page);
    for (uint64_t& page : pages) {
      if (random->Below(4) == 0) continue;
      std::vector<std::byte> bytes(page_bytes * pieces_of_page);
      for (std::byte& one : bytes) one = static_cast<std::byte>(random->Below(256));
      page = reinterpret_cast<uint64_t>(machine.Put(bytes));
    }
    row.slots = slots;
    row.pieces_end = pieces_end;
    row.pieces_of_page = pieces_of_page;
    row.pieces_in = machine.PutAll(model.piece_of);
    std::vector<uint32_t> orders = model.order;
    orders.resize(2 * slots, kUntouched);
    row.orders = machine.PutAll(orders);
    row.turn = machine.PutAll(std::vector<uint32_t>{turn});
    page_used.resize(pages.size());
    row.page_used = machine.PutAll(page_used);
    row.pages = machine.PutAll(pages);
    row.fault_count = machine.PutAll(std::vector<uint32_t>{kUntouched});
  }

  // Pieces for the next step: some of the last one's, and sometimes wrong ones.
  void Draw(SeededRandom* random, KernelMachine& machine) {
    std::set<uint32_t> some;
    const uint64_t count = random->Below(std::min(slots, pieces_end) + 1);
    for (const uint32_t piece : wanted) {
      const bool again = piece < pieces_end && random->Below(3) != 0;
      if (some.size() < count && again) some.insert(piece);
    }
    while (some.size() < count) some.insert(static_cast<uint32_t>(random->Below(pieces_end)));
    wanted.assign(some.begin(), some.end());
    for (size_t i = wanted.size(); i > 1; --i) std::swap(wanted[i - 1], wanted[random->Below(i)]);
    wrong = kNoPiece;
    if (!wanted.empty() && random->Below(8) == 0) {
      const uint32_t outside[] = {pieces_end, kNoPiece - 1, pieces_end + 1000};
      const size_t at = random->Below(wanted.size());
      wanted[at] = wanted.size() > 1 && random->Below(2) == 0
                       ? wanted[(at + 1) % wanted.size()]
                       : outside[random->Below(std::size(outside))];
      wrong = wanted[at];
    }
    row.count = machine.PutAll(std::vector<uint32_t>{static_cast<uint32_t>(wanted.size())});
    row.wanted = machine.PutAll(wanted);
    row.slot_of = machine.PutAll(std::vector<int32_t>(wanted.size(), 77));
    row.source = machine.PutAll(std::vector<uint64_t>(wanted.size(), 77));
    row.faults = machine.PutAll(std::vector<uint32_t>(wanted.size(), kUntouched));
  }

  // The kernel's step against the model's.
  std::string Compare(KernelMachine& machine) {
    LruModel::Step step{std::vector<int32_t>(wanted.size(), kNoSlot),
                        std::vector<uint64_t>(wanted.size(), kNoPage),
                        {}};
    if (wrong == kNoPiece) {
      step = model.Want(wanted, [&](uint32_t piece) { return pages[piece / pieces_of_page]; });
      ++turn;
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (step.source[i] != kNoPage) page_used[wanted[i] / pieces_of_page] = 1;
    }
    const size_t faults = step.faults.size();
    step.faults.resize(wanted.size(), kUntouched);
    std::string differs;
    const auto compare = [&](const char* what, const auto& is, const auto& expected) {
      if (is != expected && differs.empty()) differs = what;
    };
    compare("fault_count", machine.GetAll(row.fault_count, 1)[0], faults);
    compare("faults", machine.GetAll(row.faults, wanted.size()), step.faults);
    compare("slot_of", machine.GetAll(row.slot_of, wanted.size()), step.slot_of);
    compare("source", machine.GetAll(row.source, wanted.size()), step.source);
    compare("pieces_in", machine.GetAll(row.pieces_in, slots), model.piece_of);
    compare("turn", machine.GetAll(row.turn, 1)[0], turn);
    compare("order", machine.GetAll(row.orders + turn % 2 * slots, slots), model.order);
    compare("page_used", machine.GetAll(row.page_used, page_used.size()), page_used);
    return differs;
  }

  uint32_t slots;
  LruModel model;
  uint32_t pieces_end = 0, pieces_of_page = 1, wrong = kNoPiece;
  uint32_t turn = 0;
  std::vector<uint64_t> pages;
  std::vector<uint8_t> page_used;
  std::vector<uint32_t> wanted;
  gpu::SlotRow row;
};

gpu::ResolveSlots Resolve(KernelMachine& machine, const std::vector<gpu::SlotRow>& rows,
                          uint32_t count_max) {
  gpu::ResolveSlots k;
  k.rows = machine.PutAll(rows);
  k.wrong = machine.PutAll(std::vector<uint64_t>{gpu::kNothingWrong});
  k.row_count = static_cast<uint32_t>(rows.size());
  k.count_max = count_max;
  for (const gpu::SlotRow& row : rows) {
    k.slots_max = std::max(k.slots_max, row.slots);
  }
  machine.Launch(k);
  return k;
}

}  // namespace

std::string ResolveSlotsRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  std::vector<DrawnRow> drawn;
  for (uint64_t i = 1 + random.Below(3); i > 0; --i) drawn.emplace_back(machine, &random, 1);
  std::string differs;
  for (uint64_t step = 1 + random.Below(6); step > 0 && differs.empty(); --step) {
    std::vector<gpu::SlotRow> rows;
    uint64_t wrong = gpu::kNothingWrong;
    uint32_t count_max = 0;
    for (DrawnRow& one : drawn) {
      one.Draw(&random, machine);
      if (one.wrong != kNoPiece) {
        wrong = std::min(wrong, gpu::WrongPiece(static_cast<uint32_t>(rows.size()), one.wrong));
      }
      rows.push_back(one.row);
      count_max = std::max(count_max, static_cast<uint32_t>(one.wanted.size()));
    }
    const gpu::ResolveSlots k = Resolve(machine, rows, count_max);
    for (DrawnRow& one : drawn) {
      if (differs.empty()) differs = one.Compare(machine);
    }
    if (differs.empty() && machine.GetAll(k.wrong, 1)[0] != wrong) differs = "wrong";
  }
  machine.Clear();
  return differs;
}

std::string GatherPiecesRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  gpu::GatherPieces k;
  k.plane_count = 1 + static_cast<uint32_t>(random.Below(gpu::kPiecePlanesMax));
  uint32_t piece_bytes = 0;
  for (uint32_t p = 0; p < k.plane_count; ++p) {
    k.planes[p].bytes = static_cast<uint32_t>(16 * (1 + random.Below(40)));
    piece_bytes += k.planes[p].bytes;
  }
  DrawnRow one(machine, &random, piece_bytes);
  k.planes[1].page_offset = k.planes[0].bytes * one.pieces_of_page;
  std::vector<std::vector<std::byte>> expected;
  gpu::PieceBuffer buffer;
  for (uint32_t p = 0; p < k.plane_count; ++p) {
    expected.emplace_back(uint64_t{one.slots} * k.planes[p].bytes, std::byte{0xab});
    buffer.plane[p] = reinterpret_cast<uint8_t*>(machine.Put(expected[p]));
  }
  std::string differs;
  for (uint64_t step = 1 + random.Below(3); step > 0 && differs.empty(); --step) {
    one.Draw(&random, machine);
    k.count_max = std::max<uint32_t>(1, static_cast<uint32_t>(one.wanted.size()));
    k.rows = Resolve(machine, {one.row}, k.count_max).rows;
    k.buffers = machine.PutAll(std::vector<gpu::PieceBuffer>{buffer});
    k.row_count = 1;
    machine.Launch(k);
    differs = one.Compare(machine);
    const std::vector<int32_t> slot_of = machine.GetAll(one.row.slot_of, one.wanted.size());
    for (uint32_t p = 0; p < k.plane_count; ++p) {
      const uint64_t bytes = k.planes[p].bytes;
      for (size_t i = 0; i < one.wanted.size(); ++i) {
        if (slot_of[i] == kNoSlot) continue;
        const uint32_t piece = one.wanted[i];
        const auto page = machine.GetAll(
            reinterpret_cast<const std::byte*>(one.pages[piece / one.pieces_of_page]),
            uint64_t{piece_bytes} * one.pieces_of_page);
        std::copy_n(page.begin() + static_cast<std::ptrdiff_t>(k.planes[p].page_offset +
                                                               piece % one.pieces_of_page * bytes),
                    bytes,
                    expected[p].begin() + static_cast<std::ptrdiff_t>(slot_of[i]) *
                                              static_cast<std::ptrdiff_t>(bytes));
      }
      const auto* const at = reinterpret_cast<const std::byte*>(buffer.plane[p]);
      if (differs.empty() && machine.Get(at, expected[p].size()) != expected[p]) {
        differs = "plane " + std::to_string(p);
      }
    }
  }
  machine.Clear();
  return differs;
}

}  // namespace cairn::testing
