// SPDX-License-Identifier: Apache-2.0
#include "cairn/kv_slots.h"

#include <string>
#include <utility>

#include "base/core/align.h"
#include "base/core/out_of_memory.h"
#include "engine/slots/kv_slots.h"

namespace cairn {

namespace {

constexpr uint64_t kSlotAlignment = 64;

Status BadSlots(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "slots: " + what);
}

Status CheckSlotBytes(uint64_t slot_bytes) {
  if (slot_bytes != 0 && slot_bytes <= UINT64_MAX - kSlotAlignment) return Status::Ok();
  return BadSlots("slot_bytes is " + std::to_string(slot_bytes));
}

}  // namespace

KvSlots::KvSlots(std::shared_ptr<engine::KvSlotsState> state) : state_(std::move(state)) {}

Result<KvSlots> KvSlots::Make(std::span<std::byte> area, uint64_t slot_bytes, uint32_t ranks) {
  return CatchBadAlloc([&]() -> Result<KvSlots> {
    CAIRN_RETURN_IF_ERROR(CheckSlotBytes(slot_bytes));
    const uint64_t bytes = AlignUp(slot_bytes, kSlotAlignment);
    const uint64_t slots = area.size() / bytes;
    if (slots == 0 || slots > kMaxSlots) {
      return BadSlots("an area of " + std::to_string(area.size()) + " bytes has " +
                      std::to_string(slots) + " slots of " + std::to_string(bytes) +
                      "; from 1 to " + std::to_string(kMaxSlots));
    }
    if (ranks == 0 || ranks > kMaxSlotRanks) {
      return BadSlots("ranks is " + std::to_string(ranks) + "; from 1 to " +
                      std::to_string(kMaxSlotRanks));
    }
    return KvSlots(
        std::make_shared<engine::KvSlotsState>(area, bytes, static_cast<uint32_t>(slots), ranks));
  });
}

Result<std::span<std::byte>> KvSlots::BytesOf(std::span<std::byte> area, uint64_t slot_bytes,
                                              uint32_t slot) {
  CAIRN_RETURN_IF_ERROR(CheckSlotBytes(slot_bytes));
  const uint64_t bytes = AlignUp(slot_bytes, kSlotAlignment);
  if (slot >= area.size() / bytes) {
    return BadSlots("slot " + std::to_string(slot) + " of " + std::to_string(bytes) +
                    " bytes lies beyond an area of " + std::to_string(area.size()));
  }
  return area.subspan(slot * bytes, bytes);
}

Result<SlotUse> KvSlots::BeginSave() const {
  return state_->Try([&](auto& machine) { return machine.Begin(SlotState::kFilling); });
}
Result<SlotUse> KvSlots::BeginLoad() const {
  return state_->Try([&](auto& machine) { return machine.Begin(SlotState::kRestoring); });
}
Result<SlotNews> KvSlots::Report(const SlotUse& use, uint32_t rank, bool copied) const {
  return state_->Try([&](auto& machine) { return machine.Report(use, rank, copied); });
}
Status KvSlots::BeginAppend(const SlotUse& use) const {
  return state_->Try([&](auto& machine) { return machine.BeginAppend(use); });
}
Status KvSlots::EndAppend(const SlotUse& use) const {
  return state_->Try([&](auto& machine) { return machine.EndAppend(use); });
}
Result<bool> KvSlots::EndRestore(const SlotUse& use, bool restored) const {
  return state_->Try([&](auto& machine) { return machine.EndRestore(use, restored); });
}
Result<SlotState> KvSlots::Leave(const SlotUse& use) const {
  return state_->Try([&](auto& machine) { return machine.Leave(use); });
}
Status KvSlots::RankGone(uint32_t rank) const {
  return state_->Try([&](auto& machine) { return machine.RankGone(rank); });
}
Status KvSlots::RankCame(uint32_t rank) const {
  return state_->Try([&](auto& machine) { return machine.RankCame(rank); });
}
Result<SlotState> KvSlots::StateOf(const SlotUse& use) const {
  return state_->Try([&](auto& machine) { return machine.StateOf(use); });
}
Result<std::span<std::byte>> KvSlots::BytesOf(const SlotUse& use) const {
  CAIRN_RETURN_IF_ERROR(StateOf(use).status());
  return BytesOf(state_->area(), state_->slot_bytes(), use.slot);
}
Result<uint32_t> KvSlots::MissingReports(const SlotUse& use) const {
  return state_->Try([&](auto& machine) { return machine.MissingReports(use); });
}
SlotCounts KvSlots::Counts() const {
  return state_->With([&](auto& machine) { return machine.Counts(); });
}
uint32_t KvSlots::slots() const {
  return state_->With([&](auto& machine) { return machine.slots(); });
}
uint32_t KvSlots::ranks() const {
  return state_->With([&](auto& machine) { return machine.ranks(); });
}
uint64_t KvSlots::slot_bytes() const { return state_->slot_bytes(); }

}  // namespace cairn
