// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: shadows, by which sparse attention chooses what it reads. The C++ twins are
// cairn/shadow.h and cairn/shadow_session.h, where specs, views and the order of calls are
// explained. Counts are by kv head and layer; `chunks` are numbers of chunks of tokens.
//
// Handles may be freed in any order: a session keeps its arena, and the device; none keeps the
// store open. Freeing a session waits for what it has enqueued, and nothing of a view may be read
// any more by then.
#pragma once

#include "cairn/c_branch.h"
#include "cairn/c_sparse.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t cairn_shadow_keys;  // cairn::ShadowKeys
enum {
  CAIRN_SHADOW_KEYS_EXACT = 1,
  CAIRN_SHADOW_KEYS_INT8 = 2,
  CAIRN_SHADOW_KEYS_INT4 = 3,
  CAIRN_SHADOW_KEYS_LOW_RANK = 4
};
CAIRN_API const char* cairn_shadow_keys_name(cairn_shadow_keys keys);  // NULL: none that exists.

// cairn::ShadowSpec
typedef struct cairn_shadow_spec {
  size_t struct_size;
  uint32_t chunk_tokens;   // 4
  cairn_shadow_keys keys;  // CAIRN_SHADOW_KEYS_INT4
  uint32_t landmark_bits;  // 4
  uint32_t local_tokens;   // 32
  uint32_t sink_tokens;    // 8
  uint32_t outlier_chunks;
  uint32_t budget_tokens;
  uint32_t rank;
  double outlier_share;  // 0.003
  double rank_energy;
} cairn_shadow_spec;
CAIRN_API void cairn_shadow_spec_init(cairn_shadow_spec* spec, size_t struct_size);
// Writes the published setting, of keys with so many channels over all heads. Never blocks.
CAIRN_API cairn_code cairn_shadow_spec_published(uint32_t key_channels, cairn_shadow_spec* spec,
                                                 cairn_error** error);

// cairn::ShadowOf
typedef struct cairn_shadow_of {
  size_t struct_size;
  const cairn_shadow_spec* spec;  // NULL: all defaults.
  uint32_t group;
  uint64_t end;  // UINT64_MAX
} cairn_shadow_of;
CAIRN_API void cairn_shadow_of_init(cairn_shadow_of* of, size_t struct_size);

// cairn::ShadowInfo
typedef struct cairn_shadow_info {
  size_t struct_size;
  uint64_t tokens;
  uint64_t covered;
  uint32_t chunks;
  uint32_t always_chunks;
  uint32_t budget_chunks;
  uint64_t table_bytes;
  uint64_t tokens_read;
} cairn_shadow_info;
CAIRN_API void cairn_shadow_info_init(cairn_shadow_info* info, size_t struct_size);

// cairn::ShadowOptions
typedef struct cairn_shadow_options {
  size_t struct_size;
  const cairn_shadow_spec* spec;  // NULL: all defaults.
  uint32_t group;
  uint32_t query_heads;  // There is no default.
  uint32_t slots;
  uint32_t append_tokens;  // 256
  bool build;              // true
  uint64_t end;            // UINT64_MAX
  uint64_t tokens_max;     // For cairn_shadow_session_extend; 0: there is no more room.
} cairn_shadow_options;
CAIRN_API void cairn_shadow_options_init(cairn_shadow_options* options, size_t struct_size);

// cairn::ShadowQuery. Queries are memory of the device, borrowed until the stream has come so far.
typedef struct cairn_shadow_query {
  size_t struct_size;
  uint32_t layer;
  float scale;
  const void* queries;
  bool is_fp32;
  uint64_t head_stride;  // In elements.
  uintptr_t stream;      // 0: the default stream; here and below.
} cairn_shadow_query;
CAIRN_API void cairn_shadow_query_init(cairn_shadow_query* query, size_t struct_size);

// cairn::ShadowFetch
typedef struct cairn_shadow_fetch {
  size_t struct_size;
  uint32_t layer;
  cairn_sparse_mode mode;
  uintptr_t stream;
  uint64_t timeout_ns;  // UINT64_MAX
} cairn_shadow_fetch;
CAIRN_API void cairn_shadow_fetch_init(cairn_shadow_fetch* fetch, size_t struct_size);

// cairn::ShadowRows. Rows are memory of the device, borrowed until the stream has come so far.
typedef struct cairn_shadow_rows {
  size_t struct_size;
  uint32_t layer;
  const void* keys;
  const void* values;
  uint64_t key_stride;
  uint64_t value_stride;
  uintptr_t stream;
} cairn_shadow_rows;
CAIRN_API void cairn_shadow_rows_init(cairn_shadow_rows* rows, size_t struct_size);

