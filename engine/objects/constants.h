// SPDX-License-Identifier: Apache-2.0
//
// Numbers of the object space, with their reasons.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn::engine {

// Parts of the directory, each of which grows independently: with a million objects a growing part
// moves 64 KiB, under the commit lock, in 20 us.
inline constexpr size_t kDirectoryShards = 256;
inline constexpr size_t kShardSlotsMin = 8;
// A part grows by a half when seven of eight places are taken: so 18 to 28 bytes per object. If it
// were fuller, looking for a missing key would visit dozens of places.
inline constexpr size_t kShardFullNumerator = 7, kShardFullDenominator = 8;
// In a full part one object makes room for another. This many are examined for one that was not
// touched, since its mark would be lost.
inline constexpr int kVictimsLookedAt = 8;
// Objects that are dropped while the directory is filled are noted, about 3 MiB in all. If more are
// dropped the filling ends: the index is asked for keys that the directory does not know.
inline constexpr size_t kDroppedWhileFilledMax = 1u << 16;
// Keys that are looked up together, so that fetches of their places from memory overlap.
inline constexpr size_t kKeysAtOnce = 64;

// Keys that the index is asked for together, and whose objects one call reads: their entries, 1 KiB
// each in memory, are small beside their content.
inline constexpr size_t kObjectsAtOnce = 1024;
// The same for calls that end one by one: enough for a queue of reads, few enough that the first
// end early.
inline constexpr size_t kObjectsAtOnceAsync = 64;
// Bytes of a record that an object takes besides its content and its name: fields of three ops.
inline constexpr uint64_t kPutFieldsBytes = 512;
// A key that is replaced between look-up and read is looked up again. That happens this often in a
// row only if the system does nothing else.
inline constexpr int kLookAgainMax = 16;

}  // namespace cairn::engine
