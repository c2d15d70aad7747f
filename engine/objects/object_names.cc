// SPDX-License-Identifier: Apache-2.0
#include "engine/objects/object_names.h"

#include <algorithm>

#include "base/core/check.h"
#include "engine/tree/memory/reserved_names.h"

namespace cairn::engine {

namespace {

constexpr char kModelName[] = "cairn.object";
constexpr char kEscape = '\x01';
constexpr uint8_t kPriorityMax = UINT8_MAX;

Status Bad(std::string what) { return Status(StatusCode::kInvalidArgument, std::move(what)); }

bool IsPacked(Dtype dtype) { return dtype == Dtype::kBf16 || dtype == Dtype::kF16; }

}  // namespace

Status CheckKey(std::string_view key) {
  if (!key.empty() && key.size() <= kMaxObjectKeyBytes) return Status::Ok();
  return Bad("the key has " + std::to_string(key.size()) + " bytes; it must have 1 to " +
             std::to_string(kMaxObjectKeyBytes));
}

std::string NameOfKey(std::string_view key) {
  std::string name;
  name.reserve(key.size());
  for (const char c : key) {
    if (c == '\0' || c == kEscape) name.push_back(kEscape);
    name.push_back(c == '\0' || c == kEscape ? static_cast<char>(c + 1) : c);
  }
  return name;
}

std::optional<std::string_view> KeyOfName(std::string_view name, KeyCapacity* room) {
  size_t size = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (size == room->size()) return std::nullopt;
    char c = name[i];
    if (c == kEscape) {
      if (++i == name.size() || (name[i] != 1 && name[i] != 2)) return std::nullopt;
      c = static_cast<char>(name[i] - 1);
    }
    (*room)[size++] = c;
  }
  if (size == 0) return std::nullopt;
  return std::string_view(room->data(), size);
}

std::string SpaceOf(std::string_view ns) { return std::string(kObjectSpace) + std::string(ns); }

std::string_view CallersName(std::string_view space) { return space.substr(kObjectSpace.size()); }

Result<ModelSpec> ModelOf(const ObjectClass& object_class) {
  if (object_class.name.empty()) return Bad("object class: name is empty");
  if (object_class.page_bytes < kMinObjectPageBytes ||
      object_class.page_bytes > kMaxObjectPageBytes) {
    return Bad("object class: page_bytes is " + std::to_string(object_class.page_bytes) +
               "; it must be in [" + std::to_string(kMinObjectPageBytes) + ", " +
               std::to_string(kMaxObjectPageBytes) + "]");
  }
  ModelSpec model;
  model.identity.name = kModelName;
  model.identity.revision = object_class.name;
  LayerGroup& group = model.groups.emplace_back();
  group.name = "bytes";
  group.layers = 1;
  Plane& plane = group.planes.emplace_back();
  plane.name = "bytes";
  plane.role = IsPacked(object_class.dtype) ? PlaneRole::kValue : PlaneRole::kOpaque;
  plane.row_bytes = object_class.page_bytes;
  plane.dtype = object_class.dtype;
  CAIRN_RETURN_IF_ERROR(model.Validate().WithContext("object class"));
  return model;
}

std::optional<ObjectClass> ClassOf(const ModelSpec& model) {
  if (model.identity.name != kModelName || model.groups.size() != 1 ||
      model.groups[0].planes.size() != 1) {
    return std::nullopt;
  }
  const Plane& plane = model.groups[0].planes[0];
  const ObjectClass made{
      .name = model.identity.revision, .page_bytes = plane.row_bytes, .dtype = plane.dtype};
  const Result<ModelSpec> again = ModelOf(made);
  if (!again.ok() || !model.FirstDifference(*again).empty()) return std::nullopt;
  return made;
}

Result<ObjectClass> ClassIn(const Tree& tree, const Head& head) {
  const auto model = tree.FindModel(head.model);
  std::optional<ObjectClass> found;
  if (model != nullptr) found = ClassOf(*model);
  if (found.has_value()) return std::move(*found);
  return Status(StatusCode::kCorruption,
                "branch #" + std::to_string(head.id) + " is among objects and of no class of them");
}

uint8_t PriorityOf(uint32_t depth) {
  return static_cast<uint8_t>(kPriorityMax - std::min<uint32_t>(depth, kPriorityMax));
}

uint32_t DepthOf(uint8_t priority) { return uint32_t{kPriorityMax} - priority; }

bool IsWhole(const Head& head) { return head.lengths[kTokenLane] != 0 && !head.kv_evicted; }

}  // namespace cairn::engine
