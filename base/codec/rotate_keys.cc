// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "base/codec/rotary_table.h"
#include "base/core/out_of_memory.h"
#include "cairn/model.h"

namespace cairn {

namespace {

// Tokens whose turns are made at once. Those of 64 pairs, up to 128 KiB, stay in a core's cache
// while the rows of all layers pass.
constexpr size_t kTableTokens = 128;

Status Bad(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

// Numbers of rows: tokens, and what each has.
struct Counts {
  uint64_t layers = 0, tokens = 0, heads = 0, elements = 0;
  uint32_t element_bytes = 0;
};

// The strides with those that are not given. Where there is one row or none to step to, 0: a stride
// that leads nowhere may be any number, and no pointer may move by it.
Result<KeyStrides> FullStrides(KeyStrides given, const Counts& counts, const std::string& field) {
  const auto fill = [](uint64_t* stride, uint64_t inner, uint64_t count) {
    return *stride != 0 || !__builtin_mul_overflow(inner, count, stride);
  };
  if (given.element == 0) given.element = counts.element_bytes;
  if (!fill(&given.head, given.element, counts.elements) ||
      !fill(&given.token, given.head, counts.heads) ||
      !fill(&given.layer, given.token, counts.tokens)) {
    return Bad(field + ": rows are beyond 2^64 bytes apart");
  }
  if (counts.layers <= 1) given.layer = 0;
  if (counts.tokens <= 1) given.token = 0;
  if (counts.heads <= 1) given.head = 0;
  return given;
}

// From the first byte to behind the last one, where no two elements overlap.
Result<uint64_t> ExtentOf(const KeyStrides& strides, const Counts& counts,
                          const std::string& field) {
  struct Dimension {
    uint64_t stride, count;
    const char* name;
  };
  std::array<Dimension, 4> dimensions = {{{strides.element, counts.elements, ".element"},
                                          {strides.head, counts.heads, ".head"},
                                          {strides.token, counts.tokens, ".token"},
                                          {strides.layer, counts.layers, ".layer"}}};
  std::sort(dimensions.begin(), dimensions.end(),
            [](const auto& a, const auto& b) { return a.stride < b.stride; });
  uint64_t extent = counts.element_bytes;
  for (const Dimension& one : dimensions) {
    if (one.count <= 1) continue;
    if (one.stride < extent) {
      return Bad(field + one.name + " is " + std::to_string(one.stride) +
                 ", by which rows overlap; from " + std::to_string(extent));
    }
    uint64_t more = 0;
    if (__builtin_mul_overflow(one.stride, one.count - 1, &more) ||
        __builtin_add_overflow(extent, more, &extent)) {
      return Bad(field + one.name + " is " + std::to_string(one.stride) +
                 ": rows are beyond 2^64 bytes apart");
    }
  }
  return extent;
}

template <typename Byte>
Status CheckFits(std::span<Byte> memory, uint64_t extent, const char* field) {
  if (extent <= memory.size()) return Status::Ok();
  return Bad(std::string(field) + " has " + std::to_string(memory.size()) +
             " bytes; the rows take " + std::to_string(extent));
}

// Tokens; how many each number of positions makes.
Result<uint64_t> TokensOf(const KeyRotation& given, const Rotation& rotation, bool before) {
  const uint32_t positions = rotation.positions();
  if (given.to.size() % positions != 0) {
    return Bad("to has " + std::to_string(given.to.size()) + " positions; a token has " +
               std::to_string(positions));
  }
  if (before ? !given.from.empty() : given.from.size() != given.to.size()) {
    return Bad("from has " + std::to_string(given.from.size()) + " positions, not " +
               std::to_string(before ? 0 : given.to.size()) +
               (before ? ": rows of this plane are stored before rotation" : ", as many as to"));
  }
  return given.to.size() / positions;
}

Status CheckApart(const KeyRotation& given, const KeyStrides& from, const KeyStrides& into,
                  uint64_t from_extent, uint64_t into_extent) {
  const std::byte* const rows = given.rows.data();
  const std::byte* const target = given.into.data();
  if (rows == target && from == into) return Status::Ok();
  const std::less<const std::byte*> before;
  if (!before(rows, target + into_extent) || !before(target, rows + from_extent)) {
    return Status::Ok();
  }
  return Bad("into shares memory with rows, and is not the same rows with the same strides");
}

void TurnAll(const KeyRotation& given, const Rotation& rotation, const Counts& counts, bool before,
             const KeyStrides& from, const KeyStrides& into) {
  RotaryTable table(rotation, std::min<uint64_t>(kTableTokens, counts.tokens));
  const size_t positions = rotation.positions();
  const auto rows_at = [](auto* data, const KeyStrides& strides, uint64_t layer, uint64_t token) {
    using Byte = std::remove_pointer_t<decltype(data)>;
    return RotaryRows<Byte>{
        data + layer * strides.layer + token * strides.token, static_cast<ptrdiff_t>(strides.token),
        static_cast<ptrdiff_t>(strides.head), static_cast<ptrdiff_t>(strides.element)};
  };
  for (uint64_t token = 0; token < counts.tokens; token += table.tokens()) {
    const size_t count = std::min<uint64_t>(kTableTokens, counts.tokens - token);
    const auto part = [&](std::span<const uint64_t> all) {
      return all.subspan(token * positions, count * positions);
    };
    if (before) {
      table.SetAt(part(given.to));
    } else {
      table.SetBetween(part(given.from), part(given.to));
    }
    for (uint64_t layer = 0; layer < counts.layers; ++layer) {
      table.Turn(0, count, counts.heads, rows_at(given.rows.data(), from, layer, token),
                 rows_at(given.into.data(), into, layer, token));
    }
  }
}

Status Rotate(const LayerGroup& group, const KeyRotation& given) {
  if (given.plane >= group.planes.size()) {
    return Bad("plane is " + std::to_string(given.plane) + "; the group has " +
               std::to_string(group.planes.size()));
  }
  const Plane& plane = group.planes[given.plane];
  CAIRN_ASSIGN_OR_RETURN(const Rotation rotation, Rotation::Of(group, given.plane));
  const bool before = plane.rotary.state == RotaryState::kBefore;
  Counts counts = {.layers = given.layers,
                   .heads = plane.heads,
                   .elements = rotation.elements(),
                   .element_bytes = DtypeBytes(plane.dtype)};
  if (plane.row_bytes != counts.elements * counts.element_bytes) {
    return Bad("row_bytes of the plane is " + std::to_string(plane.row_bytes) +
               ", not a multiple of the size of " + DtypeName(plane.dtype));
  }
  CAIRN_ASSIGN_OR_RETURN(counts.tokens, TokensOf(given, rotation, before));
  if (counts.layers == 0 || counts.tokens == 0 || counts.heads == 0) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const KeyStrides from,
                         FullStrides(given.row_strides, counts, "row_strides"));
  CAIRN_ASSIGN_OR_RETURN(const KeyStrides into,
                         FullStrides(given.into_strides, counts, "into_strides"));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t from_extent, ExtentOf(from, counts, "row_strides"));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t into_extent, ExtentOf(into, counts, "into_strides"));
  CAIRN_RETURN_IF_ERROR(CheckFits(given.rows, from_extent, "rows"));
  CAIRN_RETURN_IF_ERROR(CheckFits(given.into, into_extent, "into"));
  CAIRN_RETURN_IF_ERROR(CheckApart(given, from, into, from_extent, into_extent));
  TurnAll(given, rotation, counts, before, from, into);
  return Status::Ok();
}

}  // namespace

Status RotateKeys(const LayerGroup& group, const KeyRotation& rotation) {
  return CatchBadAlloc([&] { return Rotate(group, rotation); });
}

}  // namespace cairn
