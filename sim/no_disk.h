// SPDX-License-Identifier: Apache-2.0
//
// A machine without a disk: what a store on it costs is what the store costs itself, on any device.
// Names, locks and errors are those of a file system in memory. Content lies in chunks that are
// used again, so that later worlds find their memory touched. The processor time that this takes
// is counted, and can be subtracted.
//
// For benchmarks and tests. It lies here because the product has no use for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/world.h"

namespace cairn::io {

enum class NoDiskKeeps : uint8_t {
  kAll,    // What is written can be read.
  kSmall,  // Writes of kNoDiskDroppedBytes or more cost nothing, and read as zeros.
};

// Records and tables of KV are larger than this; what a store needs to open is smaller.
inline constexpr size_t kNoDiskDroppedBytes = 64 << 10;

// Memory and counters of worlds without a disk. Thread-safe.
class NoDisk {
 public:
  static constexpr size_t kChunkBytes = 64 << 10;
  using Chunk = std::unique_ptr<std::byte[]>;

  // Makes and touches this much memory for files. What they need beyond it is made when they do.
  void Reserve(uint64_t bytes);
  Chunk Take();  // Its bytes are arbitrary. Null without memory.
  void Give(Chunk chunk);

  void Count(uint64_t written_bytes, uint64_t cpu_ns) {
    written_bytes_ += written_bytes;
    cpu_ns_ += cpu_ns;
  }
  uint64_t written_bytes() const { return written_bytes_; }  // Dropped ones too.
  // Processor time of reads, writes, truncations and removals, in the threads that called.
  double cpu_s() const { return static_cast<double>(cpu_ns_) * 1e-9; }

 private:
  std::atomic<uint64_t> written_bytes_{0}, cpu_ns_{0};
  Mutex mutex_;
  std::vector<Chunk> free_ CAIRN_GUARDED_BY(mutex_);
};

// An empty file system with a volume of 1 TiB, real threads and real clocks.
World MakeNoDiskWorld(std::shared_ptr<NoDisk> machine, NoDiskKeeps keeps);

}  // namespace cairn::io
