// SPDX-License-Identifier: Apache-2.0
//
// Property: a shadow that finds no memory while it is made, or a session while it is opened, says
// so, gives nothing, and leaves the room on the device as it was. Method: each call at every one of
// its allocations.
#include <gtest/gtest.h>

#include <functional>

#include "cairn/c.h"
#include "tests/memory/failing_at.h"

namespace cairn::memory {
namespace {

class CShadowMemoryTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kTokens = 128;

  void SetUp() override {
    ASSERT_EQ(CAIRN_OK, cairn_gpu_simulated(1, nullptr, &gpu_, nullptr));
    cairn_options options;
    cairn_options_init(&options, sizeof options);
    options.gpus = &gpu_;
    options.gpu_count = 1;
    ASSERT_EQ(CAIRN_OK, cairn_store_open(":memory:", &options, &store_, nullptr));
    for (cairn_plane& plane : planes_) cairn_plane_init(&plane, sizeof plane);
    cairn_layer_group group;
    cairn_layer_group_init(&group, sizeof group);
    ASSERT_EQ(CAIRN_OK, cairn_layer_group_full_attention(&group, planes_, 1, 1, 8, CAIRN_DTYPE_BF16,
                                                         nullptr));
    cairn_model_spec spec;
    cairn_model_spec_init(&spec, sizeof spec);
    spec.name = "m";
    spec.groups = &group;
    spec.group_count = 1;
    uint64_t model = 0;
    ASSERT_EQ(CAIRN_OK,
              cairn_store_register_model(store_, &spec, CAIRN_DURABILITY_MEMORY, &model, nullptr));
    ASSERT_EQ(CAIRN_OK, cairn_store_create_branch(store_, model, nullptr, &branch_, nullptr));
    ASSERT_EQ(CAIRN_OK, cairn_kv_buffer_new(&spec, kTokens, &kv_, nullptr));
    uint32_t tokens[kTokens] = {};
    cairn_delta delta;
    cairn_delta_init(&delta, sizeof delta);
    delta.tokens = tokens;
    delta.token_count = kTokens;
    delta.kv = cairn_kv_buffer_view(kv_);
    ASSERT_EQ(CAIRN_OK, cairn_branch_append_sync(branch_, &delta, nullptr, nullptr, nullptr));
    cairn_sparse_arena_options arena;
    cairn_sparse_arena_options_init(&arena, sizeof arena);
    arena.pinned_bytes = 1 << 20;
    arena.device_bytes = 1 << 20;
    ASSERT_EQ(CAIRN_OK, cairn_sparse_arena_make(store_, gpu_, &arena, &arena_, nullptr));
  }
  void TearDown() override {
    cairn_sparse_arena_free(arena_);
    cairn_kv_buffer_free(kv_);
    cairn_branch_free(branch_);
    cairn_store_free(store_);
    cairn_gpu_free(gpu_);
  }

  // `call` at each of its allocations, alone and with all behind it: how it ended.
  void Try(const std::function<cairn_code(cairn_error**)>& call,
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
  cairn_sparse_arena* arena_ = nullptr;
};

TEST_F(CShadowMemoryTest, Shadows) {
  Try([&](cairn_error** error) { return cairn_build_shadow(branch_, nullptr, nullptr, error); },
      [&](cairn_code code) {
        const cairn_code found = cairn_find_shadow(branch_, nullptr, nullptr, nullptr);
        EXPECT_TRUE(code != CAIRN_OK || found == CAIRN_OK);
        if (found == CAIRN_OK) {
          EXPECT_EQ(CAIRN_OK, cairn_drop_shadow(branch_, nullptr, nullptr));
        }
      });
}

TEST_F(CShadowMemoryTest, Sessions) {
  cairn_shadow_options options;
  cairn_shadow_options_init(&options, sizeof options);
  options.query_heads = 1;
  options.append_tokens = 1;
  cairn_shadow_session* session = nullptr;
  Try(
      [&](cairn_error** error) {
        return cairn_shadow_session_open(arena_, branch_, &options, &session, error);
      },
      [&](cairn_code code) {
        EXPECT_EQ(session != nullptr, code == CAIRN_OK);
        cairn_shadow_session_free(session);
        session = nullptr;
        EXPECT_EQ(0u, cairn_sparse_arena_device_bytes(arena_));
      },
      /*also_behind=*/false);  // The simulated device needs memory to end what it has begun.
}

}  // namespace
}  // namespace cairn::memory
