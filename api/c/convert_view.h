// SPDX-License-Identifier: Apache-2.0
//
// Models and KV views, from C and back.
#pragma once

#include <deque>
#include <vector>

#include "api/c/sized.h"
#include "cairn/kv_buffer.h"
#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace cairn::capi {

Result<ModelSpec> ToModel(const cairn_model_spec* given);
Result<LayerGroup> ToLayerGroup(const cairn_layer_group& given);
// Borrows positions and rows.
Result<KeyRotation> ToKeyRotation(const cairn_key_rotation* given);
Status ToDtype(cairn_dtype given, const char* field, Dtype* into);
Status ToMemoryKind(cairn_memory_kind given, MemoryKind* into);
Status ToKvUse(cairn_kv_use given, KvUse* into);

// A view with the arrays that it consists of; `view` stays valid when it is moved.
struct KvArrays {
  KvArrays() = default;
  KvArrays(KvArrays&&) = default;
  KvArrays& operator=(KvArrays&&) = default;
  Status Fill(const cairn_kv_view* given);
  Status FillGroup(const cairn_group_view* given);  // `view` gets this group only.
  KvView view;

 private:
  Status Add(const std::vector<cairn_group_view>& groups);
  std::vector<GroupView> groups_;
  std::vector<PlaneView> planes_;
  std::vector<std::byte*> bases_;
};

// The same back. Must not move.
struct KvAsC {
  KvAsC() = default;
  explicit KvAsC(const KvView& from) { Set(from); }
  KvAsC(const KvAsC&) = delete;
  KvAsC& operator=(const KvAsC&) = delete;
  void Set(const KvView& from);
  cairn_kv_view view{};

 private:
  std::vector<cairn_group_view> groups_;
  std::vector<cairn_plane_view> planes_;
  std::vector<void*> bases_;
};

// A model as C sees it. Points into the spec, which outlives it; must not move.
struct ModelAsC {
  explicit ModelAsC(const ModelSpec& from);
  ModelAsC(const ModelAsC&) = delete;
  ModelAsC& operator=(const ModelAsC&) = delete;
  cairn_model_spec spec;

 private:
  std::vector<cairn_layer_group> groups_;
  std::deque<std::vector<cairn_plane>> planes_;
  std::vector<cairn_logical_group> logical_;
};
cairn_plane ToC(const Plane& plane);
cairn_layer_group ToC(const LayerGroup& group);  // Without its planes.

}  // namespace cairn::capi
