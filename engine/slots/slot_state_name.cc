// SPDX-License-Identifier: Apache-2.0
#include "cairn/kv_slots.h"

namespace cairn {

const char* SlotStateName(SlotState state) {
  switch (state) {
    case SlotState::kFree: return "free";
    case SlotState::kFilling: return "filling";
    case SlotState::kFilled: return "filled";
    case SlotState::kAppending: return "appending";
    case SlotState::kRestoring: return "restoring";
    case SlotState::kEmptying: return "emptying";
    case SlotState::kLeft: return "left";
  }
  return "unknown";
}

}  // namespace cairn
