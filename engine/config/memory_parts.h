// SPDX-License-Identifier: Apache-2.0
//
// How max_memory_bytes is divided, without what is pinned for GPUs. Each part is a bound that is
// guaranteed to its user; the page cache uses what staging and read buffers leave unused
// (base/core/memory_budget.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cairn/options.h"
#include "engine/config/constants.h"

namespace cairn::engine {

// Part of what is kept, for outlines of batches, about 90 bytes per object: at 1 GiB 40,000
// objects.
inline constexpr uint64_t kOutlinesShare = 256;

struct MemoryParts {
  uint64_t hot_tail = 0, staging = 0;
  uint64_t stages = 0;      // The space thread's: KV that is sealed next.
  uint64_t kept = 0;        // Free buffers kept for reuse (base/core/block_arena.h).
  uint64_t outlines = 0;    // Outlines of batches in the log (restore/plan/record_outline.h).
  uint64_t slab_bytes = 0;  // One slab of the page cache (base/core/slab_arena.h)...
  uint64_t slab_kept = 0;   // ...and its free places that are kept.
  uint64_t tree = 0;
  // For prefixes and keys of objects; the latter take theirs as they need it.
  uint64_t reuse = 0;
  uint64_t prefixes = 0;  // The part of `reuse` that prefixes get; 0 with Options::index off.
  uint64_t index_blocks = 0;
  uint64_t directories = 0;  // Directories of open tables.
  // One window for each restore that runs; others wait in line (memory_line.h). The same amount
  // again for further windows, which make a restore faster.
  uint64_t read_buffers = 0;
  uint64_t pinned_kept = 0;  // Read buffers kept for each GPU, if there is one.
  uint64_t page_floor = 0;   // The least that the page cache has.

  // Bound of the directory of objects, within `reuse`.
  uint64_t objects() const { return reuse - reuse / kPrefixShare; }
  // Taken as long as the store is open.
  uint64_t fixed() const {
    return hot_tail + stages + kept + outlines + slab_kept + tree + prefixes + index_blocks +
           directories;
  }
};

// GpuOptions::pinned_bytes of all GPUs; UINT64_MAX: more than there are bytes.
inline uint64_t PinnedBytes(const Options& options) {
  uint64_t bytes = 0;
  for (const Gpu& gpu : options.gpus) {
    const uint64_t more = gpu.options().pinned_bytes;
    bytes = more > UINT64_MAX - bytes ? UINT64_MAX : bytes + more;
  }
  return bytes;
}

inline MemoryParts DivideMemory(const Options& options) {
  MemoryParts parts;
  const uint64_t bytes = options.max_memory_bytes - PinnedBytes(options);
  parts.hot_tail = options.hot_tail_bytes;
  parts.staging = bytes / kStagingShare;
  parts.stages = bytes / kStageShare;
  parts.outlines = bytes / kOutlinesShare;
  parts.kept = bytes / kKeptShare - parts.outlines;
  parts.slab_bytes = std::bit_floor(std::clamp(bytes / kSlabShare, kSlabBytesMin, kSlabBytesMax));
  parts.slab_kept = bytes / kSlabKeptShare;
  const uint64_t rest = bytes - parts.hot_tail - parts.staging - parts.stages - parts.kept -
                        parts.outlines - parts.slab_kept;
  const uint64_t tree_max = rest / kTreeShare;
  parts.tree = std::min(options.tree_memory_bytes, tree_max - tree_max / kReuseShareOfTree);
  parts.index_blocks = std::min(rest / kIndexBlocksShare, kIndexBlocksMax);
  parts.directories = std::min(rest / kDirectoriesShare, kDirectoriesMax);
  parts.read_buffers = rest / kReadBuffersShare;
  parts.pinned_kept =
      std::min(kReadWindows * (kReadWindowBytes + kReadWindowBytes / 8), parts.read_buffers / 2);
  parts.page_floor = rest / kPageFloorShare;
  parts.reuse =
      std::min(options.reuse_memory_bytes != 0 ? options.reuse_memory_bytes : bytes / kReuseShare,
               rest - parts.tree - parts.index_blocks - parts.directories - parts.read_buffers -
                   parts.page_floor);
  if (options.index != Index::kNone) parts.prefixes = parts.reuse / kPrefixShare;
  return parts;
}

}  // namespace cairn::engine
