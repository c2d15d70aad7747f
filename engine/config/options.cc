// SPDX-License-Identifier: Apache-2.0
//
// Checks options before anything is opened.
#include "cairn/options.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "cairn/limits.h"
#include "engine/config/memory_parts.h"

namespace cairn {

Status Options::Validate() const {
  const auto bad = [](std::string what) {
    return Status(StatusCode::kInvalidArgument, "options." + std::move(what));
  };
  if (segment_bytes != 0 && (segment_bytes < kMinSegmentBytes || segment_bytes > kMaxSegmentBytes ||
                             segment_bytes % 4096 != 0)) {
    return bad("segment_bytes is " + std::to_string(segment_bytes) +
               "; it must be 0 or a multiple of 4096 in [256 KiB, 1 GiB]");
  }
  if (spare_segments_min < 1 || spare_segments_max < spare_segments_min ||
      spare_segments_max > kMaxSpareSegments) {
    return bad("spare_segments_min and _max must satisfy 1 <= min <= max <= 1024");
  }
  for (const Gpu& gpu : gpus) {
    const auto same = std::count_if(gpus.begin(), gpus.end(), [&](const Gpu& other) {
      return other.ordinal() == gpu.ordinal();
    });
    const std::string name = "gpus: ordinal " + std::to_string(gpu.ordinal());
    if (same > 1) return bad(name + " is there twice");
    const uint64_t pinned = gpu.options().pinned_bytes;
    if (pinned != 0 && pinned < kMinPinnedBytes) {
      return bad(name + ": pinned_bytes is " + std::to_string(pinned) +
                 "; it must be 0 or at least " + std::to_string(kMinPinnedBytes));
    }
  }
  if (background_bytes_per_second != 0 && background_bytes_per_second < kMinBackgroundRate) {
    return bad("background_bytes_per_second is " + std::to_string(background_bytes_per_second) +
               "; it must be 0 (no limit) or at least " + std::to_string(kMinBackgroundRate));
  }
  if ((file_mode & 0600) != 0600 || (file_mode & ~uint32_t{0666}) != 0) {
    char octal[16];
    std::snprintf(octal, sizeof(octal), "0%o", file_mode);
    return bad("file_mode is " + std::string(octal) +
               "; it must have 0600 and nothing beyond 0666");
  }
  if (max_memory_bytes < kMinMemoryBytes) return bad("max_memory_bytes must be 16 MiB or more");
  const uint64_t pinned_bytes = engine::PinnedBytes(*this);
  if (pinned_bytes > std::min(max_memory_bytes / 2, max_memory_bytes - kMinMemoryBytes)) {
    return bad("gpus: pinned_bytes is " + std::to_string(pinned_bytes) +
               " in all; at most half of max_memory_bytes, " + std::to_string(max_memory_bytes) +
               ", may go there, and 16 MiB must be left");
  }
  if (hot_tail_bytes < kMinHotTailBytes) {
    return bad("hot_tail_bytes is " + std::to_string(hot_tail_bytes) + "; it must be at least " +
               std::to_string(kMinHotTailBytes));
  }
  if (hot_tail_bytes > (max_memory_bytes - pinned_bytes) / 2) {
    return bad("hot_tail_bytes is " + std::to_string(hot_tail_bytes) +
               "; at most half of max_memory_bytes may go there" +
               (pinned_bytes == 0
                    ? ""
                    : " beside pinned_bytes, " + std::to_string(pinned_bytes) + " in all"));
  }
  if (reuse_memory_bytes != 0 && reuse_memory_bytes < kMinReuseMemoryBytes) {
    return bad("reuse_memory_bytes is " + std::to_string(reuse_memory_bytes) +
               "; it must be 0, or at least " + std::to_string(kMinReuseMemoryBytes));
  }
  if (index > Index::kNone) {
    return bad(index == Index::kChunks ? "index is kChunks, which is for policies of namespaces"
                                       : "index is none that exists");
  }
  if (submit_copy_max_bytes > kMaxSubmitCopyBytes) {
    return bad("submit_copy_max_bytes must be at most " + std::to_string(kMaxSubmitCopyBytes));
  }
  if (replay_records_max == 0) return bad("replay_records_max must be 1 or more");
  if (delta_batch_tokens < 1 || delta_batch_tokens > kMaxDeltaBatchTokens) {
    return bad("delta_batch_tokens must be in [1, 64]");
  }
  if (executor_threads > kMaxExecutorThreads) {
    return bad("executor_threads is " + std::to_string(executor_threads) + "; at most " +
               std::to_string(kMaxExecutorThreads));
  }
  if (delta_batch_wait_ns > kMaxDeltaBatchWaitNs) {
    return bad("delta_batch_wait_ns is " + std::to_string(delta_batch_wait_ns) + "; at most " +
               std::to_string(kMaxDeltaBatchWaitNs));
  }
  if (backend > Backend::kThreads) return bad("backend is none that exists");
  if (on_fatal > FatalAction::kAbort) return bad("on_fatal is none that exists");
  if (evict > Evict::kBranches) return bad("evict is none that exists");
  if (recovery > Recovery::kSetAside) return bad("recovery is none that exists");
  if (allocator.allocate == nullptr || allocator.deallocate == nullptr) {
    return bad("allocator has a null function");
  }
  if (read_only && (create_if_missing || error_if_exists)) {
    return bad("read_only excludes create_if_missing and error_if_exists");
  }
  return Status::Ok();
}

}  // namespace cairn
