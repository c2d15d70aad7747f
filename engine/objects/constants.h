// SPDX-License-Identifier: Apache-2.0
//
// Numbers of the object space, with their reasons.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn::engine {

// Parts of the directory, each of which grows by itself: with a million objects one moves 64 KiB
// then, under the commit lock, in 20 us.
inline constexpr size_t kDirectoryShards = 256;
inline constexpr size_t kShardSlotsMin = 8;
// A part grows by a half when seven of eight places are taken: so 18 to 28 bytes an object. Fuller,
// and keys that are not there would be looked for in vain over dozens of places.
inline constexpr size_t kShardFullNumerator = 7, kShardFullDenominator = 8;
// Of a full part one makes room for another. So many are looked at for one that was not touched,
// since a mark is nowhere else.
inline constexpr int kVictimsLookedAt = 8;
// Objects that are dropped while the directory is filled are noted, some 3 MiB in all. When more go
// it is not filled any further: what it does not know the index is asked for.
inline constexpr size_t kDroppedWhileFilledMax = 1u << 16;
// Keys that are looked up together: their places are on their way from memory meanwhile.
inline constexpr size_t kKeysAtOnce = 64;

// Keys that the index is asked for together, and whose objects are read by one call: so what stands
// for them in memory, 1 KiB each, is little beside what they hold.
inline constexpr size_t kObjectsAtOnce = 1024;
// The same of calls that end one by one: enough for a queue of reads, few enough that the first end
// early.
inline constexpr size_t kObjectsAtOnceAsync = 64;
// What an object takes of a record beside its bytes and its name: fields of three ops.
inline constexpr uint64_t kPutFieldsBytes = 512;
// A key that is replaced between the look and the read is looked up again; this often in a row only
// while nothing else is done.
inline constexpr int kLookAgainMax = 16;

}  // namespace cairn::engine
