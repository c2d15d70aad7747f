// SPDX-License-Identifier: Apache-2.0
//
// The implementation of KvSlots: the machine, under a lock, and the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/core/mutex.h"
#include "base/core/out_of_memory.h"
#include "engine/slots/slot_machine.h"

namespace cairn::engine {

class [[gnu::visibility("hidden")]] KvSlotsState {
 public:
  KvSlotsState(std::span<std::byte> area, uint64_t slot_bytes, uint32_t slots, uint32_t ranks)
      : area_(area), slot_bytes_(slot_bytes), machine_(slots, ranks) {}

  // `call` is given the machine; the lock is held meanwhile. Try: and returns a Status or a Result.
  template <typename Call>
  auto With(const Call& call) {
    const MutexLock lock(&mutex_);
    return call(machine_);
  }
  template <typename Call>
  auto Try(const Call& call) {
    return CatchBadAlloc([&] { return With(call); });
  }
  std::span<std::byte> area() const { return area_; }
  uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  const std::span<std::byte> area_;
  const uint64_t slot_bytes_;
  Mutex mutex_;
  SlotMachine<AllSlotRules> machine_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
