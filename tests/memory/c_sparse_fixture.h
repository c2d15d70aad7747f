// SPDX-License-Identifier: Apache-2.0
//
// For calls of C about sparse attention that find no memory: a branch of KV in a store in memory,
// with a simulated device.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "cairn/c.h"
#include "tests/memory/failing_at.h"

namespace cairn::memory {

class CSparseFixture : public ::testing::Test {
 protected:
  // KV of one layer and one head, of rotated keys.
  void Start(uint32_t channels, uint64_t tokens) {
    ASSERT_EQ(CAIRN_OK, cairn_gpu_simulated(1, nullptr, &gpu_, nullptr));
    cairn_options options;
    cairn_options_init(&options, sizeof options);
    options.gpus = &gpu_;
    options.gpu_count = 1;
    ASSERT_EQ(CAIRN_OK, cairn_store_open(":memory:", &options, &store_, nullptr));
    for (cairn_plane& plane : planes_) cairn_plane_init(&plane, sizeof plane);
    cairn_layer_group group;
    cairn_layer_group_init(&group, sizeof group);
    ASSERT_EQ(CAIRN_OK, cairn_layer_group_full_attention(&group, planes_, 1, 1, channels,
                                                         CAIRN_DTYPE_BF16, nullptr));
    inv_freq_.resize(channels / 2);
    ASSERT_EQ(CAIRN_OK, cairn_rotary_frequencies(channels, 10'000, inv_freq_.data(), nullptr));
    group.inv_freq = inv_freq_.data();
    group.inv_freq_count = inv_freq_.size();
    cairn_model_spec spec;
    cairn_model_spec_init(&spec, sizeof spec);
    spec.name = "m";
    spec.groups = &group;
    spec.group_count = 1;
    uint64_t model = 0;
    ASSERT_EQ(CAIRN_OK,
              cairn_store_register_model(store_, &spec, CAIRN_DURABILITY_MEMORY, &model, nullptr));
    ASSERT_EQ(CAIRN_OK, cairn_store_create_branch(store_, model, nullptr, &branch_, nullptr));
    ASSERT_EQ(CAIRN_OK, cairn_kv_buffer_new(&spec, tokens, &kv_, nullptr));
    const std::vector<uint32_t> ids(tokens);
    cairn_delta delta;
    cairn_delta_init(&delta, sizeof delta);
    delta.tokens = ids.data();
    delta.token_count = tokens;
    delta.kv = cairn_kv_buffer_view(kv_);
    ASSERT_EQ(CAIRN_OK, cairn_branch_append_sync(branch_, &delta, nullptr, nullptr, nullptr));
    cairn_sparse_arena_options_init(&arena_options_, sizeof arena_options_);
    arena_options_.pinned_bytes = 1 << 20;
    arena_options_.device_bytes = 1 << 20;
  }
  void MakeArena() {
    ASSERT_EQ(CAIRN_OK, cairn_sparse_arena_make(store_, gpu_, &arena_options_, &arena_, nullptr));
  }
  void TearDown() override {
    cairn_sparse_arena_free(arena_);
    cairn_kv_buffer_free(kv_);
    cairn_branch_free(branch_);
    cairn_store_free(store_);
    cairn_gpu_free(gpu_);
  }

  // `call` at each of its allocations, alone and, `also_behind`, with all behind it: how it ended.
  static void Try(const std::function<cairn_code(cairn_error**)>& call,
                  const std::function<void(cairn_code)>& look, bool also_behind = true) {
    for (const bool persistent : {false, true}) {
      if (persistent && !also_behind) break;
      AtEveryAllocation([&](uint64_t n) {
        cairn_error* error = nullptr;
        cairn_code code = CAIRN_OK;
        {
          const FailingAt failing(n, persistent);
          code = call(&error);
        }
        EXPECT_TRUE(code == CAIRN_OK || code == CAIRN_OUT_OF_MEMORY) << cairn_error_message(error);
        EXPECT_EQ(error != nullptr, code != CAIRN_OK);
        EXPECT_EQ(cairn_error_code(error), code);
        cairn_error_free(error);
        look(code);
      });
    }
  }

  cairn_gpu* gpu_ = nullptr;
  cairn_store* store_ = nullptr;
  cairn_branch* branch_ = nullptr;
  cairn_kv_buffer* kv_ = nullptr;
  cairn_plane planes_[2];
  std::vector<float> inv_freq_;
  cairn_sparse_arena_options arena_options_;
  cairn_sparse_arena* arena_ = nullptr;
};

}  // namespace cairn::memory
