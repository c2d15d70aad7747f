// SPDX-License-Identifier: Apache-2.0
//
// A store in memory with a simulated GPU, a branch of a small model and an arena, in C: for the
// targets of sparse sessions and of shadows.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "cairn/c.h"

namespace cairn::fuzz {

inline void Must(cairn_code code) { CAIRN_CHECK(code == CAIRN_OK); }

class CGpuStore {
 public:
  static constexpr uint32_t kLayers = 2, kHeads = 2;

  // `tokens`: of the KV buffer; the branch begins empty.
  CGpuStore(uint8_t seed, uint32_t channels, uint64_t tokens, uint64_t device_bytes)
      : tokens_(tokens) {
    Must(cairn_gpu_simulated(seed, nullptr, &gpu_, nullptr));
    cairn_options options;
    cairn_options_init(&options, sizeof options);
    options.segment_bytes = 256 << 10;
    options.max_memory_bytes = 16 << 20;
    options.hot_tail_bytes = 1 << 20;
    options.executor_threads = 1;
    options.gpus = &gpu_;
    options.gpu_count = 1;
    Must(cairn_store_open(":memory:", &options, &store_, nullptr));
    MakeBranch(channels);
    cairn_sparse_arena_options arena;
    cairn_sparse_arena_options_init(&arena, sizeof arena);
    arena.pinned_bytes = 1 << 20;
    arena.device_bytes = device_bytes;
    Must(cairn_sparse_arena_make(store_, gpu_, &arena, &arena_, nullptr));
  }
  // Sessions and device memory of the caller's are gone by then.
  ~CGpuStore() {
    cairn_sparse_arena_free(arena_);
    cairn_store_free(store_);
    cairn_branch_free(branch_);
    cairn_kv_buffer_free(kv_);
    cairn_gpu_free(gpu_);
  }
  CGpuStore(const CGpuStore&) = delete;
  CGpuStore& operator=(const CGpuStore&) = delete;

  cairn_gpu* gpu() const { return gpu_; }
  cairn_branch* branch() const { return branch_; }
  cairn_kv_buffer* kv() const { return kv_; }
  cairn_sparse_arena* arena() const { return arena_; }
  uint64_t length() const { return length_; }

  // The same KV again, whatever was cut.
  void Append(uint64_t wanted_end) {
    const uint64_t end = std::min(wanted_end, tokens_);
    if (end <= length_) return;
    cairn_owned_kv_view* view = nullptr;
    Must(cairn_kv_buffer_view_of(kv_, length_, end, &view, nullptr));
    const std::vector<uint32_t> tokens(end - length_, 7);
    cairn_delta delta;
    cairn_delta_init(&delta, sizeof delta);
    delta.tokens = tokens.data();
    delta.token_count = tokens.size();
    delta.kv = cairn_owned_kv_view_view(view);
    Must(cairn_branch_append_sync(branch_, &delta, nullptr, nullptr, nullptr));
    cairn_owned_kv_view_free(view);
    length_ = end;
  }
  void Rewind(uint64_t to) {
    Must(cairn_branch_rewind(branch_, to, CAIRN_DURABILITY_PROCESS, nullptr));
    length_ = to;
  }
  void Compact() { Must(cairn_store_compact(store_, nullptr)); }
  // Before sessions end.
  void FreeStore() { cairn_store_free(std::exchange(store_, nullptr)); }
  void FreeArena() { cairn_sparse_arena_free(std::exchange(arena_, nullptr)); }

 private:
  void MakeBranch(uint32_t channels) {
    std::array<cairn_plane, 2> planes;
    for (cairn_plane& plane : planes) cairn_plane_init(&plane, sizeof plane);
    cairn_layer_group group;
    cairn_layer_group_init(&group, sizeof group);
    Must(cairn_layer_group_full_attention(&group, planes.data(), kLayers, kHeads, channels,
                                          CAIRN_DTYPE_BF16, nullptr));
    std::vector<float> frequencies(channels / 2);
    Must(cairn_rotary_frequencies(channels, 10'000.0, frequencies.data(), nullptr));
    group.inv_freq = frequencies.data();
    group.inv_freq_count = frequencies.size();
    cairn_model_spec spec;
    cairn_model_spec_init(&spec, sizeof spec);
    spec.name = "fuzz";
    spec.groups = &group;
    spec.group_count = 1;
    uint64_t model = 0;
    Must(cairn_store_register_model(store_, &spec, CAIRN_DURABILITY_MEMORY, &model, nullptr));
    Must(cairn_store_create_branch(store_, model, nullptr, &branch_, nullptr));
    Must(cairn_kv_buffer_new(&spec, tokens_, &kv_, nullptr));
  }

  const uint64_t tokens_;
  uint64_t length_ = 0;
  cairn_gpu* gpu_ = nullptr;
  cairn_store* store_ = nullptr;
  cairn_branch* branch_ = nullptr;
  cairn_kv_buffer* kv_ = nullptr;
  cairn_sparse_arena* arena_ = nullptr;
};

}  // namespace cairn::fuzz
