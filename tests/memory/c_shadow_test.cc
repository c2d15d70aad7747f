// SPDX-License-Identifier: Apache-2.0
//
// Property: a shadow that finds no memory while it is made says so, and nothing is in the
// way of the next one. Method: the call at every one of its allocations.
#include <gtest/gtest.h>

#include "cairn/c.h"
#include "tests/memory/failing_at.h"

namespace cairn::memory {
namespace {

class CShadowMemoryTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kTokens = 128;

  void SetUp() override {
    ASSERT_EQ(CAIRN_OK, cairn_store_open(":memory:", nullptr, &store_, nullptr));
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
  }
  void TearDown() override {
    cairn_kv_buffer_free(kv_);
    cairn_branch_free(branch_);
    cairn_store_free(store_);
  }

  cairn_store* store_ = nullptr;
  cairn_branch* branch_ = nullptr;
  cairn_kv_buffer* kv_ = nullptr;
  cairn_plane planes_[2];
};

TEST_F(CShadowMemoryTest, AtEveryAllocation) {
  for (const bool persistent : {false, true}) {
    AtEveryAllocation([&](uint64_t n) {
      cairn_error* error = nullptr;
      cairn_code code = CAIRN_OK;
      {
        const FailingAt failing(n, persistent);
        code = cairn_build_shadow(branch_, nullptr, nullptr, &error);
      }
      EXPECT_TRUE(code == CAIRN_OK || code == CAIRN_OUT_OF_MEMORY) << cairn_error_message(error);
      EXPECT_EQ(error != nullptr, code != CAIRN_OK);
      EXPECT_EQ(cairn_error_code(error), code);
      cairn_error_free(error);
      const cairn_code found = cairn_find_shadow(branch_, nullptr, nullptr, nullptr);
      EXPECT_TRUE(found == CAIRN_OK || (found == CAIRN_NOT_FOUND && code != CAIRN_OK));
      if (found == CAIRN_OK) {
        EXPECT_EQ(CAIRN_OK, cairn_drop_shadow(branch_, nullptr, nullptr));
      }
      // Nothing is in the way of the next one.
      EXPECT_EQ(CAIRN_OK, cairn_build_shadow(branch_, nullptr, nullptr, nullptr));
      EXPECT_EQ(CAIRN_OK, cairn_drop_shadow(branch_, nullptr, nullptr));
    });
  }
}

}  // namespace
}  // namespace cairn::memory