// cairn::ShadowView. All of it is memory of the device and the session's, valid until the next call
// for the layer, or until the session is freed.
typedef struct cairn_shadow_view {
  size_t struct_size;
  const void* resident_keys;
  const void* resident_values;
  uint64_t resident_key_stride;
  uint64_t resident_value_stride;
  uint32_t resident_tokens;
  uint32_t count;
  uint32_t stride;
  const uint32_t* chunks;
  const int32_t* key_slot_of;
  const int32_t* value_slot_of;
  cairn_sparse_plane_slots keys;
  cairn_sparse_plane_slots values;
} cairn_shadow_view;
CAIRN_API void cairn_shadow_view_init(cairn_shadow_view* view, size_t struct_size);

// --- Shadows of a branch. `of`: NULL for all defaults. `info`, where there is one, may be NULL.
// Blocking: reads the keys.
CAIRN_API cairn_code cairn_build_shadow(const cairn_branch* branch, const cairn_shadow_of* of,
                                        cairn_shadow_info* info, cairn_error** error);
// Blocking: may read the table's head.
CAIRN_API cairn_code cairn_find_shadow(const cairn_branch* branch, const cairn_shadow_of* of,
                                       cairn_shadow_info* info, cairn_error** error);
CAIRN_API cairn_code cairn_drop_shadow(const cairn_branch* branch, const cairn_shadow_of* of,
                                       cairn_error** error);

// --- cairn::ShadowSession. Calls of one session wait for each other.
typedef struct cairn_shadow_session cairn_shadow_session;

// `arena`: of the branch's store. Blocking: finds or makes the shadow, and copies it to the device.
CAIRN_API cairn_code cairn_shadow_session_open(const cairn_sparse_arena* arena,
                                               const cairn_branch* branch,
                                               const cairn_shadow_options* options,
                                               cairn_shadow_session** session, cairn_error** error);
// Does not block.
CAIRN_API cairn_code cairn_shadow_session_select(cairn_shadow_session* session,
                                                 const cairn_shadow_query* query,
                                                 cairn_error** error);
// Blocking when strict. CAIRN_INVALID_STATE: nothing is selected for the layer.
CAIRN_API cairn_code cairn_shadow_session_fetch(cairn_shadow_session* session,
                                                const cairn_shadow_fetch* fetch,
                                                cairn_error** error);
// Does not block. CAIRN_INVALID_STATE, as of fetches.
CAIRN_API cairn_code cairn_shadow_session_rebuild(cairn_shadow_session* session, uint32_t layer,
                                                  uintptr_t stream, cairn_error** error);
// *view is written where the call returns CAIRN_OK alone. CAIRN_INVALID_STATE: nothing was fetched
// for the layer.
CAIRN_API cairn_code cairn_shadow_session_view(const cairn_shadow_session* session, uint32_t layer,
                                               cairn_shadow_view* view, cairn_error** error);
// Does not block. CAIRN_BUSY: append_tokens are there.
CAIRN_API cairn_code cairn_shadow_session_append(cairn_shadow_session* session,
                                                 const cairn_shadow_rows* rows,
                                                 cairn_error** error);
// The branch has grown: its tokens before `end` (UINT64_MAX: all) are the context from here on.
// Blocking: reads the new keys. After CAIRN_CONFLICT (it was rewound to before what the session
// has), and CAIRN_INVALID_ARGUMENT of tokens_max, the session is as it was.
CAIRN_API cairn_code cairn_shadow_session_extend(cairn_shadow_session* session, uint64_t end,
                                                 cairn_error** error);
// Of head h those at chunks[h * stride], in host memory. Never blocks.
CAIRN_API cairn_code cairn_shadow_session_prefetch(cairn_shadow_session* session, uint32_t layer,
                                                   const uint32_t* chunks, uint32_t count,
                                                   uint32_t stride, cairn_error** error);
// Blocking: waits for the device and the disk.
CAIRN_API cairn_code cairn_shadow_session_save(cairn_shadow_session* session, cairn_error** error);
// Of the session as it was opened, also when the store is closed.
CAIRN_API cairn_code cairn_shadow_session_info(const cairn_shadow_session* session,
                                               cairn_shadow_info* info, cairn_error** error);
CAIRN_API uint64_t cairn_shadow_session_device_bytes(const cairn_shadow_session* session);
// What was counted, also when the store is closed.
CAIRN_API cairn_code cairn_shadow_session_stats(const cairn_shadow_session* session,
                                                cairn_sparse_stats* stats, cairn_error** error);
CAIRN_API void cairn_shadow_session_free(cairn_shadow_session* session);

#ifdef __cplusplus
}  // extern "C"
#endif
