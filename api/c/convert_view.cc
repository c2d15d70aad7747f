// SPDX-License-Identifier: Apache-2.0
#include "api/c/convert_view.h"

#include "api/c/convert.h"

namespace cairn::capi {

namespace {

// More groups than any view has: sinks and window of every group of the largest model.
constexpr size_t kMaxViewGroups = 4 * kMaxLayerGroups;

Status ToTableKind(cairn_table_kind given, TableKind* into) {
  return ToEnum(given, TableKind::kSlots, "cairn_group_view::table_kind", into);
}

}  // namespace

Status ToMemoryKind(cairn_memory_kind given, MemoryKind* into) {
  return ToEnum(given, MemoryKind::kCuda, "cairn_kv_view::memory", into);
}

Status ToKvUse(cairn_kv_use given, KvUse* into) {
  return ToEnum(given, KvUse::kRestore, "use", into);
}

Status KvArrays::Fill(const cairn_kv_view* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_kv_view read, Read(given));
  CAIRN_ASSIGN_OR_RETURN(
      const std::vector<cairn_group_view> groups,
      ReadAll(read.groups, read.group_count, kMaxViewGroups, "cairn_kv_view::groups"));
  CAIRN_RETURN_IF_ERROR(ToMemoryKind(read.memory, &view.memory));
  view.device = read.device;
  return Add(groups);
}

Status KvArrays::FillGroup(const cairn_group_view* given) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn_group_view> groups, ReadAll(given, 1, 1, "view"));
  return Add(groups);
}

Status KvArrays::Add(const std::vector<cairn_group_view>& groups) {
  std::vector<std::vector<cairn_plane_view>> planes;
  size_t plane_count = 0, base_count = 0;
  for (const cairn_group_view& group : groups) {
    CAIRN_ASSIGN_OR_RETURN(auto read, ReadAll(group.planes, group.plane_count, kMaxPlanes,
                                              "cairn_group_view::planes"));
    for (const cairn_plane_view& plane : read) {
      CAIRN_RETURN_IF_ERROR(CheckCount(plane.layer_bases, plane.layer_count, kMaxLayers,
                                       "cairn_plane_view::layer_bases"));
      base_count += plane.layer_count;
    }
    plane_count += read.size();
    planes.push_back(std::move(read));
  }
  // Later pointers point into these, so they get their final size first.
  groups_.reserve(groups.size());
  planes_.reserve(plane_count);
  bases_.reserve(base_count);
  for (size_t i = 0; i < groups.size(); ++i) {
    const cairn_group_view& from = groups[i];
    GroupView& to = groups_.emplace_back();
    to.group = from.group;
    to.layer_begin = from.layer_begin;
    to.position = from.position;
    to.count = from.count;
    to.tokens_per_block = from.tokens_per_block;
    to.blocks = from.blocks;
    CAIRN_RETURN_IF_ERROR(ToTableKind(from.table_kind, &to.table.kind));
    to.table.entries = from.table_entries;
    to.table.on_device = from.table_on_device;
    to.table.count = from.table_count;
    to.table.is_64_bit = from.table_is_64_bit;
    to.table.table_position = from.table_position;
    const size_t first_plane = planes_.size();
    for (const cairn_plane_view& plane : planes[i]) {
      const size_t first_base = bases_.size();
      for (size_t layer = 0; layer < plane.layer_count; ++layer) {
        bases_.push_back(static_cast<std::byte*>(plane.layer_bases[layer]));
      }
      planes_.push_back({.layer_bases = std::span(bases_).subspan(first_base),
                         .block_stride = plane.block_stride,
                         .token_stride = plane.token_stride,
                         .head_stride = plane.head_stride,
                         .element_stride = plane.element_stride});
    }
    to.planes = std::span(planes_).subspan(first_plane);
  }
  view.groups = groups_;
  return Status::Ok();
}

void KvAsC::Set(const KvView& from) {
  size_t plane_count = 0, base_count = 0;
  for (const GroupView& group : from.groups) {
    plane_count += group.planes.size();
    for (const PlaneView& plane : group.planes) base_count += plane.layer_bases.size();
  }
  groups_.reserve(from.groups.size());
  planes_.reserve(plane_count);
  bases_.reserve(base_count);
  for (const GroupView& group : from.groups) {
    auto& to = groups_.emplace_back(Sized<cairn_group_view>::Default());
    to.group = group.group;
    to.layer_begin = group.layer_begin;
    to.position = group.position;
    to.count = group.count;
    to.tokens_per_block = group.tokens_per_block;
    to.blocks = group.blocks;
    to.table_kind = static_cast<uint32_t>(group.table.kind);
    to.table_entries = group.table.entries;
    to.table_on_device = group.table.on_device;
    to.table_count = group.table.count;
    to.table_is_64_bit = group.table.is_64_bit;
    to.table_position = group.table.table_position;
    to.planes = planes_.data() + planes_.size();
    to.plane_count = group.planes.size();
    for (const PlaneView& plane : group.planes) {
      auto& as_c = planes_.emplace_back(Sized<cairn_plane_view>::Default());
      as_c.layer_bases = bases_.data() + bases_.size();
      as_c.layer_count = plane.layer_bases.size();
      as_c.block_stride = plane.block_stride;
      as_c.token_stride = plane.token_stride;
      as_c.head_stride = plane.head_stride;
      as_c.element_stride = plane.element_stride;
      bases_.insert(bases_.end(), plane.layer_bases.begin(), plane.layer_bases.end());
    }
  }
  view = Sized<cairn_kv_view>::Default();
  view.groups = groups_.data();
  view.group_count = groups_.size();
  view.memory = static_cast<uint32_t>(from.memory);
  view.device = from.device;
}

}  // namespace cairn::capi
