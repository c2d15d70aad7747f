// SPDX-License-Identifier: Apache-2.0
//
// Kernels against base/codec, a drawn case at a time. A round says what differs, or nothing.
#pragma once

#include <cstdint>
#include <string>

#include "tests/gpu/kernel_machine.h"

namespace cairn::testing {

// decode_scatter: frames of every codec into a paged plane; as DecodeFrame and ScatterSlice have
// it, and no other byte of the memory changes.
std::string DecodeScatterRound(KernelMachine& machine, uint64_t seed);
// The same frames with damage: faults where DecodeFrame complains, and nothing is touched but the
// rows that are wanted.
std::string DamagedFramesRound(KernelMachine& machine, uint64_t seed);
// decode_scatter and gather_save through a table that leads out of the view: a fault, and nothing
// is touched but the rows that are wanted.
std::string LostTableRound(KernelMachine& machine, uint64_t seed);
// rotate_keys: rows of f32, f16 and bf16 in a paged plane, whatever they hold; as Rotation::Turn
// has it, and no other byte of the memory changes.
std::string RotateKeysRound(KernelMachine& machine, uint64_t seed);
// gather_save: as GatherSlice has it.
std::string GatherSaveRound(KernelMachine& machine, uint64_t seed);
// gather_step and end_step: some steps, each into the slot that it was given, as GatherSlice
// has it, which rows there are, and its number; without a plan nothing is touched.
std::string GatherStepRound(KernelMachine& machine, uint64_t seed);
// check_table: as ValidateKvView has it for a restore.
std::string CheckTableRound(KernelMachine& machine, uint64_t seed);

}  // namespace cairn::testing
