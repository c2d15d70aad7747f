// SPDX-License-Identifier: Apache-2.0
//
// C API: the shape of a model's state. The C++ twins are cairn/model.h and cairn/rotary.h. Cairn
// computes nothing from a model: it needs to know how many bytes of what kind belong to one token
// position, and which states may be exchanged.
//
//   spec -> layer groups (layers of one cache shape) -> planes (K, V, latent, ...) -> heads x row
//
// A row is what one head of one token holds, row_bytes of it. The canonical order of the bytes of K
// positions is [layer][plane][head][position][row], for each group. Llama 3.1 8B has 32 layers of 8
// KV heads, K and V of 128 bf16 elements: a row has 256 bytes, a position 32 * 2 * 8 * 256 = 128
// KiB:
//
//   cairn_plane planes[2] = {{.struct_size = sizeof planes[0]}};
//   cairn_layer_group group = {.struct_size = sizeof group};
//   cairn_layer_group_full_attention(&group, planes, 32, 8, 128, CAIRN_DTYPE_BF16, &error);
//   cairn_model_spec spec;
//   cairn_model_spec_init(&spec, sizeof spec);
//   spec.name = "llama-3.1-8b";
//   spec.weights_digest = digest;  // So that no other weights are served.
//   spec.groups = &group;
//   spec.group_count = 1;
//   cairn_store_register_model(store, &spec, CAIRN_DURABILITY_POWER, &model, &error);
//
// Nothing here blocks, takes a lock, does I/O or needs a store; any thread may call it. Structs and
// all that they point to are borrowed for the call and copied. Numbers of enumerations are on disk
// and never change. A field that is 0, empty or _UNSET says nothing, and then agrees with whatever
// another registration of the same model says there.
#pragma once

#include "cairn/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::Dtype: the type of the elements of a row.
typedef uint32_t cairn_dtype;
enum {
  CAIRN_DTYPE_OPAQUE = 0,  // Bytes without structure: stored raw, never rotated or quantised.
  CAIRN_DTYPE_F32 = 1,
  CAIRN_DTYPE_F16 = 2,
  CAIRN_DTYPE_BF16 = 3,
  CAIRN_DTYPE_F8_E4M3 = 4,  // FP8 with 4 bits of exponent.
  CAIRN_DTYPE_F8_E5M2 = 5,  // FP8 with 5 bits of exponent.
  CAIRN_DTYPE_I8 = 6,
  CAIRN_DTYPE_U8 = 7
};
// Bytes of an element; 1 of CAIRN_DTYPE_OPAQUE, 0 of a number that is no dtype.
CAIRN_API uint32_t cairn_dtype_bytes(cairn_dtype dtype);
// "bf16", "f8e4m3", ... Names of enumerations are static texts, here and below; NULL of a number
// that is none.
CAIRN_API const char* cairn_dtype_name(cairn_dtype dtype);

// cairn::PlaneRole: what a plane holds.
typedef uint32_t cairn_plane_role;
enum {
  CAIRN_PLANE_KEY = 1,
  CAIRN_PLANE_VALUE = 2,
  CAIRN_PLANE_LATENT = 3,  // MLA's compressed KV.
  CAIRN_PLANE_SCALE = 4,   // Dynamic scales of a quantised cache.
  CAIRN_PLANE_STATE = 5,   // A recurrent state.
  CAIRN_PLANE_OPAQUE = 6
};

// cairn::SealedAs: how a plane is kept in snapshot tables. INT8 is LOSSY, for K and V of bf16 or
// f16 alone: about half the bytes, and an error of up to half a scale (cairn/model.h). Content is
// quantised once, when it moves from the log to a table, and has the same bits from then on;
// cairn_restore_result::lossy_bytes counts the quantised bytes of a restore.
typedef uint32_t cairn_sealed_as;
enum { CAIRN_SEALED_LOSSLESS = 0, CAIRN_SEALED_INT8 = 1 };
// "lossless", "int8".
CAIRN_API const char* cairn_sealed_as_name(cairn_sealed_as sealed_as);

// cairn::Retention: which rows are needed to continue after L tokens. Appends may leave out the
// others; rows that were given stay, whatever the rule says.
typedef uint32_t cairn_retention;
enum {
  CAIRN_RETENTION_ALL = 1,          // Rows [0, L).
  CAIRN_RETENTION_WINDOW = 2,       // The newest `window` rows, and the first `sinks`.
  CAIRN_RETENTION_CHUNK_LOCAL = 3,  // Rows since the last multiple of `chunk`.
  CAIRN_RETENTION_CHECKPOINT = 4,   // A recurrent state; after L tokens it is row L - 1.
  CAIRN_RETENTION_PER_REQUEST = 5   // One state for the whole request: row 0.
};

