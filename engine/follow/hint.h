// SPDX-License-Identifier: Apache-2.0
//
// HINT: how far the writer of a store has got, for readers beside it. The end of the log alone does
// not say that it is synced; only records behind it would. This file says it, and saves a reader
// from looking at the log when nothing has changed.
//
// Only a hint: losing it loses nothing. The writer creates it when it opens the store, and
// overwrites it in place, unsynced, at most every kHintPeriodNs, and before it gives back files
// that a reader may still need. Its statements stay true: durable stays durable. A writer that
// cannot write it removes it, so that nobody uses an old one.
//
// File, one block of 4096 bytes, little endian:
//   bytes  field
//   0-7    magic "CairnHnt"
//   8-23   store id
//   24-31  epoch u64: of the log, one for each opening for writing
//   32-39  durable u64: every sequence up to it is on stable media
//   40-47  manifest u64: the number of the newest MANIFEST
//   48-55  hash u64, over everything before it
//   56-71  history id, as in MANIFEST
//   72-79  hash u64, over everything before it
//   80-87  indexing u64: 1: the writer indexes prefixes; 2: it does not
//   88-95  max_bytes u64: the writer's Options::max_bytes
//   96-103 hash u64, over everything before it
//   104-   zeros
// A writer that knows no histories leaves zeros from 56 on, one that says nothing about itself from
// 80 on. Readers of such a HINT see these zeros.
// Example: epoch 3, sequence 0x1234, MANIFEST-7:
//   43 61 69 72 6e 48 6e 74 | 16 bytes of id | 03 00 00 00 00 00 00 00 | 34 12 00 00 00 00 00 00 |
//   07 00 00 00 00 00 00 00 | hash | 16 bytes of id | hash | 01 00 00 00 00 00 00 00 |
//   ff ff ff ff ff ff ff ff | hash
// A reader may meet half of a write; the hash then differs, and it reads again.
// Why not shared memory: a mapped page needs a file as well, and readers on other file systems (the
// simulated one) could not see it; one small write in ten milliseconds costs nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/codec/hash.h"
#include "base/core/aligned_buffer.h"
#include "base/io/world.h"
#include "engine/manifest/history.h"

namespace cairn::engine {

inline constexpr char kHintFile[] = "HINT";

enum class Indexing : uint64_t { kUnknown = 0, kOn = 1, kOff = 2 };

struct Hint {
  uint64_t epoch = 0;
  uint64_t durable = 0;
  uint64_t manifest = 0;
  HistoryId history{};
  // The writer reports these two about itself.
  Indexing indexing = Indexing::kUnknown;
  uint64_t max_bytes = 0;  // UINT64_MAX: no cap; 0: unknown.
  bool operator==(const Hint&) const = default;
};

// Nothing when there is no valid one: absent, damaged, another store's.
std::optional<Hint> ReadHint(io::FileSystem& files, const std::string& directory,
                             const StoreId& store);

// Not thread-safe. Keeps the file open.
class HintWriter {
 public:
  HintWriter(io::FileSystem& files, const std::string& directory)
      : files_(files), path_(directory) {}
  // Writes nothing if the file says that already. After an error the file is removed, if that is
  // possible, and the next call creates it.
  Status Write(const Hint& hint, const StoreId& store);
  // The next call opens the file again.
  void Close() { file_ = nullptr; }

 private:
  Status WriteBlock();

  io::FileSystem& files_;
  const std::string path_;  // The store's directory.
  std::unique_ptr<io::File> file_;
  AlignedBuffer block_;
  std::optional<Hint> written_;
};

}  // namespace cairn::engine
