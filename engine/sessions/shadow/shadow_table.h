// SPDX-License-Identifier: Apache-2.0
//
// Shadows as derived tables (engine/restore/derived_tables.h), of the position `covered`. All
// fragments are of the KV lane of the group; slices are heads of layers, [layer][head].
//
//   fragment            begin            count           per page
//   part                first token      its tokens      the part: 1024 tokens, the last one fewer
//   always              covered          chunks          64 chunks
//   head                covered + 2^32   1               one slice: the spec
//   basis               covered + 2^33   1               low rank alone; slices are layers
//   rows                2^34 + a part's  its tokens      low rank alone; slices are layers
//
//   part     landmarks of its chunks: whole blocks of 64, then rows of the dtype
//            blocks of 64 keys; int8 and int4 alone
//            f32 per chunk: its cosine
//   always   u32 per chunk: which; then their rows of keys; then their rows of values
//   head     a field table (base/codec/fields.h): 1 version, 2 group, 3 chunk_tokens, 4 keys,
//            5 landmark_bits, 6 local_tokens, 7 sink_tokens, 8 outlier_share, 9 outlier_chunks,
//            10 rank, 11 rank_energy
//   basis    u32 rank; f32 the share of the sum of squares of all keys that it keeps; then the
//            vectors, [rank][channels of all heads] of the dtype
//   rows     coefficients, [token][rank] of the dtype
//
// Sizes follow from model and spec, so no frame says its own. Parts of which no token is missing
// are the same bytes in the table of every longer context. Why not one frame per head: each frame
// costs a checksum and a copy to the device of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/codec/fields.h"
#include "base/shadow/low_rank.h"
#include "engine/sessions/shadow/shadow_shape.h"
#include "sstable/snapshot_table.h"
#include "sstable/snapshot_writer.h"

namespace cairn::engine {

// Without the budget, which no table depends on.
FieldWriter EncodeShadowSpec(const ShadowSpec& spec, uint32_t group);

// Where what lies in the frame of a part.
struct ShadowPartLayout {
  ShadowPartLayout(const ShadowShape& shape, uint64_t first, uint32_t tokens);
  uint64_t first = 0;
  uint32_t tokens = 0, chunks = 0;
  uint32_t landmark_blocks = 0, landmark_rows = 0;  // Whole blocks; rows behind them.
  size_t landmarks_bytes = 0, tail_bytes = 0, keys_bytes = 0;
  size_t tail_at() const { return landmarks_bytes; }
  size_t keys_at() const { return tail_at() + tail_bytes; }
  size_t cosines_at() const { return keys_at() + keys_bytes; }
  size_t bytes() const { return cosines_at() + chunks * sizeof(float); }
};
// Those of all parts of a shadow.
std::vector<ShadowPartLayout> PartsOf(const ShadowShape& shape);

// The frame of the keys of one part. REQUIRES: exactly its rows; no element out of range.
std::vector<std::byte> MakePart(const ShadowShape& shape, const ShadowPartLayout& part,
                                std::span<const uint16_t> keys);

// The vectors of a layer's low-rank keys.
struct LayerBasis {
  shadow::LowRankBasis basis{};
  float kept = 0;  // The share of its keys' sum of squares that it keeps.
};

// --- Writing, in this order
void BeginPart(const ShadowShape& shape, uint64_t node, const ShadowPartLayout& part,
               sstable::SnapshotWriter* table);
void BeginAlways(const ShadowShape& shape, uint64_t node, sstable::SnapshotWriter* table);
Status WriteHead(const ShadowShape& shape, uint64_t node, sstable::SnapshotWriter* table);
Status WriteBases(const ShadowShape& shape, uint64_t node, std::span<const LayerBasis> bases,
                  sstable::SnapshotWriter* table);
void BeginRows(const ShadowShape& shape, uint64_t node, const ShadowPartLayout& part,
               sstable::SnapshotWriter* table);

// --- Reading
// One frame of a slice; borrowed until the call returns.
using OnShadowPart = std::function<Status(const ShadowPartLayout& part, size_t row,
                                          std::span<const std::byte> frame)>;
struct ShadowFrames {
  OnShadowPart on_part;
  // `first`: of the chunks that are always attended to, the one that the frame begins with.
  std::function<Status(uint32_t first, uint32_t chunks, size_t row,
                       std::span<const std::byte> frame)>
      on_always;
  std::function<Status(uint32_t layer, const LayerBasis& basis)> on_basis{};
  OnShadowPart on_rows{};  // `row`: the layer.
};
// All of it, in order; null: passed over. `covered`: of the table, by its owner; at most
// shape.plan.covered. kCorruption; kNotFound: it is of another spec; what the calls say.
Status ReadShadow(const ShadowShape& shape, uint64_t covered, sstable::SnapshotTable* table,
                  const ShadowFrames& frames);

// The largest rank of a layer of low-rank keys. Reads what sizes the frames have, and no frame.
// kCorruption: no shape has that many.
Result<uint32_t> MostRank(const ShadowShape& shape, sstable::SnapshotTable* table);

}  // namespace cairn::engine
