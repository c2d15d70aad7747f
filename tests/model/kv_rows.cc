// SPDX-License-Identifier: Apache-2.0
#include "tests/model/kv_rows.h"

#include <algorithm>
#include <cstring>

#include "base/core/check.h"

namespace cairn::testing {
namespace {

uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

}  // namespace

KvRows::KvRows(const ModelSpec& spec, const std::vector<RowRange>& ranges) {
  CAIRN_CHECK(ranges.size() == spec.groups.size());
  uint64_t bytes = 0;
  groups_.resize(ranges.size());
  for (size_t g = 0; g < ranges.size(); ++g) {
    groups_[g].range = ranges[g];
    groups_[g].position_bytes = spec.groups[g].token_bytes();
    groups_[g].offset = bytes;
    bytes += groups_[g].position_bytes * ranges[g].count;
  }
  bytes_.resize(bytes, std::byte{0xEE});
  for (size_t g = 0; g < ranges.size(); ++g) {
    Group& group = groups_[g];
    if (group.range.count == 0) continue;
    const std::vector<Plane>& planes = spec.groups[g].planes;
    group.bases.resize(planes.size());
    std::byte* at = bytes_.data() + group.offset;
    for (uint32_t layer = 0; layer < spec.groups[g].layers; ++layer) {
      for (size_t p = 0; p < planes.size(); ++p) {
        group.bases[p].push_back(at);
        at += planes[p].heads * planes[p].row_bytes;
      }
    }
    for (size_t p = 0; p < planes.size(); ++p) {
      group.planes.push_back({.layer_bases = group.bases[p],
                              .block_stride = 0,
                              .token_stride = static_cast<int64_t>(group.position_bytes),
                              .head_stride = planes[p].row_bytes,
                              .element_stride = 0});
    }
    GroupView view;
    view.group = static_cast<uint32_t>(g);
    view.position = group.range.begin;
    view.count = group.range.count;
    view.planes = group.planes;
    views_.push_back(view);
    if (const Retention kind = spec.groups[g].retention.kind;
        view.count % 3 == 2 && kind != Retention::kCheckpoint && kind != Retention::kPerRequest) {
      const uint64_t first = views_.back().count = 1 + view.count / 3;
      group.second_bases = group.bases;
      group.second_planes = group.planes;
      for (size_t p = 0; p < planes.size(); ++p) {
        for (std::byte*& base : group.second_bases[p]) base += first * group.position_bytes;
        group.second_planes[p].layer_bases = group.second_bases[p];
      }
      view.position += first;
      view.count -= first;
      view.planes = group.second_planes;
      views_.push_back(view);
    }
  }
  view_.groups = views_;
}

// Exponents of 16-bit floats lie close to each other, so that what is packed becomes smaller.
void KvRows::Write(size_t group, uint64_t position, uint64_t seed) {
  Group& into = groups_[group];
  const uint64_t first = Mix(seed + position * 0x9E3779B97F4A7C15 + group);
  std::byte* const at =
      bytes_.data() + into.offset + (position - into.range.begin) * into.position_bytes;
  for (uint64_t done = 0; done < into.position_bytes; done += sizeof(uint64_t)) {
    const uint64_t some = (Mix(first + done) & 0x83FF83FF83FF83FF) | 0x3C003C003C003C00;
    std::memcpy(at + done, &some, std::min<uint64_t>(sizeof(some), into.position_bytes - done));
  }
}

GroupView KvRows::LayerView(size_t group, uint32_t layer) {
  const Group& of = groups_[group];
  layer_planes_ = of.planes;
  for (PlaneView& plane : layer_planes_) plane.layer_bases = plane.layer_bases.subspan(layer, 1);
  GroupView view;
  view.group = static_cast<uint32_t>(group);
  view.position = of.range.begin;
  view.count = of.range.count;
  view.planes = layer_planes_;
  return view;
}

uint64_t KvRows::Hash() const {
  uint64_t hash = bytes_.size();
  for (size_t at = 0; at < bytes_.size(); at += sizeof(uint64_t)) {
    uint64_t some = 0;
    std::memcpy(&some, bytes_.data() + at, std::min(sizeof(some), bytes_.size() - at));
    hash = Mix(hash ^ some);
  }
  return hash;
}

}  // namespace cairn::testing