// cairn::RotaryState: whether stored rows are rotated.
typedef uint32_t cairn_rotary_state;
enum {
  CAIRN_ROTARY_UNSET = 0,    // Not said, but they are not rotated: NONE or BEFORE.
  CAIRN_ROTARY_NONE = 1,     // The plane is never rotated: values.
  CAIRN_ROTARY_APPLIED = 2,  // They are rotated.
  CAIRN_ROTARY_BEFORE = 3    // The engine rotates them; they are stored from before that.
};
// "unset", "none", "applied", "before".
CAIRN_API const char* cairn_rotary_state_name(cairn_rotary_state state);

// cairn::RotaryPairing: which elements of a window of w turn together.
typedef uint32_t cairn_rotary_pairing;
enum {
  CAIRN_ROTARY_PAIRING_UNSET = 0,    // Not said.
  CAIRN_ROTARY_PAIRING_HALVES = 1,   // i and i + w/2: Hugging Face, vLLM.
  CAIRN_ROTARY_PAIRING_ADJACENT = 2  // 2i and 2i + 1: llama.cpp, DeepSeek's MLA.
};
// "unset", "halves", "adjacent".
CAIRN_API const char* cairn_rotary_pairing_name(cairn_rotary_pairing pairing);

// cairn::Plane: one tensor of a layer's state. Sizes in bytes.
typedef struct cairn_plane {
  size_t struct_size;                   // The same in all elements of an array.
  const char* name;                     // For messages; "k" and "v" of the presets.
  cairn_plane_role role;                // CAIRN_PLANE_OPAQUE
  uint32_t heads;                       // 1: KV heads that this process holds.
  uint32_t row_bytes;                   // One head of one token: head_dim times the dtype's bytes.
  cairn_dtype dtype;                    // The type of its elements.
  cairn_sealed_as sealed_as;            // How tables keep it.
  uint32_t state_parts;                 // Equal parts of a row, one for each head; 0: one whole.
  cairn_rotary_state rotary_state;      // Opaque bytes: UNSET or NONE.
  cairn_rotary_pairing rotary_pairing;  // How the elements in the window are paired.
  uint32_t rotary_first, rotary_width;  // Elements that are rotated; width 0: 2 * inv_freq_count.
  bool rotary_interleaved;              // Sections take turns by pairs (M-RoPE).
  const uint32_t* rotary_sections;      // Pairs of each; their sum is rotary_width / 2.
  size_t rotary_section_count;          // At most 8.
} cairn_plane;
CAIRN_API void cairn_plane_init(cairn_plane* plane, size_t struct_size);

// cairn::LayerGroup: layers that share a cache shape.
typedef struct cairn_layer_group {
  size_t struct_size;             // The same in all elements of an array.
  const char* name;               // No two groups of a model alike.
  uint32_t layers;                // Up to 65,536.
  cairn_retention retention;      // CAIRN_RETENTION_ALL
  uint32_t window, sinks, chunk;  // Tokens; a rule ignores those that are not its own.
  bool optional;                  // Draft heads: a restore may do without.
  float mscale;                   // 1: the engine's factor on cosine and sine.
  const cairn_plane* planes;      // K, V, ... in the order of views.
  size_t plane_count;             // At most 64.
  const float* inv_freq;  // Angle of a pair per position, as the engine has it; may be NULL.
  size_t inv_freq_count;  // Pairs; at most 4096; 0: unset, and mscale with them.
  const char* packing;    // How the engine rearranged its blocks; empty: as described above.
} cairn_layer_group;
CAIRN_API void cairn_layer_group_init(cairn_layer_group* group, size_t struct_size);
// *bytes: one position, all layers and planes. Checks enumerations and counts, not the rest.
CAIRN_API cairn_code cairn_layer_group_token_bytes(const cairn_layer_group* group, uint64_t* bytes,
                                                   cairn_error** error);

// --- Presets
// Each fills `group` and up to two planes; the caller has set group->struct_size and
// planes[0].struct_size. `planes` is an array of two, and must live as long as the group, since
// group->planes points to it; names are static. `head_dim` counts elements; the other sizes are
// bytes. Keys count as rotated in halves (MLA: adjacent); inv_freq is left for the caller.
// CAIRN_INVALID_ARGUMENT: the dtype, or a struct_size. A number that is too large is refused when
// the model is registered. Group "attention", planes "k" and "v", all positions kept.
CAIRN_API cairn_code cairn_layer_group_full_attention(cairn_layer_group* group, cairn_plane* planes,
                                                      uint32_t layers, uint32_t kv_heads,
                                                      uint32_t head_dim, cairn_dtype dtype,
                                                      cairn_error** error);
