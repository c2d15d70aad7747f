// SPDX-License-Identifier: Apache-2.0
//
// The defaults of the C structs: those of their C++ twins, read from them.
#include "api/c/convert.h"
#include "api/c/sized.h"
#include "cairn/copy_kv.h"
#include "cairn/export.h"
#include "cairn/find.h"
#include "cairn/gpu.h"
#include "cairn/objects.h"
#include "cairn/shadow_session.h"
#include "cairn/sparse.h"
#include "cairn/store.h"

namespace cairn::capi {

namespace {

template <typename T>
T Zeros() {
  T zeros{};
  zeros.struct_size = sizeof(T);
  return zeros;
}

template <typename Enum>
uint32_t Number(Enum value) {
  return static_cast<uint32_t>(value);
}

}  // namespace

// Structs whose defaults are all zero, as in C++.
#define CAIRN_C_ZEROS(name) \
  cairn_##name Sized<cairn_##name>::Default() { return Zeros<cairn_##name>(); }
CAIRN_C_ZEROS(logical_group)
CAIRN_C_ZEROS(plane_view)
CAIRN_C_ZEROS(group_view)
CAIRN_C_ZEROS(kv_view)
CAIRN_C_ZEROS(group_tensors)
CAIRN_C_ZEROS(keep)
CAIRN_C_ZEROS(app_metadata)
CAIRN_C_ZEROS(delta)
CAIRN_C_ZEROS(prefix_hit)
CAIRN_C_ZEROS(histogram)
CAIRN_C_ZEROS(refresh_result)
CAIRN_C_ZEROS(checkpoint_info)
CAIRN_C_ZEROS(slot_counts)
CAIRN_C_ZEROS(object_put)
CAIRN_C_ZEROS(object_get)
CAIRN_C_ZEROS(sparse_arena_options)
CAIRN_C_ZEROS(sparse_view)
CAIRN_C_ZEROS(sparse_stats)
CAIRN_C_ZEROS(shadow_info)
CAIRN_C_ZEROS(shadow_query)
CAIRN_C_ZEROS(shadow_rows)
CAIRN_C_ZEROS(shadow_view)
CAIRN_C_ZEROS(import_options)
CAIRN_C_ZEROS(forest_options)
CAIRN_C_ZEROS(forest_info)
#undef CAIRN_C_ZEROS

cairn_export_options Sized<cairn_export_options>::Default() {
  const ExportOptions options;
  auto c = Zeros<cairn_export_options>();
  c.end = options.end;
  c.kv_begin = options.kv_begin;
  return c;
}

cairn_plane Sized<cairn_plane>::Default() {
  const Plane plane;
  auto c = Zeros<cairn_plane>();
  c.role = Number(plane.role);
  c.heads = plane.heads;
  return c;
}

cairn_key_rotation Sized<cairn_key_rotation>::Default() {
  auto c = Zeros<cairn_key_rotation>();
  c.layers = KeyRotation().layers;
  return c;
}

cairn_layer_group Sized<cairn_layer_group>::Default() {
  const LayerGroup group;
  auto c = Zeros<cairn_layer_group>();
  c.retention = Number(group.retention.kind);
  c.mscale = group.mscale;
  return c;
}

cairn_model_spec Sized<cairn_model_spec>::Default() {
  auto c = Zeros<cairn_model_spec>();
  c.variant_scale = ModelVariant().scale;
  c.shard_context_size = ShardSpec().context_size;
  return c;
}

cairn_namespace_policy Sized<cairn_namespace_policy>::Default() {
  const NamespacePolicy policy;
  auto c = Zeros<cairn_namespace_policy>();
  c.max_bytes = policy.max_bytes;
  c.persist = Number(policy.persist);
  c.index = Number(policy.index);
  return c;
}

cairn_options Sized<cairn_options>::Default() {
  const Options options;
  auto c = Zeros<cairn_options>();
  c.file_mode = options.file_mode;
  c.max_bytes = options.max_bytes;
  c.evict = Number(options.evict);
  c.recovery = Number(options.recovery);
  c.index = Number(options.index);
  c.segment_bytes = options.segment_bytes;
  c.log_bytes_max = options.log_bytes_max;
  c.snapshot_interval_tokens = options.snapshot_interval_tokens;
  c.max_delta_chain = options.max_delta_chain;
  c.replay_records_max = options.replay_records_max;
  c.background_bytes_per_second = options.background_bytes_per_second;
  c.spare_segments_min = options.spare_segments_min;
  c.spare_segments_max = options.spare_segments_max;
  c.max_memory_bytes = options.max_memory_bytes;
  c.hot_tail_bytes = options.hot_tail_bytes;
  c.submit_copy_max_bytes = options.submit_copy_max_bytes;
  c.tree_memory_bytes = options.tree_memory_bytes;
  c.reuse_memory_bytes = options.reuse_memory_bytes;
  c.max_lease_ns = options.max_lease_ns;
  c.max_leased_bytes = options.max_leased_bytes;
  c.delta_batch_wait_ns = options.delta_batch_wait_ns;
  c.delta_batch_tokens = options.delta_batch_tokens;
  c.on_fatal = Number(options.on_fatal);
  c.backend = Number(options.backend);
  c.executor_threads = options.executor_threads;
  return c;
}

cairn_sampler_state Sized<cairn_sampler_state>::Default() {
  const SamplerState state;
  auto c = Zeros<cairn_sampler_state>();
  c.temperature = state.temperature;
  c.top_p = state.top_p;
  c.min_p = state.min_p;
  c.repetition_penalty = state.repetition_penalty;
  return c;
}

cairn_append_options Sized<cairn_append_options>::Default() {
  const AppendOptions options;
  auto c = Zeros<cairn_append_options>();
  c.durability = Number(options.durability);
  c.overload = Number(options.overload);
  c.approximate = !options.exact;
  c.timeout_ns = options.timeout_ns;
  return c;
}

cairn_branch_options Sized<cairn_branch_options>::Default() {
  auto c = Zeros<cairn_branch_options>();
  c.durability = Number(BranchOptions().durability);
  return c;
}

cairn_restore_request Sized<cairn_restore_request>::Default() {
  const RestoreRequest request;
  auto c = Zeros<cairn_restore_request>();
  c.end = request.end;
  c.timeout_ns = request.timeout_ns;
  return c;
}

cairn_compose_document Sized<cairn_compose_document>::Default() {
  auto c = Zeros<cairn_compose_document>();
  c.end = ComposeDocument().end;
  return c;
}

cairn_compose_request Sized<cairn_compose_request>::Default() {
  return Zeros<cairn_compose_request>();
}

cairn_prefix_query Sized<cairn_prefix_query>::Default() {
  auto c = Zeros<cairn_prefix_query>();
  c.confirm = PrefixQuery().confirm;
  return c;
}

cairn_object_class Sized<cairn_object_class>::Default() {
  auto c = Zeros<cairn_object_class>();
  c.page_bytes = ObjectClass().page_bytes;
  return c;
}

cairn_put_options Sized<cairn_put_options>::Default() {
  const PutOptions options;
  auto c = Zeros<cairn_put_options>();
  c.if_present = Number(options.if_present);
  c.durability = Number(options.durability);
  c.timeout_ns = options.timeout_ns;
  return c;
}

cairn_get_options Sized<cairn_get_options>::Default() {
  auto c = Zeros<cairn_get_options>();
  c.timeout_ns = GetOptions().timeout_ns;
  return c;
}

cairn_gpu_options Sized<cairn_gpu_options>::Default() {
  const GpuOptions options;
  auto c = Zeros<cairn_gpu_options>();
  c.processors_max = options.processors_max;
  c.pinned_bytes = options.pinned_bytes;
  c.pinned_tokens = options.pinned_tokens;
  return c;
}

cairn_copy_kv_options Sized<cairn_copy_kv_options>::Default() {
  auto c = Zeros<cairn_copy_kv_options>();
  c.timeout_ns = CopyKvOptions().timeout_ns;
  return c;
}

cairn_sparse_options Sized<cairn_sparse_options>::Default() {
  const SparseOptions options;
  auto c = Zeros<cairn_sparse_options>();
  c.planes = options.planes;
  c.piece_tokens = options.piece_tokens;
  c.slots = options.slots;
  c.wanted_max = options.wanted_max;
  c.end = options.end;
  c.warm = options.warm;
  return c;
}

cairn_sparse_wanted Sized<cairn_sparse_wanted>::Default() {
  auto c = Zeros<cairn_sparse_wanted>();
  c.timeout_ns = SparseWanted().timeout_ns;
  return c;
}

cairn_shadow_spec ToC(const ShadowSpec& spec) {
  auto c = Zeros<cairn_shadow_spec>();
  c.chunk_tokens = spec.chunk_tokens;
  c.keys = Number(spec.keys);
  c.landmark_bits = spec.landmark_bits;
  c.local_tokens = spec.local_tokens;
  c.sink_tokens = spec.sink_tokens;
  c.outlier_share = spec.outlier_share;
  c.outlier_chunks = spec.outlier_chunks;
  c.budget_tokens = spec.budget_tokens;
  c.rank = spec.rank;
  c.rank_energy = spec.rank_energy;
  return c;
}

cairn_shadow_spec Sized<cairn_shadow_spec>::Default() { return ToC(ShadowSpec()); }

cairn_shadow_of Sized<cairn_shadow_of>::Default() {
  auto c = Zeros<cairn_shadow_of>();
  c.end = ShadowOf().end;
  return c;
}

cairn_shadow_options Sized<cairn_shadow_options>::Default() {
  const ShadowOptions options;
  auto c = Zeros<cairn_shadow_options>();
  c.append_tokens = options.append_tokens;
  c.build = options.build;
  c.end = options.end;
  return c;
}

cairn_shadow_fetch Sized<cairn_shadow_fetch>::Default() {
  auto c = Zeros<cairn_shadow_fetch>();
  c.timeout_ns = ShadowFetch().timeout_ns;
  return c;
}

}  // namespace cairn::capi
