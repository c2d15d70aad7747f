// SPDX-License-Identifier: Apache-2.0
//
// The kernels of sparse fetches against a model of a few lines, a drawn case at a time. A round
// says what differs, or nothing.
#pragma once

#include <cstdint>
#include <string>

#include "tests/gpu/kernel_machine.h"

namespace cairn::testing {

// resolve_slots, some steps on the same rows: slots, order of use, loads and faults are those of a
// least-recently-used buffer; what is wrong is reported, and leaves a row as it was.
std::string ResolveSlotsRound(KernelMachine& machine, uint64_t seed);
// resolve_slots and gather_pieces: what a step wants lies in its slots, byte for byte, and nothing
// else is touched.
std::string GatherPiecesRound(KernelMachine& machine, uint64_t seed);

}  // namespace cairn::testing
