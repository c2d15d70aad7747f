// SPDX-License-Identifier: Apache-2.0
//
// C API: KV memory where it lies. The C++ twins are cairn/kv_view.h and cairn/kv_buffer.h.
//
// A view is a description. The bytes of element e of head h of position p, in layer l of a plane,
// are at
//
//   layer_bases[l] + block(p) * block_stride + slot(p) * token_stride + h * head_stride
//                  + e * element_stride
//
// where block(p) and slot(p) come from the table:
//
//   CAIRN_TABLE_NONE:    i = p - position; block = i / tokens_per_block,
//                        slot = i % tokens_per_block (tokens_per_block 0: one endless block)
//   CAIRN_TABLE_BLOCKS:  i = p - table_position; block = table[i / tokens_per_block],
//                        slot = i % tokens_per_block
//   CAIRN_TABLE_SLOTS:   s = table[p - table_position]; block = s / tokens_per_block,
//                        slot = s % tokens_per_block
//
// An example: 48 positions from 32 on, in blocks 7, 3 and 12 of vLLM's cache of bf16, one tensor a
// layer, [2][4096 blocks][16 tokens][8 heads][128]. `tensors` has the first byte of each; the
// library finds the strides:
//
//   const int32_t table[] = {7, 3, 12};
//   cairn_group_tensors group;
//   cairn_group_tensors_init(&group, sizeof group);
//   group.layout = CAIRN_TENSOR_VLLM_NHD;
//   group.tensors = tensors;
//   group.tensor_count = 32;
//   group.blocks = 4096;
//   group.tokens_per_block = 16;
//   group.position = 32;
//   group.count = 48;
//   group.table_kind = CAIRN_TABLE_BLOCKS;
//   group.table_entries = table;
//   group.table_count = 3;
//   group.table_position = 32;
//   code = cairn_owned_kv_view_make(&spec, &group, 1, CAIRN_KV_USE_APPEND, CAIRN_MEMORY_HOST, 0,
//                                   &owned, &error);
//   delta.kv = cairn_owned_kv_view_view(owned);
//
// Nothing here blocks, takes a lock, does I/O or needs a store. The structs are borrowed as the
// call that takes them says. The library writes to the memory of a view in restores alone.
#pragma once

#include "cairn/c/model.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::TableKind: what the entries of a table name.
typedef uint32_t cairn_table_kind;
enum { CAIRN_TABLE_NONE = 0, CAIRN_TABLE_BLOCKS = 1, CAIRN_TABLE_SLOTS = 2 };

// cairn::MemoryKind: where the layer bases of a view lie. CUDA is memory of a GPU that the store
// was given (cairn_options::gpus).
typedef uint32_t cairn_memory_kind;
enum { CAIRN_MEMORY_HOST = 0, CAIRN_MEMORY_CUDA = 1 };
// "host", "cuda"; a static text. NULL of a number that is no kind.
CAIRN_API const char* cairn_memory_kind_name(cairn_memory_kind kind);

// cairn::PlaneView: one plane of a group. Strides in bytes, of any sign.
typedef struct cairn_plane_view {
  size_t struct_size;
  void* const* layer_bases;  // One for each layer; appends only read from them.
  size_t layer_count;        // At most 65,536.
  int64_t block_stride, token_stride, head_stride;  // As in the formula above.
  int64_t element_stride;                           // 0: elements are adjacent.
} cairn_plane_view;
CAIRN_API void cairn_plane_view_init(cairn_plane_view* view, size_t struct_size);

// cairn::GroupView, with the fields of BlockTable: positions [position, position + count) of one
// layer group. Entries of a table are not negative; those of a restore name no place twice.
typedef struct cairn_group_view {
  size_t struct_size;
  uint32_t group;             // Index in cairn_model_spec::groups.
  uint32_t layer_begin;       // First layer described; appends describe all.
  uint64_t position, count;   // A count of 0 describes nothing.
  uint64_t blocks;            // That there are behind each base; 0: not said.
  uint32_t tokens_per_block;  // 0: there are no blocks.
  cairn_table_kind table_kind;
  const void* table_entries;       // int32, or int64, in the order of positions.
  uint64_t table_count;            // Entries.
  uint64_t table_position;         // Position of the first entry's first token.
  bool table_on_device;            // In the view's device memory; then `blocks` is needed.
  bool table_is_64_bit;            // int64 entries.
  const cairn_plane_view* planes;  // In the order of cairn_layer_group::planes.
  size_t plane_count;              // All of the group.
} cairn_group_view;
CAIRN_API void cairn_group_view_init(cairn_group_view* view, size_t struct_size);

