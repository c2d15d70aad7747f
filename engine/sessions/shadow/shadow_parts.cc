// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/shadow/shadow_parts.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "base/core/check.h"
#include "base/shadow/block_quantizer.h"
#include "base/shadow/landmarks.h"
#include "engine/sessions/shadow/constants.h"
#include "engine/sessions/sparse/head_rows.h"

namespace cairn::engine {

namespace {

uint32_t LayerOf(const ShadowShape& shape, size_t row) {
  return static_cast<uint32_t>(row / shape.heads);
}
uint32_t HeadOf(const ShadowShape& shape, size_t row) {
  return static_cast<uint32_t>(row % shape.heads);
}

Status CheckFit(const ShadowShape& shape, const ShadowPartLayout& part, size_t row,
                std::span<const uint16_t> keys) {
  const auto found = shadow::FindOutOfRange(shape.fp16, keys);
  if (!found.has_value()) return Status::Ok();
  return Status(StatusCode::kInvalidArgument,
                "shadow: layer " + std::to_string(LayerOf(shape, row)) + ", head " +
                    std::to_string(HeadOf(shape, row)) + ": the key of position " +
                    std::to_string(part.first + *found / shape.channels) +
                    " is NaN, infinite or too large");
}

// `rows` of them, from `row` on. `memory`: of the ones before.
Status MakeRows(const ShadowRowsOf& from, const ShadowShape& shape, const ShadowPartLayout& part,
                size_t row, size_t rows, const OnShadowPart& on_part,
                std::vector<uint16_t>* memory) {
  const size_t elements = size_t{part.tokens} * shape.channels;
  std::vector<uint16_t>& keys = *memory;
  keys.resize(rows * elements);
  std::vector<HeadRows> reads(rows);
  for (size_t i = 0; i < rows; ++i) {
    reads[i] = {.layer = LayerOf(shape, row + i),
                .plane = 0,
                .head = HeadOf(shape, row + i),
                .first = part.first,
                .tokens = part.tokens,
                .into = reinterpret_cast<std::byte*>(keys.data() + i * elements)};
  }
  const auto row_bytes = shape.row_bytes();
  CAIRN_RETURN_IF_ERROR(
      ReadHeadRows(from.reads, from.node, shape.group, row_bytes, reads, UINT64_MAX));
  for (size_t i = 0; i < rows; ++i) {
    const auto of = std::span<const uint16_t>(keys).subspan(i * elements, elements);
    CAIRN_RETURN_IF_ERROR(CheckFit(shape, part, row + i, of));
    CAIRN_RETURN_IF_ERROR(on_part(part, row + i, MakePart(shape, part, of)));
  }
  return Status::Ok();
}

}  // namespace

Status MakeParts(const ShadowRowsOf& from, const ShadowShape& shape, uint64_t first,
                 const OnShadowPart& on_part) {
  CAIRN_CHECK(first % kShadowPartTokens == 0);
  std::vector<uint16_t> memory;
  for (const ShadowPartLayout& part : PartsOf(shape)) {
    if (part.first < first) continue;
    const size_t row_bytes = size_t{part.tokens} * shape.key_bytes;
    const size_t at_once = std::max<size_t>(1, kShadowReadBytes / row_bytes);
    for (size_t row = 0; row < shape.rows(); row += at_once) {
      const size_t rows = std::min(at_once, shape.rows() - row);
      CAIRN_RETURN_IF_ERROR(MakeRows(from, shape, part, row, rows, on_part, &memory));
    }
  }
  return Status::Ok();
}

Result<std::vector<std::byte>> ReadChunks(const ShadowRowsOf& from, const ShadowShape& shape,
                                          size_t row, std::span<const uint32_t> chunks) {
  const uint32_t tokens = shape.spec.chunk_tokens;
  const size_t key_bytes = size_t{tokens} * shape.key_bytes;
  const size_t value_bytes = size_t{tokens} * shape.value_bytes;
  std::vector<std::byte> rows(chunks.size() * (key_bytes + value_bytes));
  std::vector<HeadRows> reads;
  for (size_t i = 0; i < chunks.size(); ++i) {
    HeadRows read{.layer = LayerOf(shape, row),
                  .plane = 0,
                  .head = HeadOf(shape, row),
                  .first = uint64_t{chunks[i]} * tokens,
                  .tokens = tokens,
                  .into = &rows[i * key_bytes]};
    reads.push_back(read);
    read.plane = 1;
    read.into = &rows[chunks.size() * key_bytes + i * value_bytes];
    reads.push_back(read);
  }
  const auto row_bytes = shape.row_bytes();
  for (std::span<const HeadRows> left = reads; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kShadowReadsAtOnce));
    CAIRN_RETURN_IF_ERROR(
        ReadHeadRows(from.reads, from.node, shape.group, row_bytes, some, UINT64_MAX));
    left = left.subspan(some.size());
  }
  return rows;
}

// ---------------------------------------------------------------- always attended to

void AlwaysChunks::TakePart(const ShadowPartLayout& part, size_t row,
                            std::span<const std::byte> frame) {
  std::vector<float>& cosines = rows_[row].cosines;
  const size_t before = part.first / (part.tokens / part.chunks);
  CAIRN_CHECK(cosines.size() >= before);
  cosines.resize(before + part.chunks);
  std::memcpy(&cosines[before], &frame[part.cosines_at()], part.chunks * sizeof(float));
}

std::vector<AlwaysChunks::Place> AlwaysChunks::Reset(const shadow::ShadowPlan& plan, size_t row) {
  Row& of = rows_[row];
  std::vector<uint32_t> wanted(plan.sink_chunks);
  for (uint32_t i = 0; i < plan.sink_chunks; ++i) wanted[i] = i;
  CAIRN_CHECK(of.cosines.size() >= plan.chunks);
  of.cosines.resize(plan.chunks);  // An Extend that failed may have left more.
  const std::vector<uint32_t> outliers = shadow::FindOutliers(plan, of.cosines);
  wanted.insert(wanted.end(), outliers.begin(), outliers.end());
  CAIRN_CHECK(of.chunks.size() <= wanted.size());
  std::vector<uint32_t> fresh;
  std::vector<uint32_t> had(of.chunks);
  std::sort(had.begin(), had.end());
  std::set_difference(wanted.begin(), wanted.end(), had.begin(), had.end(),
                      std::back_inserter(fresh));
  std::vector<Place> places;
  auto next = fresh.begin();
  for (uint32_t at = 0; at < wanted.size(); ++at) {
    const bool stays =
        at < of.chunks.size() && std::binary_search(wanted.begin(), wanted.end(), of.chunks[at]);
    if (stays) continue;
    CAIRN_CHECK(next != fresh.end());
    places.push_back({at, *next++});
  }
  CAIRN_CHECK(next == fresh.end());
  of.chunks.resize(wanted.size());
  for (const Place& place : places) of.chunks[place.at] = place.chunk;
  return places;
}

}  // namespace cairn::engine
