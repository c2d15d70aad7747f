// SPDX-License-Identifier: Apache-2.0
//
// Property: the numbers of C are those of C++, the defaults too, and no struct changes its layout
// without a word. Method: every enumerator is compared while this is compiled; offsets are compared
// with those recorded here, to which a new version may only add; a struct that may grow has no room
// at its end, which an older program would have left undefined.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cairn/c.h"
#include "cairn/copy_kv.h"
#include "cairn/export.h"
#include "cairn/find.h"
#include "cairn/gpu.h"
#include "cairn/kv_buffer.h"
#include "cairn/kv_slots.h"
#include "cairn/objects.h"
#include "cairn/shadow_session.h"
#include "cairn/sparse.h"
#include "cairn/store.h"

namespace cairn {

namespace {

template <typename Enum>
constexpr bool Is(uint32_t number, Enum value) {
  return number == static_cast<uint32_t>(value);
}

#define SAME(c, cpp) static_assert(Is(c, cpp), #c)
SAME(CAIRN_OK, StatusCode::kOk);
SAME(CAIRN_NOT_FOUND, StatusCode::kNotFound);
SAME(CAIRN_ALREADY_EXISTS, StatusCode::kAlreadyExists);
SAME(CAIRN_INVALID_ARGUMENT, StatusCode::kInvalidArgument);
SAME(CAIRN_INVALID_STATE, StatusCode::kInvalidState);
SAME(CAIRN_CONFLICT, StatusCode::kConflict);
SAME(CAIRN_MODEL_MISMATCH, StatusCode::kModelMismatch);
SAME(CAIRN_CORRUPTION, StatusCode::kCorruption);
SAME(CAIRN_EVICTED, StatusCode::kEvicted);
SAME(CAIRN_EXPIRED, StatusCode::kExpired);
SAME(CAIRN_STALE, StatusCode::kStale);
SAME(CAIRN_NO_SPACE, StatusCode::kNoSpace);
SAME(CAIRN_BUSY, StatusCode::kBusy);
SAME(CAIRN_POISONED, StatusCode::kPoisoned);
SAME(CAIRN_UNKNOWN_OUTCOME, StatusCode::kUnknownOutcome);
SAME(CAIRN_IO_ERROR, StatusCode::kIoError);
SAME(CAIRN_READ_ONLY, StatusCode::kReadOnly);
SAME(CAIRN_LOCKED, StatusCode::kLocked);
SAME(CAIRN_UNSUPPORTED_FORMAT, StatusCode::kUnsupportedFormat);
SAME(CAIRN_CANCELLED, StatusCode::kCancelled);
SAME(CAIRN_DEADLINE_EXCEEDED, StatusCode::kDeadlineExceeded);
SAME(CAIRN_OUT_OF_MEMORY, StatusCode::kOutOfMemory);
SAME(CAIRN_REASON_NONE, StatusReason::kNone);
SAME(CAIRN_REASON_NAMESPACE_QUOTA, StatusReason::kNamespaceQuota);
SAME(CAIRN_REASON_END_OF_FILE, StatusReason::kEndOfFile);
SAME(CAIRN_REASON_NO_DESCRIPTOR, StatusReason::kNoDescriptor);
SAME(CAIRN_DTYPE_OPAQUE, Dtype::kOpaque);
SAME(CAIRN_DTYPE_F32, Dtype::kF32);
SAME(CAIRN_DTYPE_F16, Dtype::kF16);
SAME(CAIRN_DTYPE_BF16, Dtype::kBf16);
SAME(CAIRN_DTYPE_F8_E4M3, Dtype::kF8E4M3);
SAME(CAIRN_DTYPE_F8_E5M2, Dtype::kF8E5M2);
SAME(CAIRN_DTYPE_I8, Dtype::kI8);
SAME(CAIRN_DTYPE_U8, Dtype::kU8);
SAME(CAIRN_PLANE_KEY, PlaneRole::kKey);
SAME(CAIRN_PLANE_VALUE, PlaneRole::kValue);
SAME(CAIRN_PLANE_LATENT, PlaneRole::kLatent);
SAME(CAIRN_PLANE_SCALE, PlaneRole::kScale);
SAME(CAIRN_PLANE_STATE, PlaneRole::kState);
SAME(CAIRN_PLANE_OPAQUE, PlaneRole::kOpaque);
SAME(CAIRN_SEALED_LOSSLESS, SealedAs::kLossless);
SAME(CAIRN_SEALED_INT8, SealedAs::kInt8);
SAME(CAIRN_SLOT_FREE, SlotState::kFree);
SAME(CAIRN_SLOT_FILLING, SlotState::kFilling);
SAME(CAIRN_SLOT_FILLED, SlotState::kFilled);
SAME(CAIRN_SLOT_APPENDING, SlotState::kAppending);
SAME(CAIRN_SLOT_RESTORING, SlotState::kRestoring);
SAME(CAIRN_SLOT_EMPTYING, SlotState::kEmptying);
SAME(CAIRN_SLOT_LEFT, SlotState::kLeft);
SAME(CAIRN_RETENTION_ALL, Retention::kAll);
SAME(CAIRN_RETENTION_WINDOW, Retention::kWindow);
SAME(CAIRN_RETENTION_CHUNK_LOCAL, Retention::kChunkLocal);
SAME(CAIRN_RETENTION_CHECKPOINT, Retention::kCheckpoint);
SAME(CAIRN_RETENTION_PER_REQUEST, Retention::kPerRequest);
SAME(CAIRN_ROTARY_UNSET, RotaryState::kUnset);
SAME(CAIRN_ROTARY_NONE, RotaryState::kNone);
SAME(CAIRN_ROTARY_APPLIED, RotaryState::kApplied);
SAME(CAIRN_ROTARY_BEFORE, RotaryState::kBefore);
SAME(CAIRN_ROTARY_PAIRING_UNSET, RotaryPairing::kUnset);
SAME(CAIRN_ROTARY_PAIRING_HALVES, RotaryPairing::kHalves);
SAME(CAIRN_ROTARY_PAIRING_ADJACENT, RotaryPairing::kAdjacent);
SAME(CAIRN_TABLE_NONE, TableKind::kNone);
SAME(CAIRN_TABLE_BLOCKS, TableKind::kBlocks);
SAME(CAIRN_TABLE_SLOTS, TableKind::kSlots);
SAME(CAIRN_MEMORY_HOST, MemoryKind::kHost);
SAME(CAIRN_MEMORY_CUDA, MemoryKind::kCuda);
SAME(CAIRN_KV_USE_APPEND, KvUse::kAppend);
SAME(CAIRN_KV_USE_RESTORE, KvUse::kRestore);
SAME(CAIRN_TENSOR_TOKEN_MAJOR, TensorLayout::kTokenMajor);
SAME(CAIRN_TENSOR_HEAD_MAJOR, TensorLayout::kHeadMajor);
SAME(CAIRN_TENSOR_LLAMA_CPP, TensorLayout::kLlamaCpp);
SAME(CAIRN_TENSOR_VLLM_NHD, TensorLayout::kVllmNhd);
SAME(CAIRN_TENSOR_VLLM_HND, TensorLayout::kVllmHnd);
SAME(CAIRN_TENSOR_FLASHINFER_NHD, TensorLayout::kFlashInferNhd);
SAME(CAIRN_TENSOR_FLASHINFER_HND, TensorLayout::kFlashInferHnd);
SAME(CAIRN_DURABILITY_MEMORY, Durability::kMemory);
SAME(CAIRN_DURABILITY_PROCESS, Durability::kProcess);
SAME(CAIRN_DURABILITY_POWER, Durability::kPower);
SAME(CAIRN_BACKEND_AUTO, Backend::kAuto);
SAME(CAIRN_BACKEND_URING, Backend::kUring);
SAME(CAIRN_BACKEND_THREADS, Backend::kThreads);
SAME(CAIRN_FATAL_POISON, FatalAction::kPoison);
SAME(CAIRN_FATAL_ABORT, FatalAction::kAbort);
SAME(CAIRN_RECOVERY_REFUSE, Recovery::kRefuse);
SAME(CAIRN_RECOVERY_SET_ASIDE, Recovery::kSetAside);
SAME(CAIRN_EVICT_NEVER, Evict::kNever);
SAME(CAIRN_EVICT_KV, Evict::kKv);
SAME(CAIRN_EVICT_BRANCHES, Evict::kBranches);
SAME(CAIRN_PERSIST_ALWAYS, Persist::kAlways);
SAME(CAIRN_PERSIST_TURN_END, Persist::kTurnEnd);
SAME(CAIRN_PERSIST_REUSED, Persist::kReused);
SAME(CAIRN_PERSIST_TOKENS_ONLY, Persist::kTokensOnly);
SAME(CAIRN_INDEX_PREFIX, Index::kPrefix);
SAME(CAIRN_INDEX_NONE, Index::kNone);
SAME(CAIRN_INDEX_CHUNKS, Index::kChunks);
SAME(CAIRN_LAYER_PENDING, kLayerPending);
SAME(CAIRN_LAYER_ENQUEUED, kLayerEnqueued);
SAME(CAIRN_LAYER_COMPLETE, kLayerComplete);
SAME(CAIRN_LAYER_FAILED, kLayerFailed);
SAME(CAIRN_GENERATOR_NONE, GeneratorKind::kNone);
SAME(CAIRN_GENERATOR_PHILOX, GeneratorKind::kPhilox);
SAME(CAIRN_GENERATOR_MT19937, GeneratorKind::kMt19937);
SAME(CAIRN_GENERATOR_NAMED, GeneratorKind::kNamed);
SAME(CAIRN_OVERLOAD_FAIL, Overload::kFail);
SAME(CAIRN_OVERLOAD_SHED_KV, Overload::kShedKv);
SAME(CAIRN_VERIFY_HEADERS, VerifyLevel::kHeaders);
SAME(CAIRN_VERIFY_INDEX, VerifyLevel::kIndex);
SAME(CAIRN_VERIFY_ALL, VerifyLevel::kAll);
SAME(CAIRN_IF_PRESENT_KEEP, IfPresent::kKeep);
SAME(CAIRN_IF_PRESENT_REPLACE, IfPresent::kReplace);
SAME(CAIRN_SPARSE_STRICT, SparseMode::kStrict);
SAME(CAIRN_SPARSE_RELAXED, SparseMode::kRelaxed);
SAME(CAIRN_SHADOW_KEYS_EXACT, ShadowKeys::kExact);
SAME(CAIRN_SHADOW_KEYS_INT8, ShadowKeys::kInt8);
SAME(CAIRN_SHADOW_KEYS_INT4, ShadowKeys::kInt4);
SAME(CAIRN_SHADOW_KEYS_LOW_RANK, ShadowKeys::kLowRank);
SAME(CAIRN_BLEND_MATCH_NONE, BlendMatch::kNone);
SAME(CAIRN_BLEND_MATCH_PREFIX, BlendMatch::kPrefix);
SAME(CAIRN_BLEND_MATCH_FULL, BlendMatch::kFull);
SAME(CAIRN_BLEND_MATCH_PARTIAL, BlendMatch::kPartial);
#undef SAME

// The last field of each struct that may grow, which must end where the struct does, and how large
// each was in the first version that had it: it may never be smaller.
#define LAST(type, field, first_size)                                        \
  static_assert(offsetof(type, field) + sizeof(type::field) == sizeof(type), \
                #type " has room at its end");                               \
  static_assert(sizeof(type) >= (first_size) && offsetof(type, struct_size) == 0, #type)
LAST(cairn_plane, rotary_section_count, 80);
LAST(cairn_layer_group, packing, 88);
LAST(cairn_logical_group, head_end, 48);
LAST(cairn_model_spec, logical_count, 144);
LAST(cairn_plane_view, element_stride, 56);
LAST(cairn_group_view, plane_count, 96);
LAST(cairn_kv_view, device, 32);
LAST(cairn_group_tensors, table_position, 112);
LAST(cairn_keep, ttl_ns, 24);
LAST(cairn_namespace_policy, evict, 40);
LAST(cairn_options, gpu_count, 240);
LAST(cairn_sampler_state, last_logit_count, 112);
LAST(cairn_app_metadata, bytes, 32);
LAST(cairn_delta, span_count, 72);
LAST(cairn_append_options, released_context, 80);
LAST(cairn_branch_options, ttl_ns, 40);
LAST(cairn_restore_request, released_context, 120);
LAST(cairn_prefix_query, lease_ns, 88);
LAST(cairn_prefix_hit, longest_matched, 112);
LAST(cairn_histogram, bucket_count, 48);
LAST(cairn_refresh_result, sequence, 24);
LAST(cairn_checkpoint_info, copied_bytes, 48);
LAST(cairn_object_class, dtype, 24);
LAST(cairn_object_put, user_data, 56);
LAST(cairn_put_options, queue, 64);
LAST(cairn_object_get, user_data, 48);
LAST(cairn_get_options, queue, 40);
LAST(cairn_gpu_options, pinned_tokens_of_count, 48);
LAST(cairn_sparse_arena_options, device_bytes, 24);
LAST(cairn_sparse_options, tokens_max, 48);
LAST(cairn_sparse_wanted, timeout_ns, 56);
LAST(cairn_sparse_view, slot_of_stride, 72);
LAST(cairn_sparse_stats, page_bytes_read, 56);
LAST(cairn_shadow_spec, rank_energy, 56);
LAST(cairn_shadow_of, end, 32);
LAST(cairn_shadow_info, tokens_read, 56);
LAST(cairn_shadow_options, tokens_max, 48);
LAST(cairn_shadow_query, stream, 48);
LAST(cairn_shadow_fetch, timeout_ns, 32);
LAST(cairn_shadow_rows, stream, 56);
LAST(cairn_shadow_view, values, 128);
LAST(cairn_key_rotation, into_strides, 152);
LAST(cairn_compose_document, end, 40);
LAST(cairn_compose_request, lease_ns, 80);
LAST(cairn_export_options, replace, 40);
LAST(cairn_import_options, model, 32);
LAST(cairn_forest_options, replace, 24);
LAST(cairn_forest_info, file_bytes, 40);
LAST(cairn_copy_kv_options, timeout_ns, 24);
LAST(cairn_slot_counts, strange, 104);
#undef LAST

// Fields in the middle of the structs that every program fills, and those that never grow.
#define AT(type, field, offset) static_assert(offsetof(type, field) == (offset), #type "::" #field)
AT(cairn_delta, tokens, 8);
AT(cairn_delta, kv, 24);
AT(cairn_delta, approximate, 48);
AT(cairn_append_options, durability, 8);
AT(cairn_append_options, expected_length, 24);
AT(cairn_append_options, timeout_ns, 32);
AT(cairn_append_options, queue, 48);
AT(cairn_branch_options, ns, 16);
AT(cairn_branch_options, durability, 24);
AT(cairn_restore_request, end, 16);
AT(cairn_restore_request, into, 40);
AT(cairn_restore_request, timeout_ns, 80);
AT(cairn_group_view, position, 16);
AT(cairn_group_view, table_entries, 48);
AT(cairn_group_view, planes, 80);
AT(cairn_plane_view, layer_bases, 8);
AT(cairn_plane_view, block_stride, 24);
AT(cairn_kv_view, groups, 8);
AT(cairn_options, file_mode, 16);
AT(cairn_options, max_bytes, 24);
AT(cairn_options, max_memory_bytes, 96);
AT(cairn_options, allocate, 136);
AT(cairn_options, on_event, 208);
AT(cairn_options, gpus, 232);
AT(cairn_prefix_hit, lease, 48);
AT(cairn_prefix_hit, seen, 56);
AT(cairn_completion, ticket, 8);
AT(cairn_completion, code, 16);
AT(cairn_content_span, hash, 16);
AT(cairn_content_span, atomic, 32);
AT(cairn_object_result, bytes, 8);
AT(cairn_object_result, error, 16);
AT(cairn_sparse_wanted, pieces, 16);
AT(cairn_sparse_wanted, on_device, 32);
AT(cairn_sparse_view, slot_of, 56);
AT(cairn_shadow_spec, outlier_share, 40);
AT(cairn_shadow_options, append_tokens, 28);
AT(cairn_shadow_query, queries, 16);
AT(cairn_shadow_rows, keys, 16);
AT(cairn_shadow_view, chunks, 56);
#undef AT
static_assert(sizeof(cairn_completion) == 24 && sizeof(cairn_content_span) == 40);
static_assert(sizeof(cairn_kv_hole) == 24 && sizeof(cairn_path_step) == 40);
static_assert(sizeof(cairn_object_result) == 24 && sizeof(cairn_bytes) == 16);
static_assert(sizeof(cairn_blend_segment) == 56 && sizeof(cairn_blend_step) == 24);
static_assert(sizeof(cairn_composed_document) == 32);
static_assert(sizeof(cairn_pinned_tokens) == 16 && sizeof(cairn_sparse_plane_slots) == 24);

// Unset C structs mean the C++ defaults: the state of a store shows it.
TEST(CLayout, DefaultsAreThoseOfCpp) {
  cairn_options c;
  cairn_options_init(&c, sizeof c);
  const Options cpp;
  EXPECT_EQ(c.struct_size, sizeof c);
  EXPECT_EQ(c.file_mode, cpp.file_mode);
  EXPECT_EQ(c.max_bytes, cpp.max_bytes);
  EXPECT_EQ(c.log_bytes_max, cpp.log_bytes_max);
  EXPECT_EQ(c.max_memory_bytes, cpp.max_memory_bytes);
  EXPECT_EQ(c.hot_tail_bytes, cpp.hot_tail_bytes);
  EXPECT_EQ(c.submit_copy_max_bytes, cpp.submit_copy_max_bytes);
  EXPECT_EQ(c.max_lease_ns, cpp.max_lease_ns);
  EXPECT_EQ(c.max_leased_bytes, cpp.max_leased_bytes);
  EXPECT_EQ(c.delta_batch_tokens, cpp.delta_batch_tokens);
  EXPECT_EQ(c.delta_batch_wait_ns, cpp.delta_batch_wait_ns);
  EXPECT_EQ(c.spare_segments_max, cpp.spare_segments_max);
  EXPECT_FALSE(c.create_if_missing);
  cairn_append_options append;
  cairn_append_options_init(&append, sizeof append);
  EXPECT_EQ(append.timeout_ns, AppendOptions().timeout_ns);
  EXPECT_EQ(append.durability, static_cast<uint32_t>(AppendOptions().durability));
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof request);
  EXPECT_EQ(request.end, RestoreRequest().end);
  EXPECT_EQ(request.timeout_ns, RestoreRequest().timeout_ns);
  cairn_model_spec spec;
  cairn_model_spec_init(&spec, sizeof spec);
  EXPECT_EQ(spec.variant_scale, ModelVariant().scale);
  EXPECT_EQ(spec.shard_context_size, ShardSpec().context_size);
  cairn_export_options exported;
  cairn_export_options_init(&exported, sizeof exported);
  EXPECT_EQ(exported.end, ExportOptions().end);
  EXPECT_EQ(exported.kv_begin, ExportOptions().kv_begin);
  cairn_sparse_options sparse;
  cairn_sparse_options_init(&sparse, sizeof sparse);
  EXPECT_EQ(sparse.planes, SparseOptions().planes);
  EXPECT_EQ(sparse.piece_tokens, SparseOptions().piece_tokens);
  EXPECT_EQ(sparse.slots, SparseOptions().slots);
  EXPECT_EQ(sparse.wanted_max, SparseOptions().wanted_max);
  EXPECT_EQ(sparse.end, SparseOptions().end);
  cairn_sparse_wanted wanted;
  cairn_sparse_wanted_init(&wanted, sizeof wanted);
  EXPECT_EQ(wanted.timeout_ns, SparseWanted().timeout_ns);
  EXPECT_EQ(wanted.mode, static_cast<uint32_t>(SparseWanted().mode));
}

TEST(CLayout, DefaultsOfShadowsAreThoseOfCpp) {
  cairn_shadow_spec spec;
  cairn_shadow_spec_init(&spec, sizeof spec);
  const auto same = [&](const ShadowSpec& cpp) {
    EXPECT_EQ(spec.chunk_tokens, cpp.chunk_tokens);
    EXPECT_EQ(spec.keys, static_cast<uint32_t>(cpp.keys));
    EXPECT_EQ(spec.landmark_bits, cpp.landmark_bits);
    EXPECT_EQ(spec.local_tokens, cpp.local_tokens);
    EXPECT_EQ(spec.sink_tokens, cpp.sink_tokens);
    EXPECT_EQ(spec.outlier_share, cpp.outlier_share);
    EXPECT_EQ(spec.outlier_chunks, cpp.outlier_chunks);
    EXPECT_EQ(spec.budget_tokens, cpp.budget_tokens);
    EXPECT_EQ(spec.rank, cpp.rank);
    EXPECT_EQ(spec.rank_energy, cpp.rank_energy);
  };
  same(ShadowSpec());
  ASSERT_EQ(cairn_shadow_spec_published(512, &spec, nullptr), CAIRN_OK);
  same(ShadowSpec::Published(512));
  cairn_shadow_options options;
  cairn_shadow_options_init(&options, sizeof options);
  EXPECT_EQ(options.append_tokens, ShadowOptions().append_tokens);
  EXPECT_EQ(options.build, ShadowOptions().build);
  EXPECT_EQ(options.end, ShadowOptions().end);
  cairn_shadow_of of;
  cairn_shadow_of_init(&of, sizeof of);
  EXPECT_EQ(of.end, ShadowOf().end);
  cairn_shadow_fetch fetch;
  cairn_shadow_fetch_init(&fetch, sizeof fetch);
  EXPECT_EQ(fetch.timeout_ns, ShadowFetch().timeout_ns);
  for (uint32_t keys = CAIRN_SHADOW_KEYS_EXACT; keys <= CAIRN_SHADOW_KEYS_LOW_RANK; ++keys) {
    EXPECT_STREQ(cairn_shadow_keys_name(keys), ShadowKeysName(static_cast<ShadowKeys>(keys)));
  }
  EXPECT_EQ(cairn_shadow_keys_name(0), nullptr);
  EXPECT_EQ(cairn_shadow_keys_name(CAIRN_SHADOW_KEYS_LOW_RANK + 1), nullptr);
}

TEST(CLayout, NamesAndNumbersAreThoseOfCpp) {
  EXPECT_STREQ(cairn_version(), Version());
  EXPECT_EQ(cairn_format_version(), kFormatVersion);
  for (int code = 0; code <= CAIRN_OUT_OF_MEMORY; ++code) {
    EXPECT_EQ(cairn_code_name(code), StatusCodeName(static_cast<StatusCode>(code)));
  }
  for (uint32_t dtype = 0; dtype <= CAIRN_DTYPE_U8; ++dtype) {
    EXPECT_EQ(cairn_dtype_bytes(dtype), DtypeBytes(static_cast<Dtype>(dtype)));
    EXPECT_STREQ(cairn_dtype_name(dtype), DtypeName(static_cast<Dtype>(dtype)));
  }
  for (uint32_t layout = 0; layout <= CAIRN_TENSOR_FLASHINFER_HND; ++layout) {
    EXPECT_STREQ(cairn_tensor_layout_name(layout),
                 TensorLayoutName(static_cast<TensorLayout>(layout)));
  }
  EXPECT_EQ(cairn_tensor_layout_name(CAIRN_TENSOR_FLASHINFER_HND + 1), nullptr);
  EXPECT_STREQ(cairn_memory_kind_name(CAIRN_MEMORY_CUDA), MemoryKindName(MemoryKind::kCuda));
  EXPECT_STREQ(cairn_sealed_as_name(CAIRN_SEALED_INT8), SealedAsName(SealedAs::kInt8));
  EXPECT_STREQ(cairn_rotary_state_name(CAIRN_ROTARY_BEFORE), RotaryStateName(RotaryState::kBefore));
  EXPECT_STREQ(cairn_rotary_pairing_name(CAIRN_ROTARY_PAIRING_ADJACENT),
               RotaryPairingName(RotaryPairing::kAdjacent));
  EXPECT_EQ(cairn_limit_count(), std::size(kLimits));
}

TEST(CLayout, FrequenciesAreThoseOfCpp) {
  const std::vector<float> plain = RotaryFrequencies(16, 10'000.0);
  std::vector<float> c(8);
  ASSERT_EQ(cairn_rotary_frequencies(16, 10'000.0, c.data(), nullptr), CAIRN_OK);
  EXPECT_EQ(c, plain);
  ASSERT_EQ(cairn_linear_frequencies(c.data(), c.size(), 4.0, nullptr), CAIRN_OK);
  EXPECT_EQ(c, LinearFrequencies(plain, 4.0));
  c = plain;
  ASSERT_EQ(cairn_llama3_frequencies(c.data(), c.size(), 8.0, 1.0, 4.0, 8192, nullptr), CAIRN_OK);
  EXPECT_EQ(c, Llama3Frequencies(plain, {}));
  ASSERT_EQ(cairn_yarn_frequencies(16, 10'000.0, 4.0, 4096, 32.0, 1.0, c.data(), nullptr),
            CAIRN_OK);
  EXPECT_EQ(c, YarnFrequencies(16, 10'000.0, {.factor = 4.0}));
  EXPECT_EQ(cairn_yarn_mscale(4.0, 1.0), YarnMscale(4.0));
  EXPECT_EQ(cairn_rotary_frequencies(1 << 20, 10'000.0, c.data(), nullptr), CAIRN_INVALID_ARGUMENT);

  const std::vector<double> near(8, 1.25), far = {1, 2, 3, 4, 5, 6, 7, 8};
  const LongRopeScaling scaling{.short_factors = near, .long_factors = far};
  const auto long_rope = [&](const double* s, const double* l, uint64_t context) {
    return cairn_long_rope_frequencies(16, 10'000.0, s, l, 4096, context, c.data(), nullptr);
  };
  ASSERT_EQ(long_rope(near.data(), nullptr, 4096), CAIRN_OK);
  EXPECT_EQ(c, LongRopeFrequencies(16, 10'000.0, scaling));
  ASSERT_EQ(long_rope(nullptr, far.data(), 4097), CAIRN_OK);
  EXPECT_EQ(c[7], static_cast<float>(std::pow(10'000.0, -14.0 / 16) / 8));
  EXPECT_EQ(long_rope(nullptr, far.data(), 4096), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(long_rope(near.data(), nullptr, 4097), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_long_rope_mscale(32.0, 4096), LongRopeMscale(32.0, 4096));
}

TEST(CLayout, KeysAreRotatedAsByCpp) {
  std::vector<float> inv_freq = RotaryFrequencies(4, 10'000.0);
  cairn_plane planes[2];
  cairn_layer_group group;
  cairn_plane_init(planes, sizeof planes[0]);
  cairn_layer_group_init(&group, sizeof group);
  ASSERT_EQ(cairn_layer_group_full_attention(&group, planes, 1, 2, 4, CAIRN_DTYPE_F32, nullptr),
            CAIRN_OK);
  group.inv_freq = inv_freq.data();
  group.inv_freq_count = inv_freq.size();
  LayerGroup cpp_group = LayerGroup::FullAttention(1, 2, 4, Dtype::kF32);
  cpp_group.inv_freq = inv_freq;

  // Rows of three tokens and two heads; head-major, and turned into token-major ones.
  std::vector<float> rows(24), into(24), want(24);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i) - 7.0F;
  const uint64_t from[] = {3, 4, 90}, to[] = {100, 0, 90};
  cairn_key_rotation rotation;
  cairn_key_rotation_init(&rotation, sizeof rotation);
  EXPECT_EQ(rotation.layers, KeyRotation().layers);
  rotation.from = from;
  rotation.to = to;
  rotation.from_count = rotation.to_count = 3;
  rotation.rows = rows.data();
  rotation.into = into.data();
  rotation.rows_size = rotation.into_size = 96;
  rotation.row_strides = {.layer = 96, .token = 16, .head = 48, .element = 4};
  ASSERT_EQ(cairn_rotate_keys(&group, &rotation, nullptr), CAIRN_OK);
  ASSERT_TRUE(RotateKeys(cpp_group, {.from = from,
                                     .to = to,
                                     .rows = std::as_bytes(std::span(rows)),
                                     .into = std::as_writable_bytes(std::span(want)),
                                     .row_strides = {.token = 16, .head = 48}})
                  .ok());
  EXPECT_EQ(into, want);
  EXPECT_NE(into[0], rows[0]);
  EXPECT_EQ(std::vector<float>(into.end() - 4, into.end()),
            std::vector<float>(rows.end() - 4, rows.end()));

  cairn_error* error = nullptr;
  const auto fails = [&](const char* with) {
    EXPECT_EQ(cairn_rotate_keys(&group, &rotation, &error), CAIRN_INVALID_ARGUMENT);
    EXPECT_NE(std::string(cairn_error_message(error)).find(with), std::string::npos)
        << cairn_error_message(error);
    cairn_error_free(error);
  };
  rotation.rows = nullptr;
  fails("cairn_key_rotation::rows is NULL");
  rotation.rows = rows.data();
  rotation.from_count = 2;
  fails("from has 2 positions");
  rotation.from_count = 3;
  rotation.plane = 1;
  fails("rotary.state is none");
  EXPECT_EQ(cairn_rotate_keys(nullptr, &rotation, nullptr), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_rotate_keys(&group, nullptr, nullptr), CAIRN_INVALID_ARGUMENT);
}

}  // namespace

}  // namespace cairn