// cairn::KvView: KV of some or all groups of a model. A group stands in it once, or twice with the
// lower positions first (sinks, and the window behind them).
typedef struct cairn_kv_view {
  size_t struct_size;
  const cairn_group_view* groups;  // Those that are present.
  size_t group_count;              // At most 60.
  cairn_memory_kind memory;        // Where all layer bases point.
  uint32_t device;                 // Its ordinal; of host memory 0.
} cairn_kv_view;
CAIRN_API void cairn_kv_view_init(cairn_kv_view* view, size_t struct_size);

// cairn::KvUse. APPEND: the memory is read, and all layers are described. RESTORE: it is written.
typedef uint32_t cairn_kv_use;
enum { CAIRN_KV_USE_APPEND = 0, CAIRN_KV_USE_RESTORE = 1 };

// Checks the description against the model, as every call does that takes a view
// (cairn::ValidateKvView lists the checks). Reads the arrays and the tables in host memory, but no
// KV and no table on a device. CAIRN_INVALID_ARGUMENT names group, plane and field, or the field of
// the spec.
CAIRN_API cairn_code cairn_kv_view_validate(const cairn_model_spec* spec, const cairn_kv_view* view,
                                            cairn_kv_use use, cairn_error** error);

// --- Views of an engine's tensors, made by the name of their layout
// cairn::TensorLayout: the order of the indices, dense, the last one fastest. The first three have
// one tensor for each layer and plane (K0, V0, K1, V1, ...), the others one for each layer.
typedef uint32_t cairn_tensor_layout;
enum {
  CAIRN_TENSOR_TOKEN_MAJOR = 0,     // [block][token][head][row]
  CAIRN_TENSOR_HEAD_MAJOR = 1,      // [block][head][token][row]
  CAIRN_TENSOR_LLAMA_CPP = 2,       // [token][head][row], values [head][element][token]
  CAIRN_TENSOR_VLLM_NHD = 3,        // [plane][block][token][head][row]
  CAIRN_TENSOR_VLLM_HND = 4,        // [plane][block][head][token][row]
  CAIRN_TENSOR_FLASHINFER_NHD = 5,  // [block][plane][token][head][row]
  CAIRN_TENSOR_FLASHINFER_HND = 6   // [block][plane][head][token][row]
};
// "token_major", "vllm_nhd", ...; a static text. NULL of a number that is no layout.
CAIRN_API const char* cairn_tensor_layout_name(cairn_tensor_layout layout);

// cairn::GroupTensors, with the fields of BlockTable: the tensors of one layer group, and the
// positions that are described. Copied by the call.
typedef struct cairn_group_tensors {
  size_t struct_size;
  uint32_t group;  // Index in cairn_model_spec::groups.
  cairn_tensor_layout layout;
  void* const* tensors;       // First bytes, none NULL, in the order of the layout.
  size_t tensor_count;        // As many as the layout says.
  uint64_t blocks;            // Per tensor, tokens_per_block tokens each; or...
  uint64_t tokens;            // ...tokens of each tensor. Just one of the two is given.
  uint64_t position, count;   // Positions [position, position + count).
  uint64_t first_token;       // Where they begin in the tensors; 0 with a table.
  uint32_t layer_begin;       // The first layer with tensors; appends need all.
  uint32_t tokens_per_block;  // 0 with `tokens`.
  cairn_table_kind table_kind;
  bool table_on_device;  // As in cairn_group_view, and the fields below.
  bool table_is_64_bit;
  const void* table_entries;
  uint64_t table_count;
  uint64_t table_position;
} cairn_group_tensors;
CAIRN_API void cairn_group_tensors_init(cairn_group_tensors* tensors, size_t struct_size);

