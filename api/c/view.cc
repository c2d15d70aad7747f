// SPDX-License-Identifier: Apache-2.0
//
// KV views and buffers in C.
#include "api/c/convert.h"
#include "api/c/handles.h"

using cairn::Result;
using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace cairn::capi {

namespace {

// The tensors of groups, with the arrays that they point to.
struct TensorArrays {
  Status Fill(const cairn_group_tensors* given, size_t count) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn_group_tensors> read,
                           ReadAll(given, count, kMaxLayerGroups, "groups"));
    for (const cairn_group_tensors& from : read) {
      GroupTensors& to = groups.emplace_back();
      to.group = from.group;
      CAIRN_RETURN_IF_ERROR(ToEnum(from.layout, TensorLayout::kFlashInferHnd,
                                   "cairn_group_tensors::layout", &to.layout));
      CAIRN_RETURN_IF_ERROR(CheckCount(from.tensors, from.tensor_count, kMaxLayers * kMaxPlanes,
                                       "cairn_group_tensors::tensors"));
      std::vector<std::byte*>& pointers = tensors.emplace_back();
      for (size_t i = 0; i < from.tensor_count; ++i) {
        pointers.push_back(static_cast<std::byte*>(from.tensors[i]));
      }
      to.tensors = pointers;
      to.layer_begin = from.layer_begin;
      to.blocks = from.blocks;
      to.tokens_per_block = from.tokens_per_block;
      to.tokens = from.tokens;
      to.position = from.position;
      to.count = from.count;
      to.first_token = from.first_token;
      CAIRN_RETURN_IF_ERROR(ToEnum(from.table_kind, TableKind::kSlots,
                                   "cairn_group_tensors::table_kind", &to.table.kind));
      to.table.entries = from.table_entries;
      to.table.on_device = from.table_on_device;
      to.table.count = from.table_count;
      to.table.is_64_bit = from.table_is_64_bit;
      to.table.table_position = from.table_position;
    }
    return Status::Ok();
  }
  std::vector<GroupTensors> groups;
  std::deque<std::vector<std::byte*>> tensors;
};

Status GiveView(OwnedKvView made, cairn_owned_kv_view** out) {
  auto handle = std::make_unique<cairn_owned_kv_view>();
  handle->value = std::move(made);
  handle->view.Set(*handle->value.view());
  *out = handle.release();
  return Status::Ok();
}

}  // namespace

}  // namespace cairn::capi

extern "C" {

const char* cairn_memory_kind_name(cairn_memory_kind kind) {
  if (kind > CAIRN_MEMORY_CUDA) return nullptr;
  return cairn::MemoryKindName(static_cast<cairn::MemoryKind>(kind));
}
const char* cairn_tensor_layout_name(cairn_tensor_layout layout) {
  if (layout > CAIRN_TENSOR_FLASHINFER_HND) return nullptr;
  return cairn::TensorLayoutName(static_cast<cairn::TensorLayout>(layout));
}

cairn_code cairn_kv_view_validate(const cairn_model_spec* spec, const cairn_kv_view* view,
                                  cairn_kv_use use, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(spec);
    CAIRN_C_NEED(view);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelSpec model, ToModel(spec));
    CAIRN_RETURN_IF_ERROR(model.Validate());
    KvArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.Fill(view));
    cairn::KvUse for_use{};
    CAIRN_RETURN_IF_ERROR(ToKvUse(use, &for_use));
    return cairn::ValidateKvView(model, arrays.view, for_use);
  });
}

cairn_code cairn_owned_kv_view_make(const cairn_model_spec* spec, const cairn_group_tensors* groups,
                                    size_t group_count, cairn_kv_use use, cairn_memory_kind memory,
                                    uint32_t device, cairn_owned_kv_view** view,
                                    cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(view);
    CAIRN_C_NEED(spec);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelSpec model, ToModel(spec));
    CAIRN_RETURN_IF_ERROR(model.Validate());
    TensorArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.Fill(groups, group_count));
    cairn::KvUse for_use{};
    CAIRN_RETURN_IF_ERROR(ToKvUse(use, &for_use));
    cairn::MemoryKind kind{};
    CAIRN_RETURN_IF_ERROR(ToMemoryKind(memory, &kind));
    CAIRN_ASSIGN_OR_RETURN(cairn::OwnedKvView made,
                           cairn::OwnedKvView::Make(model, arrays.groups, for_use, kind, device));
    return GiveView(std::move(made), view);
  });
}

const cairn_kv_view* cairn_owned_kv_view_view(const cairn_owned_kv_view* owned) {
  return owned == nullptr ? nullptr : &owned->view.view;
}
void cairn_owned_kv_view_free(cairn_owned_kv_view* owned) { delete owned; }

cairn_code cairn_kv_buffer_new(const cairn_model_spec* spec, uint64_t tokens,
                               cairn_kv_buffer** buffer, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(buffer);
    CAIRN_C_NEED(spec);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelSpec model, ToModel(spec));
    CAIRN_RETURN_IF_ERROR(model.Validate());
    if (tokens > cairn::kMaxAppendTokens) {
      return Invalid("tokens is " + std::to_string(tokens) + ", at most " +
                     std::to_string(cairn::kMaxAppendTokens));
    }
    *buffer = std::make_unique<cairn_kv_buffer>(model, tokens).release();
    return Status::Ok();
  });
}

const cairn_kv_view* cairn_kv_buffer_view(const cairn_kv_buffer* buffer) {
  return buffer == nullptr ? nullptr : &buffer->view.view;
}

cairn_code cairn_kv_buffer_view_of(const cairn_kv_buffer* buffer, uint64_t begin, uint64_t end,
                                   cairn_owned_kv_view** view, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(view);
    CAIRN_C_NEED(buffer);
    if (begin > end || end > buffer->value.tokens()) {
      return Invalid('[' + std::to_string(begin) + ", " + std::to_string(end) + ") of " +
                     std::to_string(buffer->value.tokens()) + " tokens");
    }
    return GiveView(buffer->value.View(begin, end), view);
  });
}

uint64_t cairn_kv_buffer_tokens(const cairn_kv_buffer* buffer) {
  return buffer == nullptr ? 0 : buffer->value.tokens();
}
void* cairn_kv_buffer_data(cairn_kv_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->value.bytes().data();
}
size_t cairn_kv_buffer_size(const cairn_kv_buffer* buffer) {
  return buffer == nullptr ? 0 : buffer->value.bytes().size();
}
void* cairn_kv_buffer_row(cairn_kv_buffer* buffer, uint32_t group, uint32_t layer, uint32_t plane,
                          uint32_t head, uint64_t position) {
  if (buffer == nullptr) return nullptr;
  return buffer->value.Row(group, layer, plane, head, position).data();
}
bool cairn_kv_buffer_equal(const cairn_kv_buffer* a, const cairn_kv_buffer* b) {
  return a != nullptr && b != nullptr && a->value == b->value;
}
void cairn_kv_buffer_free(cairn_kv_buffer* buffer) { delete buffer; }

}  // extern "C"
