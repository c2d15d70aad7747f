// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: KV memory where it lies. The C++ twins are cairn/kv_view.h and cairn/kv_buffer.h,
// where the formula of the strides and the layouts stand.
#pragma once

#include "cairn/c_model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t cairn_table_kind;  // cairn::TableKind
enum { CAIRN_TABLE_NONE = 0, CAIRN_TABLE_BLOCKS = 1, CAIRN_TABLE_SLOTS = 2 };

typedef uint32_t cairn_memory_kind;  // cairn::MemoryKind
enum { CAIRN_MEMORY_HOST = 0, CAIRN_MEMORY_CUDA = 1 };
CAIRN_API const char* cairn_memory_kind_name(cairn_memory_kind kind);  // NULL: no such kind.

// cairn::PlaneView. Strides in bytes, of any sign.
typedef struct cairn_plane_view {
  size_t struct_size;
  void* const* layer_bases;  // One a layer; appends only read from them.
  size_t layer_count;
  int64_t block_stride, token_stride, head_stride;
  int64_t element_stride;  // 0: elements are adjacent.
} cairn_plane_view;
CAIRN_API void cairn_plane_view_init(cairn_plane_view* view, size_t struct_size);

// cairn::GroupView, with the fields of BlockTable.
typedef struct cairn_group_view {
  size_t struct_size;
  uint32_t group;        // Index in cairn_model_spec::groups.
  uint32_t layer_begin;
  uint64_t position, count;
  uint64_t blocks;
  uint32_t tokens_per_block;
  cairn_table_kind table_kind;
  const void* table_entries;  // int32, or int64.
  uint64_t table_count;
  uint64_t table_position;
  bool table_on_device;
  bool table_is_64_bit;
  const cairn_plane_view* planes;
  size_t plane_count;
} cairn_group_view;
CAIRN_API void cairn_group_view_init(cairn_group_view* view, size_t struct_size);

// cairn::KvView
typedef struct cairn_kv_view {
  size_t struct_size;
  const cairn_group_view* groups;
  size_t group_count;
  cairn_memory_kind memory;
  uint32_t device;  // Its ordinal; of host memory 0.
} cairn_kv_view;
CAIRN_API void cairn_kv_view_init(cairn_kv_view* view, size_t struct_size);

typedef uint32_t cairn_kv_use;  // cairn::KvUse
enum { CAIRN_KV_USE_APPEND = 0, CAIRN_KV_USE_RESTORE = 1 };

// cairn::ValidateKvView: CAIRN_INVALID_ARGUMENT naming group, plane and field.
CAIRN_API cairn_code cairn_kv_view_validate(const cairn_model_spec* spec, const cairn_kv_view* view,
                                            cairn_kv_use use, cairn_error** error);

// --- Views of an engine's tensors, made by the name of their layout
typedef uint32_t cairn_tensor_layout;  // cairn::TensorLayout
enum {
  CAIRN_TENSOR_TOKEN_MAJOR = 0,
  CAIRN_TENSOR_HEAD_MAJOR = 1,
  CAIRN_TENSOR_LLAMA_CPP = 2,
  CAIRN_TENSOR_VLLM_NHD = 3,
  CAIRN_TENSOR_VLLM_HND = 4,
  CAIRN_TENSOR_FLASHINFER_NHD = 5,
  CAIRN_TENSOR_FLASHINFER_HND = 6
};
CAIRN_API const char* cairn_tensor_layout_name(cairn_tensor_layout layout);  // NULL: none such.

// cairn::GroupTensors, with the fields of BlockTable.
typedef struct cairn_group_tensors {
  size_t struct_size;
  uint32_t group;
  cairn_tensor_layout layout;
  void* const* tensors;
  size_t tensor_count;
  uint64_t blocks;
  uint64_t tokens;
  uint64_t position, count;
  uint64_t first_token;
  uint32_t layer_begin;
  uint32_t tokens_per_block;
  cairn_table_kind table_kind;
  bool table_on_device;
  bool table_is_64_bit;
  const void* table_entries;
  uint64_t table_count;
  uint64_t table_position;
} cairn_group_tensors;
CAIRN_API void cairn_group_tensors_init(cairn_group_tensors* tensors, size_t struct_size);

// A view that owns its arrays: cairn::OwnedKvView. The tensors stay the caller's.
typedef struct cairn_owned_kv_view cairn_owned_kv_view;
CAIRN_API cairn_code cairn_owned_kv_view_make(const cairn_model_spec* spec,
                                              const cairn_group_tensors* groups, size_t group_count,
                                              cairn_kv_use use, cairn_memory_kind memory,
                                              uint32_t device, cairn_owned_kv_view** view,
                                              cairn_error** error);
// What calls take; lives as long as `owned`. Of NULL: NULL.
CAIRN_API const cairn_kv_view* cairn_owned_kv_view_view(const cairn_owned_kv_view* owned);
CAIRN_API void cairn_owned_kv_view_free(cairn_owned_kv_view* owned);

// Memory and views of it: cairn::KvBuffer. All zeros at first. Not thread-safe.
typedef struct cairn_kv_buffer cairn_kv_buffer;
// CAIRN_INVALID_ARGUMENT: the spec is no valid one, or more tokens than one append may have.
CAIRN_API cairn_code cairn_kv_buffer_new(const cairn_model_spec* spec, uint64_t tokens,
                                         cairn_kv_buffer** buffer, cairn_error** error);
CAIRN_API const cairn_kv_view* cairn_kv_buffer_view(const cairn_kv_buffer* buffer);  // All of it.
// Positions [begin, end) alone; the memory stays the buffer's.
CAIRN_API cairn_code cairn_kv_buffer_view_of(const cairn_kv_buffer* buffer, uint64_t begin,
                                             uint64_t end, cairn_owned_kv_view** view,
                                             cairn_error** error);
CAIRN_API uint64_t cairn_kv_buffer_tokens(const cairn_kv_buffer* buffer);
// All of its bytes, in the canonical order of cairn/model.h.
CAIRN_API void* cairn_kv_buffer_data(cairn_kv_buffer* buffer);
CAIRN_API size_t cairn_kv_buffer_size(const cairn_kv_buffer* buffer);
// One head's row of one position, row_bytes long. REQUIRES: there is one; else the process ends.
CAIRN_API void* cairn_kv_buffer_row(cairn_kv_buffer* buffer, uint32_t group, uint32_t layer,
                                    uint32_t plane, uint32_t head, uint64_t position);
CAIRN_API bool cairn_kv_buffer_equal(const cairn_kv_buffer* a, const cairn_kv_buffer* b);
CAIRN_API void cairn_kv_buffer_free(cairn_kv_buffer* buffer);

#ifdef __cplusplus
}  // extern "C"
#endif