// A view that owns its arrays: cairn::OwnedKvView. The tensors stay the caller's. A table in host
// memory is one of its arrays, and calls borrow it as they borrow any table: so with one, free the
// view only when an asynchronous call that was given it has released its ticket.
typedef struct cairn_owned_kv_view cairn_owned_kv_view;
// Copies every array, and tables in host memory. `memory` and `device` as in cairn_kv_view. *view
// is freed with cairn_owned_kv_view_free. CAIRN_INVALID_ARGUMENT names group and field: the spec,
// what cairn_kv_view_validate refuses, the wrong number of tensors, positions beyond their end, or
// planes that cannot share one.
CAIRN_API cairn_code cairn_owned_kv_view_make(const cairn_model_spec* spec,
                                              const cairn_group_tensors* groups, size_t group_count,
                                              cairn_kv_use use, cairn_memory_kind memory,
                                              uint32_t device, cairn_owned_kv_view** view,
                                              cairn_error** error);
// The view for calls that take one; it lives as long as `owned`. Of NULL: NULL.
CAIRN_API const cairn_kv_view* cairn_owned_kv_view_view(const cairn_owned_kv_view* owned);
// Frees the arrays, not the tensors.
CAIRN_API void cairn_owned_kv_view_free(cairn_owned_kv_view* owned);

// Host memory for the KV of `tokens` tokens, and views of it: cairn::KvBuffer. It has of every
// group the rows of positions [0, tokens), of a recurrent state its row after all of them. All
// zeros at first. Calls of one buffer that write, or free it, are not made beside others.
typedef struct cairn_kv_buffer cairn_kv_buffer;
// *buffer is freed with cairn_kv_buffer_free. CAIRN_INVALID_ARGUMENT: the spec is not valid, or
// `tokens` is more than one append may have (16 Mi).
CAIRN_API cairn_code cairn_kv_buffer_new(const cairn_model_spec* spec, uint64_t tokens,
                                         cairn_kv_buffer** buffer, cairn_error** error);
// All of it: for an append to an empty branch, or a restore of all its tokens. Lives as long as the
// buffer. Of NULL: NULL.
CAIRN_API const cairn_kv_view* cairn_kv_buffer_view(const cairn_kv_buffer* buffer);
// Positions [begin, end) alone. *view is freed with cairn_owned_kv_view_free; the memory stays the
// buffer's, so it is of use only while the buffer lives. CAIRN_INVALID_ARGUMENT: no such range.
CAIRN_API cairn_code cairn_kv_buffer_view_of(const cairn_kv_buffer* buffer, uint64_t begin,
                                             uint64_t end, cairn_owned_kv_view** view,
                                             cairn_error** error);
// As given to cairn_kv_buffer_new. Of NULL: 0.
CAIRN_API uint64_t cairn_kv_buffer_tokens(const cairn_kv_buffer* buffer);
// All of its bytes, in the canonical order of cairn/c/model.h, group after group. Lives as long as
// the buffer. Of NULL: NULL.
CAIRN_API void* cairn_kv_buffer_data(cairn_kv_buffer* buffer);
// Bytes of all of it. Of NULL: 0.
CAIRN_API size_t cairn_kv_buffer_size(const cairn_kv_buffer* buffer);
// One head's row of one position, row_bytes long, to read or write. REQUIRES: the row exists; else
// the process ends.
CAIRN_API void* cairn_kv_buffer_row(cairn_kv_buffer* buffer, uint32_t group, uint32_t layer,
                                    uint32_t plane, uint32_t head, uint64_t position);
// Whether both hold the same bytes of the same model. False if one is NULL.
CAIRN_API bool cairn_kv_buffer_equal(const cairn_kv_buffer* a, const cairn_kv_buffer* b);
// Its memory is gone with it: views of it, and appends that borrow it, must have ended.
CAIRN_API void cairn_kv_buffer_free(cairn_kv_buffer* buffer);

#ifdef __cplusplus
}  // extern "C"
#endif
