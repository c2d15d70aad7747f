// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/golden_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "base/core/check.h"

namespace cairn::golden {

namespace {

constexpr std::byte kUntouched{0xEE};

uint64_t Mix(uint64_t value) {  // The finalizer of SplitMix64.
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

void WriteRow(const Plane& plane, uint64_t seed, std::span<std::byte> row) {
  if (plane.dtype == Dtype::kF32) {
    constexpr float kScale = 0.5F;
    for (size_t at = 0; at < row.size(); at += sizeof kScale) {
      std::memcpy(row.data() + at, &kScale, sizeof kScale);
    }
    return;
  }
  if (plane.dtype != Dtype::kBf16) {
    for (size_t at = 0; at < row.size(); ++at) row[at] = static_cast<std::byte>(Draw(seed, at));
    return;
  }
  for (size_t at = 0; at < row.size(); at += sizeof(uint16_t)) {
    const auto whole = static_cast<float>(static_cast<int64_t>(Draw(seed, at) % 255) - 127);
    const auto element = static_cast<uint16_t>(std::bit_cast<uint32_t>(whole) >> 16);
    std::memcpy(row.data() + at, &element, sizeof element);
  }
}

}  // namespace

uint64_t Draw(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
  return Mix(Mix(Mix(Mix(seed) + a) + b) + c);
}

Rows::Rows(const ModelSpec& spec, const std::vector<RowRange>& ranges) : spec_(spec) {
  CAIRN_CHECK(ranges.size() == spec.groups.size());
  uint64_t bytes = 0;
  groups_.resize(ranges.size());
  for (size_t g = 0; g < ranges.size(); ++g) {
    groups_[g].range = ranges[g];
    groups_[g].offset = bytes;
    bytes += spec.groups[g].token_bytes() * ranges[g].count;
  }
  bytes_.resize(bytes, kUntouched);
  for (size_t g = 0; g < ranges.size(); ++g) {
    Group& group = groups_[g];
    if (group.range.count == 0) continue;
    const LayerGroup& shape = spec.groups[g];
    group.bases.resize(shape.planes.size());
    std::byte* at = bytes_.data() + group.offset;
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (size_t p = 0; p < shape.planes.size(); ++p) {
        group.bases[p].push_back(at);
        at += shape.planes[p].heads * shape.planes[p].row_bytes;
      }
    }
    for (size_t p = 0; p < shape.planes.size(); ++p) {
      PlaneView plane;
      plane.layer_bases = group.bases[p];
      plane.token_stride = static_cast<int64_t>(shape.token_bytes());
      plane.head_stride = shape.planes[p].row_bytes;
      group.planes.push_back(plane);
    }
    GroupView view;
    view.group = static_cast<uint32_t>(g);
    view.position = group.range.begin;
    view.count = group.range.count;
    view.planes = group.planes;
    views_.push_back(view);
  }
  view_.groups = views_;
}

void Rows::Write(size_t group, uint64_t position, uint64_t seed) {
  const Group& into = groups_[group];
  CAIRN_CHECK(position >= into.range.begin && position < into.range.end());
  const LayerGroup& shape = spec_.groups[group];
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (size_t p = 0; p < shape.planes.size(); ++p) {
      const Plane& plane = shape.planes[p];
      std::byte* row = into.bases[p][layer] + (position - into.range.begin) * shape.token_bytes();
      for (uint32_t head = 0; head < plane.heads; ++head, row += plane.row_bytes) {
        WriteRow(plane, Draw(seed, position, uint64_t{layer} << 32 | group, p << 32 | head),
                 {row, plane.row_bytes});
      }
    }
  }
}

}  // namespace cairn::golden
