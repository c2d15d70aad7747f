// SPDX-License-Identifier: Apache-2.0
//
// Shadow sessions of several clients on the simulated machine, with a simulated GPU, where disk and
// GPU both fail, all from one seed: branches grow, are forked, rewound and dropped meanwhile,
// shadows are made and dropped, and in the end the power goes. A step attends to exactly the
// content that base/shadow chooses of the appended KV, byte for byte; low-rank keys, here of full
// rank, are near to the appended ones.
#pragma once

#include <cstdint>
#include <string>

namespace cairn::sim {

struct ShadowStepsOptions {
  uint64_t seed = 1;
  bool wrong_byte = false;  // A canary that the check must find: a rebuilt key is another one.
};

struct ShadowStepsResult {
  uint64_t opened = 0, made = 0, extended = 0;   // Sessions; shadows, those of a longer context.
  uint64_t grown = 0, grown_low_rank = 0;        // Sessions whose branch had grown.
  uint64_t steps = 0, chunks = 0, low_rank = 0;  // That were compared.
  uint64_t failed = 0, dropped = 0, after_power = 0;
  std::string violation;  // The first; empty if none.

  void Add(const ShadowStepsResult& other);
  std::string Counts() const;  // One line.
};

ShadowStepsResult RunShadowSteps(const ShadowStepsOptions& options);

}  // namespace cairn::sim
