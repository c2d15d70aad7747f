// SPDX-License-Identifier: Apache-2.0
//
// How large things may be. Content within these limits can be sealed, compacted, checkpointed,
// verified, evicted, restored and reopened. A larger value is kInvalidArgument naming the field,
// before anything is applied. Every part of the store takes its limits from here; docs/limits.md
// has a row for each, and says which others follow from Options.
//
// The numbers are the most that is accepted, unless their name begins with kMin.
#pragma once

#include <cstdint>

namespace cairn {

// --- Names: of a branch, of a namespace. Any bytes but NUL; the library does not interpret them.
inline constexpr uint64_t kMaxNameBytes = 256;

// --- Models. Together these keep a description below 1 MiB.
inline constexpr uint64_t kMaxIdentityBytes = 1024;   // Each text of identity and variant.
inline constexpr uint64_t kMaxGroupNameBytes = 256;   // Each name of a layer group or a plane.
inline constexpr uint64_t kMaxLayerGroups = 15;       // A store numbers them with four bits.
inline constexpr uint64_t kMaxLayers = 65536;         // Per group.
inline constexpr uint64_t kMaxPlanes = 64;            // Per group.
inline constexpr uint64_t kMaxHeads = 65536;          // Per plane.
inline constexpr uint64_t kMaxRowBytes = 64u << 20;   // One head of one token; a recurrent state.
inline constexpr uint64_t kMaxGroupHeads = 1u << 20;  // Heads of all planes of all layers.
inline constexpr uint64_t kMaxPositionBytes = 1u << 30;  // One position of a group.
inline constexpr uint64_t kMaxInvFreq = 4096;
inline constexpr uint64_t kMaxRotarySections = 8;                          // M-RoPE has three.
inline constexpr uint64_t kMinExtentTokens = 64, kMaxExtentTokens = 4096;  // Or 0.

// --- Appends
// Token ids of one append, and positions of KV of one append or Fill. Restores have no such limit.
inline constexpr uint64_t kMaxAppendTokens = 1u << 24;
// Content spans of one append.
inline constexpr uint64_t kMaxAppendSpans = 65536;
// Bytes of SamplerState::blob and of AppMetadata::bytes. States, metadata and spans of an append
// must fit its log record as well: see docs/limits.md.
inline constexpr uint64_t kMaxStateBytes = 16u << 20;
inline constexpr uint64_t kMaxLastLogits = kMaxStateBytes / sizeof(float);
inline constexpr uint64_t kMaxStateTextBytes = 1024;  // blob_name, content_type.

// Changes of one WriteBatch: all of them are decided together, and other changes wait for that,
// some microseconds each.
inline constexpr uint64_t kMaxBatchOps = 4096;

// --- Options
inline constexpr uint64_t kMinSegmentBytes = 256u << 10, kMaxSegmentBytes = 1u << 30;
inline constexpr uint64_t kMinMemoryBytes = 16u << 20;
inline constexpr uint64_t kMinHotTailBytes = 256u << 10;  // Eight chunks of a useful size.
inline constexpr uint64_t kMaxSubmitCopyBytes = (4u << 20) + (64u << 10);
inline constexpr uint64_t kMaxSpareSegments = 1024;
inline constexpr uint64_t kMaxDeltaBatchTokens = 64;
// An hour: a larger number is a mistake in the unit.
inline constexpr uint64_t kMaxDeltaBatchWaitNs = 3'600'000'000'000;
inline constexpr uint64_t kMinBackgroundRate = 64u << 10;   // Or 0.
inline constexpr uint64_t kMinPinnedBytes = 1u << 20;       // Or 0.
inline constexpr uint64_t kMinReuseMemoryBytes = 8u << 10;  // Or 0.
inline constexpr uint64_t kMaxExecutorThreads = 1024;       // More than any machine has cores.

// All of them, by the field that they bound, for programs that show or check them. "X from" is the
// least value of X, the others are the most. The texts are static.
struct Limit {
  const char* field;
  uint64_t value;
};
inline constexpr Limit kLimits[] = {
    {"BranchOptions::name", kMaxNameBytes},
    {"BranchOptions::ns", kMaxNameBytes},
    {"ModelIdentity::*", kMaxIdentityBytes},
    {"ModelVariant::name, digest", kMaxIdentityBytes},
    {"ModelSpec::groups", kMaxLayerGroups},
    {"ModelSpec::logical", kMaxLayerGroups},
    {"ModelSpec::extent_tokens from", kMinExtentTokens},
    {"ModelSpec::extent_tokens", kMaxExtentTokens},
    {"LayerGroup::name, packing", kMaxGroupNameBytes},
    {"LayerGroup::layers", kMaxLayers},
    {"LayerGroup::planes", kMaxPlanes},
    {"LayerGroup::inv_freq", kMaxInvFreq},
    {"LayerGroup: layers x heads", kMaxGroupHeads},
    {"LayerGroup::token_bytes()", kMaxPositionBytes},
    {"Plane::name", kMaxGroupNameBytes},
    {"Plane::heads", kMaxHeads},
    {"Plane::row_bytes", kMaxRowBytes},
    {"Plane::rotary.sections", kMaxRotarySections},
    {"LogicalGroup::name", kMaxGroupNameBytes},
    {"Delta::tokens", kMaxAppendTokens},
    {"Delta::spans", kMaxAppendSpans},
    {"GroupView::count", kMaxAppendTokens},
    {"BeginAppend: positions", kMaxAppendTokens},
    {"SamplerState::blob", kMaxStateBytes},
    {"SamplerState::blob_name", kMaxStateTextBytes},
    {"SamplerState::last_logits", kMaxLastLogits},
    {"AppMetadata::bytes", kMaxStateBytes},
    {"AppMetadata::content_type", kMaxStateTextBytes},
    {"WriteBatch: ops", kMaxBatchOps},
    {"Options::segment_bytes from", kMinSegmentBytes},
    {"Options::segment_bytes", kMaxSegmentBytes},
    {"Options::max_memory_bytes from", kMinMemoryBytes},
    {"Options::hot_tail_bytes from", kMinHotTailBytes},
    {"Options::submit_copy_max_bytes", kMaxSubmitCopyBytes},
    {"Options::spare_segments_max", kMaxSpareSegments},
    {"Options::delta_batch_tokens", kMaxDeltaBatchTokens},
    {"Options::delta_batch_wait_ns", kMaxDeltaBatchWaitNs},
    {"Options::background_bytes_per_second from", kMinBackgroundRate},
    {"Options::executor_threads", kMaxExecutorThreads},
    {"Options::reuse_memory_bytes from", kMinReuseMemoryBytes},
    {"GpuOptions::pinned_bytes from", kMinPinnedBytes},
};

}  // namespace cairn