// Group "window": the same, of which the newest `window` positions and the first `sinks` are
// needed.
CAIRN_API cairn_code cairn_layer_group_sliding_window(cairn_layer_group* group, cairn_plane* planes,
                                                      uint32_t layers, uint32_t kv_heads,
                                                      uint32_t head_dim, cairn_dtype dtype,
                                                      uint32_t window, uint32_t sinks,
                                                      cairn_error** error);
// Group "mla", planes "latent" and, unless rotary_bytes is 0, "k_rope".
CAIRN_API cairn_code cairn_layer_group_mla(cairn_layer_group* group, cairn_plane* planes,
                                           uint32_t layers, uint32_t latent_bytes,
                                           uint32_t rotary_bytes, cairn_dtype dtype,
                                           cairn_error** error);
// Group "recurrent", one plane "state" of state_bytes.
CAIRN_API cairn_code cairn_layer_group_recurrent(cairn_layer_group* group, cairn_plane* planes,
                                                 uint32_t layers, uint32_t state_bytes,
                                                 cairn_error** error);

// cairn::LogicalGroup: a layer group as if one process had all of it, and the part that this
// process holds. With it KV of ranks of one tensor- or pipeline-parallel degree can be put together
// for another.
typedef struct cairn_logical_group {
  size_t struct_size;
  bool replicated;         // Other processes hold the same part.
  const char* name;        // Names this process's cairn_layer_group that holds part of it, if any.
  uint32_t layers, heads;  // All of them: layers; KV heads, or parts of a state.
  uint32_t layer_begin, layer_end;  // Held here; empty: nothing of the group.
  uint32_t head_begin, head_end;    // Held here.
} cairn_logical_group;
CAIRN_API void cairn_logical_group_init(cairn_logical_group* group, size_t struct_size);

// cairn::ModelSpec, with the fields of ModelIdentity, ModelVariant and ShardSpec. Two specs are the
// same model only if all of identity, variant and shard is equal: set every field that
// distinguishes states that must not be exchanged. No groups at all is a tree of token ids.
typedef struct cairn_model_spec {
  size_t struct_size;
  const char* name;      // Required. Texts: at most 1024 bytes each; NULL is empty.
  const char* revision;  // The caller's words, here and below; not interpreted.
  const char* weights_digest;
  const char* tokenizer_digest;
  const char* quantization;
  const char* cache_dtype;
  const char* variant_name;  // An adapter (LoRA); empty: the base model itself.
  const char* variant_digest;
  double variant_scale;                             // 1
  uint32_t shard_layer_begin, shard_layer_end;      // Layers of the whole model; 0, 0: all.
  uint32_t shard_kv_head_begin, shard_kv_head_end;  // 0, 0: all.
  uint32_t shard_context_rank, shard_context_size;  // 0, 1: which part of the positions.
  bool shard_replicated;                            // Other processes hold the same.
  uint32_t extent_tokens;           // A table page's tokens: 64 to 4096, a power of two; 0: chosen.
  const cairn_layer_group* groups;  // cairn_group_view::group counts them from 0.
  size_t group_count;               // At most 15.
  const cairn_logical_group* logical;  // NULL: not said. Else one for each of `groups`, or more.
  size_t logical_count;                // At most 15.
} cairn_model_spec;
CAIRN_API void cairn_model_spec_init(cairn_model_spec* spec, size_t struct_size);

// *bytes: KV of one position, all groups. Checks enumerations and counts, not the rest.
CAIRN_API cairn_code cairn_model_spec_token_bytes(const cairn_model_spec* spec, uint64_t* bytes,
                                                  cairn_error** error);
// The check that cairn_store_register_model begins with. CAIRN_INVALID_ARGUMENT names the field: a
// value that does not exist, a number that is not finite, or one beyond a limit.
CAIRN_API cairn_code cairn_model_spec_validate(const cairn_model_spec* spec, cairn_error** error);
// *text: the first field in which the two differ, as "groups[0].planes[1].heads is 8, not 4";
// freed with cairn_text_free. NULL when none does. A field that can be unset differs only where
// both say something.
CAIRN_API cairn_code cairn_model_spec_first_difference(const cairn_model_spec* spec,
                                                       const cairn_model_spec* other, char** text,
                                                       cairn_error** error);

// A registered model, as cairn_store_get_model gives it. cairn_model_info_free frees it with its
// spec, texts and arrays.
typedef struct cairn_model_info {
  size_t struct_size;
  uint64_t id;  // Given by the store, stable for its life.
  const cairn_model_spec* spec;
} cairn_model_info;
CAIRN_API void cairn_model_info_free(cairn_model_info* info);

// All models, as cairn_store_models gives them. cairn_models_free frees the list with its items.
typedef struct cairn_models {
  size_t struct_size;
  const cairn_model_info* const* items;  // In order of id.
  size_t count;
} cairn_models;
CAIRN_API void cairn_models_free(cairn_models* models);

