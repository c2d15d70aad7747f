// SPDX-License-Identifier: Apache-2.0
//
// Counts what sparse sessions did (cairn/sparse.h), and shadows (cairn/shadow_session.h): each
// session counts for itself, for its arena and for the store.
#pragma once

#include <atomic>
#include <cstdint>

#include "cairn/sparse.h"

namespace cairn::engine {

struct SparseCounters {
  std::atomic<uint64_t> fetches{0}, wanted{0}, faults{0}, left_out{0}, pages_read{0},
      page_bytes_read{0};

  SparseStats Stats() const {
    return {.fetches = fetches.load(),
            .wanted = wanted.load(),
            .faults = faults.load(),
            .left_out = left_out.load(),
            .pages_read = pages_read.load(),
            .page_bytes_read = page_bytes_read.load()};
  }
};

// The sums of a store, over all arenas.
struct SparseTotals {
  SparseCounters counters;
  std::atomic<uint64_t> shadows_made{0}, shadow_tokens_read{0};
  std::atomic<uint64_t> device_bytes{0};  // Used by sessions that are open.
};

}  // namespace cairn::engine
