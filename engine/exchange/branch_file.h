// SPDX-License-Identifier: Apache-2.0
//
// What an exported branch's file says of itself, and where in it which tensor lies. Both directions
// go through this description: an export fills it in and writes it; an import reads it, and then
// the file holds exactly what it says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/branch_types.h"
#include "cairn/model.h"
#include "engine/exchange/safetensors.h"
#include "engine/restore/plan/plan.h"

namespace cairn::engine {

// KV of one layer group. In its tensors the positions of the runs follow each other.
struct GroupKv {
  std::vector<Range> runs;         // In order; no two touch.
  std::vector<Range> approximate;  // Parts of them with Delta::exact off.
  // Digests cover the rows of one head and one run whose positions have the same multiple of this,
  // a power of two.
  uint64_t digest_positions = 1;
  uint64_t positions() const;
  uint64_t blocks() const;  // Of one head.
};

// The tensor of one plane of one layer.
struct KvTensor {
  uint32_t group = 0, layer = 0, plane = 0;
  std::string name;
  uint64_t offset = 0;  // Of its first byte, behind the header.
  std::string digest;   // Hexadecimal; all zeros until it is known.
};

// Content that has one tensor of its own.
struct Whole {
  uint64_t bytes = 0, offset = 0;
  std::string digest;
};

struct BranchFile {
  std::string snapshot_id, base_snapshot_id;
  uint64_t begin = 0, end = 0;  // Tokens.
  std::string name, ns;
  Keep keep;
  uint64_t created_at_ns = 0, updated_at_ns = 0;
  ModelSpec model;
  std::vector<GroupKv> groups;  // One a layer group.
  std::vector<ContentSpan> spans;
  uint64_t lossy_bytes = 0;  // KV bytes that went through SealedAs::kInt8.
  Whole tokens, states;
  std::vector<KvTensor> tensors;        // By group, layer and plane; of groups with positions.
  std::optional<SamplerState> sampler;  // The newest; for readers, an import does not look at it.

  uint64_t kv_bytes() const;
};

// The largest piece that an import has in memory for one check.
inline constexpr uint64_t kDigestBytes = 4u << 20;
// Blocks of all tensors, whose digests are in memory at once, 16 bytes each.
inline constexpr uint64_t kDigestBlocksMax = 16u << 20;
uint64_t DigestBlocksOf(const BranchFile& file);
// As many positions of the group as that holds.
uint64_t DigestPositionsOf(const LayerGroup& group);

// Names the tensors of all groups that have positions, and places them one behind the other: ids,
// KV, states, larger elements first. Returns the bytes of all of them.
uint64_t PlaceTensors(BranchFile* file);

SafetensorsHeader HeaderOf(const BranchFile& file);
// kInvalidArgument: the file is none of ours. kUnsupportedFormat. kCorruption: what it says does
// not fit itself, or its tensors.
Result<BranchFile> BranchFileOf(const SafetensorsHeader& header);

}  // namespace cairn::engine
