// SPDX-License-Identifier: Apache-2.0
//
// exact. Whether a block table may be written through: every entry names an existing block (a
// slot), and none is named twice. The verdict does not depend on the order of the threads.
#pragma once

#include <cstdint>

#include "gpu/lane.h"

namespace cairn::gpu {

// Before the launch all bits are set; kFine then stands for none.
struct TableVerdict {
  static constexpr uint64_t kFine = UINT64_MAX;
  uint64_t outside = kFine;  // The first index whose entry is outside.
  uint64_t twice = kFine;    // The lowest entry that occurs twice.
};

struct CheckTable {
  const void* entries = nullptr;
  uint32_t* seen = nullptr;  // (entries_end + 31) / 32 words of zero.
  TableVerdict* verdict = nullptr;
  uint32_t first = 0, end = 0;  // Indices to check.
  uint32_t entries_end = 0;     // All entries must be below.
  bool is_64_bit = false;
};

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const CheckTable& k) {
  // Each block takes a run of indices; the launch has enough blocks.
  const uint32_t index = k.first + at.block() * at.threads() + at.thread();
  if (index >= k.end) return;
  const uint64_t entry =
      k.is_64_bit ? at.template Load<uint64_t>(static_cast<const uint64_t*>(k.entries) + index)
                  : at.template Load<uint32_t>(static_cast<const uint32_t*>(k.entries) + index);
  if (entry >= k.entries_end) {
    at.AtomicMin(&k.verdict->outside, index);
    return;
  }
  const uint32_t bit = 1u << entry % 32;
  if ((at.AtomicOr(&k.seen[entry / 32], bit) & bit) != 0) at.AtomicMin(&k.verdict->twice, entry);
}

}  // namespace cairn::gpu
