// SPDX-License-Identifier: Apache-2.0
//
// Numbers of this floor, with their reasons.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cairn/find.h"

namespace cairn::engine {

// How prefixes are hashed, and what is written of them. Hints of another version are rebuilt.
inline constexpr uint64_t kHintAlgorithm = 1;

// Entries of one position that are read at once. More than kPrefixCandidates, since those that are
// dead are among them.
inline constexpr size_t kHintScanMax = 8 * kPrefixCandidates;

// Scans in all: if all entries that these find for a hash are gone or refuted, older ones are not
// looked at, and the answer is not complete. A node that is gone is forgotten when it is met, so
// the next search comes further.
inline constexpr size_t kHintScansMax = 64;

// A sweep begins when this many tokens are dead for each one that is indexed and alive, and not
// before that many are: then a quarter of all is dead, and less than that nobody notices.
inline constexpr uint64_t kDeadShare = 3;
inline constexpr uint64_t kSweptTokensMin = 1u << 20;

// Steps of the search for the deepest block whose hints are read together while there is no filter:
// 15 of them, of which 4 are looked at.
inline constexpr int kStepsAhead = 4;

// Entries that a sweep has in hand: a few hundred KiB. It asks once for the nodes of that many
// entries.
inline constexpr size_t kSweepBatch = 8192;

// Parts of a lease that are granted or ended while the commit lock is held: about 100 us.
inline constexpr size_t kLeasedAtOnce = 256;

// Bits of the filter that an entry sets, all in one line of the cache; with 16 bits per entry the
// filter passes about 0.2 % of absent hashes.
inline constexpr int kFilterProbes = 4;

// The filter gets this share of the memory of the hints, the memtable the rest until it is flushed.
// The least memory holds about 250 entries, for 16,000 tokens: with less, every append of a prompt
// would make a table.
inline constexpr uint64_t kHintMemoryMin = 64u << 10;
inline constexpr uint64_t kFilterShare = 2;

// Hashes of paths that are kept in memory, and as many older ones that were asked for since
// (path_digests.h): 3 MiB in all. One is kept where a path leaves a node, because branches fork
// where others did, and one at regular distances for branches that fork elsewhere.
inline constexpr size_t kRememberedDigests = 16384;
inline constexpr uint64_t kRememberedTokens = 4096;

// A search indexes what was appended before it, at most this many nodes: a few milliseconds. What
// is beyond that the next search does, or the next tree flush, and the answer is not complete.
inline constexpr size_t kCatchUpNodes = 256;

// Nodes whose ids are read together, and ids of each at most; kConfirmTokens bounds their sum. With
// one read at a time indexing only waits for the disk. And a record that many branches forked from
// is read as a whole, but once for all nodes that are read together.
inline constexpr size_t kIndexedTogether = 256;
inline constexpr uint64_t kReadTogetherTokens = 2 * kRememberedTokens;

// Nodes that are noted and not indexed yet, at most: 64 MiB. They are indexed with each round of
// the background, so there are more only where hints cannot be written; then the hints are rebuilt.
inline constexpr size_t kNotedMax = 1u << 20;

// Nodes that are read from the index at once while the hints are rebuilt.
inline constexpr size_t kRebuildBatch = 256;

// Where the best at the deepest block cannot be restored up to there: shallower blocks that a
// search looks at for more KV, and scans of each (of kHintScanMax nodes), of which few have any
// when most branches hold ids alone. Each block is some ten lookups, and the first one mostly has
// the answer.
inline constexpr size_t kKvRounds = 2;
inline constexpr size_t kKvScansMax = 4;

// How often a search looks again after ids refuted the path that it took for the longest. Each time
// it leaves out one path, whose hints are from ids that the path had before.
inline constexpr size_t kConfirmRounds = 64;

// Symbols that are confirmed at once: the ids of a long prompt need not all be in memory twice.
inline constexpr uint64_t kConfirmTokens = 1u << 20;

// Chunks are found by the hash of this many ids in a row, one chosen of each window of so many of
// them. So every run of kChunkRun ids that two texts have in common has a fingerprint in common. A
// shorter window would cost more entries, a longer one would find fewer runs.
inline constexpr uint64_t kChunkIds = 32;
inline constexpr uint64_t kChunkWindow = 16;
inline constexpr uint64_t kChunkRun = kChunkIds + kChunkWindow - 1;

// Ids between fingerprints that are looked up in each round of a search for chunks. A document is
// mostly known by one of them; then come shorter pieces; and at last what is at the ends of runs.
inline constexpr std::array<uint64_t, 3> kChunkDistances = {512, 64, 0};

// Fingerprints that one search looks up, at most: a second of work with all in memory. Beyond that
// the answer is not complete.
inline constexpr uint64_t kChunkScansMax = 1u << 17;

// Fingerprints whose entries are in hand together: at most 2 MiB of them, of the rarest first.
inline constexpr size_t kChunksLookedUpTogether = 1024;

// Fingerprints whose entries are compared together, and ids that are read first on both sides of
// each: most runs need no second read. 64 of them with 8 entries take 2 MiB.
inline constexpr size_t kChunksAskedTogether = 64;
inline constexpr uint64_t kChunkReach = 512;

// Ids that one search compares, at most: this many for each of the prompt, and a million. Eight
// sources of everything need 8. A text that repeats itself has as many runs in common with a prompt
// that does as there are repetitions: without a bound a search would compare for minutes.
inline constexpr uint64_t kComparedShare = 64;

// Matches that are looked at again while the commit lock is held: less than 1 ms.
inline constexpr size_t kMatchesCheckedAtOnce = 256;

}  // namespace cairn::engine