// --- Rotary frequencies (cairn/rotary.h)
// Inverse frequencies, computed in double and rounded once; an engine that computes in fp32 may
// have another last bit, and then its own numbers are the ones to give. CAIRN_INVALID_ARGUMENT:
// more than 4096 numbers. Other arguments are not checked: a result that is not finite is refused
// when the model is registered. Writes theta^(-2i / width) for i in [0, width / 2) to inv_freq: no
// scaling.
CAIRN_API cairn_code cairn_rotary_frequencies(uint32_t width, double theta, float* inv_freq,
                                              cairn_error** error);
// Divides `count` numbers by the factor, in place: linear position interpolation.
CAIRN_API cairn_code cairn_linear_frequencies(float* inv_freq, size_t count, double factor,
                                              cairn_error** error);
// Scales `count` numbers in place as Llama 3.1: waves longer than original_positions /
// low_freq_factor are divided by the factor, those shorter than original_positions /
// high_freq_factor stay.
CAIRN_API cairn_code cairn_llama3_frequencies(float* inv_freq, size_t count, double factor,
                                              double low_freq_factor, double high_freq_factor,
                                              uint32_t original_positions, cairn_error** error);
// Writes width / 2 numbers, by YaRN: pairs that turn more than beta_fast times in
// original_positions stay, those that turn less than beta_slow times are divided by the factor.
CAIRN_API cairn_code cairn_yarn_frequencies(uint32_t width, double theta, double factor,
                                            uint32_t original_positions, double beta_fast,
                                            double beta_slow, float* inv_freq, cairn_error** error);
// For cairn_layer_group::mscale: 0.1 * coefficient * ln(factor) + 1, and 1 for factors up to 1.
CAIRN_API float cairn_yarn_mscale(double factor, double coefficient);
// Writes width / 2 numbers, by LongRoPE: frequencies divided by `long_factors`, width / 2 numbers,
// where context_positions, the engine's context length, is beyond original_positions, and else by
// `short_factors`. The other factors may be NULL.
CAIRN_API cairn_code cairn_long_rope_frequencies(
    uint32_t width, double theta, const double* short_factors, const double* long_factors,
    uint32_t original_positions, uint64_t context_positions, float* inv_freq, cairn_error** error);
// For cairn_layer_group::mscale, `factor` times original_positions being the longest context:
// sqrt(1 + ln(factor) / ln(original_positions)), and 1 for factors up to 1.
CAIRN_API float cairn_long_rope_mscale(double factor, uint32_t original_positions);

// --- Keys at other positions (cairn/rotary.h)
// cairn::KeyStrides: bytes from a layer, token, head or element to the next. 0: dense, in the order
// [layer][token][head][row].
typedef struct cairn_key_strides {
  uint64_t layer, token, head, element;
} cairn_key_strides;

// cairn::KeyRotation: rows of a plane, and where they are wanted.
typedef struct cairn_key_rotation {
  size_t struct_size;
  size_t plane;     // Of cairn_layer_group::planes.
  uint32_t layers;  // 1: layers that `rows` has.
  // Positions of the tokens, in any order: one a token; with sections one per section, one token
  // behind the other. `from` of a plane of CAIRN_ROTARY_BEFORE is empty.
  const uint64_t* from;
  size_t from_count;
  const uint64_t* to;
  size_t to_count;
  const void* rows;  // cairn_plane::heads rows for each token, in memory of the host.
  size_t rows_size;
  void* into;  // `rows` with the same strides, or memory that shares nothing with it.
  size_t into_size;
  cairn_key_strides row_strides, into_strides;
} cairn_key_rotation;
CAIRN_API void cairn_key_rotation_init(cairn_key_rotation* rotation, size_t struct_size);
// Turns rows that were rotated at `from` to what is rotated at `to`; those of a plane of
// CAIRN_ROTARY_BEFORE to what the engine computes at `to`. What is written differs from a turn
// without rounding by a relative error of 2^-11 (f16), 2^-8 (bf16) or 2^-24 (f32), and 2^-22 more,
// however far. Errors of repeated turns add up: always turn the row that was stored first.
// Computes on the caller's thread. CAIRN_INVALID_ARGUMENT, by the field, and nothing is written:
// the plane does not exist or is not rotated; its pairing or inv_freq is unset, or its window does
// not fit; elements are none of f32, f16 and bf16; numbers of positions that do not match; strides
// by which rows overlap; rows that do not fit; `into` that shares part of `rows`.
// CAIRN_OUT_OF_MEMORY: nothing is written either.
CAIRN_API cairn_code cairn_rotate_keys(const cairn_layer_group* group,
                                       const cairn_key_rotation* rotation, cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
