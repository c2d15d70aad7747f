// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: what a model's state looks like. The C++ twin is cairn/model.h, where each field is
// explained; cairn/rotary.h for what begins with rotary_.
#pragma once

#include "cairn/c_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t cairn_dtype;  // cairn::Dtype
enum {
  CAIRN_DTYPE_OPAQUE = 0,
  CAIRN_DTYPE_F32 = 1,
  CAIRN_DTYPE_F16 = 2,
  CAIRN_DTYPE_BF16 = 3,
  CAIRN_DTYPE_F8_E4M3 = 4,
  CAIRN_DTYPE_F8_E5M2 = 5,
  CAIRN_DTYPE_I8 = 6,
  CAIRN_DTYPE_U8 = 7
};
CAIRN_API uint32_t cairn_dtype_bytes(cairn_dtype dtype);      // 0: there is no such dtype.
CAIRN_API const char* cairn_dtype_name(cairn_dtype dtype);    // NULL likewise, here and below.

typedef uint32_t cairn_plane_role;  // cairn::PlaneRole
enum {
  CAIRN_PLANE_KEY = 1,
  CAIRN_PLANE_VALUE = 2,
  CAIRN_PLANE_LATENT = 3,
  CAIRN_PLANE_SCALE = 4,
  CAIRN_PLANE_STATE = 5,
  CAIRN_PLANE_OPAQUE = 6
};

typedef uint32_t cairn_sealed_as;  // cairn::SealedAs
enum { CAIRN_SEALED_LOSSLESS = 0, CAIRN_SEALED_INT8 = 1 };
CAIRN_API const char* cairn_sealed_as_name(cairn_sealed_as sealed_as);

typedef uint32_t cairn_retention;  // cairn::Retention
enum {
  CAIRN_RETENTION_ALL = 1,
  CAIRN_RETENTION_WINDOW = 2,
  CAIRN_RETENTION_CHUNK_LOCAL = 3,
  CAIRN_RETENTION_CHECKPOINT = 4,
  CAIRN_RETENTION_PER_REQUEST = 5
};

typedef uint32_t cairn_rotary_state;  // cairn::RotaryState
enum {
  CAIRN_ROTARY_UNSET = 0,
  CAIRN_ROTARY_NONE = 1,
  CAIRN_ROTARY_APPLIED = 2,
  CAIRN_ROTARY_BEFORE = 3
};
CAIRN_API const char* cairn_rotary_state_name(cairn_rotary_state state);

typedef uint32_t cairn_rotary_pairing;  // cairn::RotaryPairing
enum {
  CAIRN_ROTARY_PAIRING_UNSET = 0,
  CAIRN_ROTARY_PAIRING_HALVES = 1,
  CAIRN_ROTARY_PAIRING_ADJACENT = 2
};
CAIRN_API const char* cairn_rotary_pairing_name(cairn_rotary_pairing pairing);

// cairn::Plane. Sizes in bytes.
typedef struct cairn_plane {
  size_t struct_size;
  const char* name;
  cairn_plane_role role;  // CAIRN_PLANE_OPAQUE
  uint32_t heads;         // 1
  uint32_t row_bytes;     // One head of one token.
  cairn_dtype dtype;
  cairn_sealed_as sealed_as;
  uint32_t state_parts;
  cairn_rotary_state rotary_state;
  cairn_rotary_pairing rotary_pairing;
  uint32_t rotary_first, rotary_width;  // Elements.
  bool rotary_interleaved;
  const uint32_t* rotary_sections;  // Pairs.
  size_t rotary_section_count;
} cairn_plane;
CAIRN_API void cairn_plane_init(cairn_plane* plane, size_t struct_size);

// cairn::LayerGroup
typedef struct cairn_layer_group {
  size_t struct_size;
  const char* name;
  uint32_t layers;
  cairn_retention retention;       // CAIRN_RETENTION_ALL
  uint32_t window, sinks, chunk;   // Tokens.
  bool optional;
  float mscale;                    // 1
  const cairn_plane* planes;
  size_t plane_count;
  const float* inv_freq;
  size_t inv_freq_count;
} cairn_layer_group;
CAIRN_API void cairn_layer_group_init(cairn_layer_group* group, size_t struct_size);
// Bytes of one position, all layers and planes.
CAIRN_API cairn_code cairn_layer_group_token_bytes(const cairn_layer_group* group, uint64_t* bytes,
                                                   cairn_error** error);

