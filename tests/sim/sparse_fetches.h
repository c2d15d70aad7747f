// SPDX-License-Identifier: Apache-2.0
//
// Sparse sessions of several clients on the simulated machine, with a small arena and a simulated
// GPU, where disk and GPU both fail, all from one seed: branches grow, are forked, rewound and
// dropped meanwhile. Clients see exactly the appended content, byte for byte.
#pragma once

#include <cstdint>
#include <string>

namespace cairn::sim {

struct SparseFetchesOptions {
  uint64_t seed = 1;
  bool wrong_byte = false;  // A canary that the check must find: a byte in a slot is another one.
};

struct SparseFetchesResult {
  uint64_t fetches = 0, extended = 0, replayed = 0;
  uint64_t pieces = 0, left_out = 0;  // That were compared; that were not there.
  uint64_t failed = 0, timed_out = 0, dropped = 0;
  uint64_t pages_read = 0, faults = 0;
  std::string violation;  // The first; empty if none.

  void Add(const SparseFetchesResult& other);
  std::string Counts() const;  // One line.
};

SparseFetchesResult RunSparseFetches(const SparseFetchesOptions& options);

}  // namespace cairn::sim