// Presets: they fill a group, and planes, of which `planes` has room for two; of both the
// struct_size is set before. group->planes is `planes` then; names are constants.
CAIRN_API cairn_code cairn_layer_group_full_attention(cairn_layer_group* group, cairn_plane* planes,
                                                      uint32_t layers, uint32_t kv_heads,
                                                      uint32_t head_dim, cairn_dtype dtype,
                                                      cairn_error** error);
CAIRN_API cairn_code cairn_layer_group_sliding_window(cairn_layer_group* group, cairn_plane* planes,
                                                      uint32_t layers, uint32_t kv_heads,
                                                      uint32_t head_dim, cairn_dtype dtype,
                                                      uint32_t window, uint32_t sinks,
                                                      cairn_error** error);
CAIRN_API cairn_code cairn_layer_group_mla(cairn_layer_group* group, cairn_plane* planes,
                                           uint32_t layers, uint32_t latent_bytes,
                                           uint32_t rotary_bytes, cairn_dtype dtype,
                                           cairn_error** error);
CAIRN_API cairn_code cairn_layer_group_recurrent(cairn_layer_group* group, cairn_plane* planes,
                                                 uint32_t layers, uint32_t state_bytes,
                                                 cairn_error** error);

// cairn::LogicalGroup
typedef struct cairn_logical_group {
  size_t struct_size;
  bool replicated;
  const char* name;
  uint32_t layers, heads;
  uint32_t layer_begin, layer_end;
  uint32_t head_begin, head_end;
} cairn_logical_group;
CAIRN_API void cairn_logical_group_init(cairn_logical_group* group, size_t struct_size);

// cairn::ModelSpec, with the fields of ModelIdentity, ModelVariant and ShardSpec.
typedef struct cairn_model_spec {
  size_t struct_size;
  const char* name;  // Required. NULL is empty, here and in all texts.
  const char* revision;
  const char* weights_digest;
  const char* tokenizer_digest;
  const char* quantization;
  const char* cache_dtype;
  const char* variant_name;
  const char* variant_digest;
  double variant_scale;  // 1
  uint32_t shard_layer_begin, shard_layer_end;
  uint32_t shard_kv_head_begin, shard_kv_head_end;
  uint32_t shard_context_rank, shard_context_size;  // 0, 1
  bool shard_replicated;
  uint32_t extent_tokens;
  const cairn_layer_group* groups;
  size_t group_count;
  const cairn_logical_group* logical;
  size_t logical_count;
} cairn_model_spec;
CAIRN_API void cairn_model_spec_init(cairn_model_spec* spec, size_t struct_size);

// KV of one position, all groups.
CAIRN_API cairn_code cairn_model_spec_token_bytes(const cairn_model_spec* spec, uint64_t* bytes,
                                                  cairn_error** error);
// CAIRN_INVALID_ARGUMENT naming the field.
CAIRN_API cairn_code cairn_model_spec_validate(const cairn_model_spec* spec, cairn_error** error);
// The first field in which the two differ, as text; *text is NULL when none does.
CAIRN_API cairn_code cairn_model_spec_first_difference(const cairn_model_spec* spec,
                                                       const cairn_model_spec* other, char** text,
                                                       cairn_error** error);

// A registered model; cairn_model_info_free gives it back, texts and arrays included.
typedef struct cairn_model_info {
  size_t struct_size;
  uint64_t id;
  const cairn_model_spec* spec;
} cairn_model_info;
CAIRN_API void cairn_model_info_free(cairn_model_info* info);

typedef struct cairn_models {
  size_t struct_size;
  const cairn_model_info* const* items;
  size_t count;
} cairn_models;
CAIRN_API void cairn_models_free(cairn_models* models);

// --- Rotary frequencies (cairn/rotary.h): each writes width / 2, or `count`, numbers to inv_freq.
CAIRN_API cairn_code cairn_rotary_frequencies(uint32_t width, double theta, float* inv_freq,
                                              cairn_error** error);
CAIRN_API cairn_code cairn_linear_frequencies(float* inv_freq, size_t count, double factor,
                                              cairn_error** error);
CAIRN_API cairn_code cairn_llama3_frequencies(float* inv_freq, size_t count, double factor,
                                              double low_freq_factor, double high_freq_factor,
                                              uint32_t original_positions, cairn_error** error);
CAIRN_API cairn_code cairn_yarn_frequencies(uint32_t width, double theta, double factor,
                                            uint32_t original_positions, double beta_fast,
                                            double beta_slow, float* inv_freq, cairn_error** error);
CAIRN_API float cairn_yarn_mscale(double factor, double coefficient);

#ifdef __cplusplus
}  // extern "C"
#endif
