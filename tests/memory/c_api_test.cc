// SPDX-License-Identifier: Apache-2.0
//
// Property: a call of the C API that finds no memory says so, by code and by an error object, gives
// nothing, and changes nothing that a second try would meet; no exception leaves it. Method: each
// call at every one of its allocations, once with that one alone failing and once with all from
// there on, where there is no memory for the error either.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cairn/c.h"
#include "tests/memory/failing_at.h"

namespace cairn::memory {
namespace {

class CApiMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cairn_options options;
    cairn_options_init(&options, sizeof options);
    options.segment_bytes = 256 << 10;
    options.max_memory_bytes = 16 << 20;
    options.hot_tail_bytes = 1 << 20;
    ASSERT_EQ(cairn_store_open(":memory:", &options, &store_, nullptr), CAIRN_OK);
    for (cairn_plane& plane : planes_) cairn_plane_init(&plane, sizeof plane);
    cairn_layer_group_init(&group_, sizeof group_);
    cairn_model_spec_init(&spec_, sizeof spec_);
    ASSERT_EQ(
        cairn_layer_group_full_attention(&group_, planes_, 2, 1, 4, CAIRN_DTYPE_BF16, nullptr),
        CAIRN_OK);
    spec_.name = "a model with a name that is too long to be kept within a string";
    spec_.groups = &group_;
    spec_.group_count = 1;
    ASSERT_EQ(cairn_store_register_model(store_, &spec_, CAIRN_DURABILITY_MEMORY, &model_, nullptr),
              CAIRN_OK);
    ASSERT_EQ(cairn_objects_new(store_, &objects_, nullptr), CAIRN_OK);
    ASSERT_EQ(cairn_store_new_completion_queue(store_, &queue_, nullptr), CAIRN_OK);
    ASSERT_EQ(cairn_kv_buffer_new(&spec_, kTokens, &kv_, nullptr), CAIRN_OK);
    cairn_branch_options_init(&named_, sizeof named_);
    named_.name = "a branch with a name that is too long to be kept within a string";
    ASSERT_EQ(cairn_store_create_branch(store_, model_, &named_, &branch_, nullptr), CAIRN_OK);
    cairn_sampler_state_init(&sampler_, sizeof sampler_);
    sampler_.generator = CAIRN_GENERATOR_NAMED;
    sampler_.blob_name = "a generator with a name that is too long for a short string";
    sampler_.blob = {tokens_, sizeof tokens_};
    cairn_delta_init(&delta_, sizeof delta_);
    delta_.tokens = tokens_;
    delta_.token_count = kTokens;
    delta_.kv = cairn_kv_buffer_view(kv_);
    delta_.sampler = &sampler_;
    delta_.spans = &span_;
    delta_.span_count = 1;
    ASSERT_EQ(cairn_branch_append_sync(branch_, &delta_, nullptr, nullptr, nullptr), CAIRN_OK);
  }
  void TearDown() override {
    cairn_branch_free(branch_);
    cairn_kv_buffer_free(kv_);
    cairn_completion_queue_free(queue_);
    cairn_objects_free(objects_);
    cairn_store_free(store_);
  }

  // `call` is given where its error goes; `out` is what it would give, and `free` frees it.
  template <typename Handle>
  void Try(Handle** out, void (*free)(Handle*),
           const std::function<cairn_code(cairn_error**)>& call) {
    for (const bool persistent : {false, true}) {
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
        EXPECT_EQ(*out != nullptr, code == CAIRN_OK);
        cairn_error_free(error);
        free(*out);
        *out = nullptr;
      });
    }
  }

  static constexpr size_t kTokens = 64;
  cairn_store* store_ = nullptr;
  cairn_objects* objects_ = nullptr;
  cairn_completion_queue* queue_ = nullptr;
  cairn_kv_buffer* kv_ = nullptr;
  cairn_branch* branch_ = nullptr;
  cairn_plane planes_[2];
  cairn_layer_group group_;
  cairn_model_spec spec_;
  cairn_branch_options named_;
  cairn_sampler_state sampler_;
  cairn_delta delta_;
  cairn_content_span span_{1, 2, {3, 4}, false};
  uint32_t tokens_[kTokens] = {1, 2, 3};
  uint64_t model_ = 0;
};

TEST_F(CApiMemoryTest, WhatIsLookedAt) {
  cairn_branch_info* info = nullptr;
  Try(&info, cairn_branch_info_free,
      [&](cairn_error** error) { return cairn_branch_get_info(branch_, &info, error); });
  cairn_branch_page* page = nullptr;
  Try(&page, cairn_branch_page_free, [&](cairn_error** error) {
    return cairn_store_list_branches(store_, nullptr, "a", 10, nullptr, &page, error);
  });
  cairn_models* models = nullptr;
  Try(&models, cairn_models_free,
      [&](cairn_error** error) { return cairn_store_models(store_, &models, error); });
  cairn_state_at* state = nullptr;
  Try(&state, cairn_state_at_free, [&](cairn_error** error) {
    return cairn_branch_sampler_at(branch_, kTokens, &state, error);
  });
  cairn_content_spans* spans = nullptr;
  Try(&spans, cairn_content_spans_free, [&](cairn_error** error) {
    return cairn_branch_spans(branch_, 0, UINT64_MAX, &spans, error);
  });
  cairn_branch* found = nullptr;
  Try(&found, cairn_branch_free, [&](cairn_error** error) {
    return cairn_store_find_branch(store_, named_.name, nullptr, &found, error);
  });
  cairn_health* health = nullptr;
  Try(&health, cairn_health_free,
      [&](cairn_error** error) { return cairn_store_health(store_, &health, error); });
  char* text = nullptr;
  Try(&text, cairn_text_free, [&](cairn_error** error) {
    return cairn_store_prometheus_text(store_, "store", &text, error);
  });
}

TEST_F(CApiMemoryTest, Views) {
  cairn_kv_buffer* kv = nullptr;
  Try(&kv, cairn_kv_buffer_free,
      [&](cairn_error** error) { return cairn_kv_buffer_new(&spec_, 4, &kv, error); });
  cairn_layer_progress* progress = nullptr;
  Try(&progress, cairn_layer_progress_free,
      [&](cairn_error** error) { return cairn_layer_progress_new(4, &progress, error); });
}

TEST_F(CApiMemoryTest, Forks) {
  cairn_branch* fork = nullptr;
  named_.name = nullptr;
  Try(&fork, cairn_branch_free, [&](cairn_error** error) {
    return cairn_branch_fork_at(branch_, 10, &named_, &fork, error);
  });
}

// A failed append left no trace: the next one finds the old length.
TEST_F(CApiMemoryTest, Appends) {
  cairn_append_options options;
  cairn_append_options_init(&options, sizeof options);
  options.has_expected_length = true;
  options.expected_length = kTokens;
  options.durability = CAIRN_DURABILITY_MEMORY;
  cairn_ticket* ticket = nullptr;
  delta_.spans = nullptr;
  delta_.span_count = 0;
  delta_.kv = nullptr;
  Try(&ticket, cairn_ticket_free, [&](cairn_error** error) {
    const cairn_code code = cairn_branch_append(branch_, &delta_, &options, &ticket, error);
    if (code == CAIRN_OK) options.expected_length += kTokens;
    return code;
  });
}

TEST_F(CApiMemoryTest, Restores) {
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof request);
  request.into = cairn_kv_buffer_view(kv_);
  cairn_restore_result* result = nullptr;
  Try(&result, cairn_restore_result_free, [&](cairn_error** error) {
    return cairn_branch_restore(branch_, &request, nullptr, &result, error);
  });
}

// Rows that are turned in place must not be left half turned. Without a store, whose threads would
// meet some of the failures instead.
TEST(CApiMemory, KeysAreRotatedWhollyOrNotAtAll) {
  const float inv_freq[] = {1.0F, 0.5F};
  cairn_plane planes[2];
  for (cairn_plane& plane : planes) cairn_plane_init(&plane, sizeof plane);
  cairn_layer_group group;
  cairn_layer_group_init(&group, sizeof group);
  ASSERT_EQ(cairn_layer_group_full_attention(&group, planes, 2, 1, 4, CAIRN_DTYPE_BF16, nullptr),
            CAIRN_OK);
  group.inv_freq = inv_freq;
  group.inv_freq_count = 2;
  constexpr size_t kRows = 1000;  // More than one table of turns.
  std::vector<uint64_t> from(kRows, 1), to(kRows, 9);
  std::vector<uint16_t> keys(kRows * 4, 0x3F80);
  const std::vector<uint16_t> before = keys;
  cairn_key_rotation rotation;
  cairn_key_rotation_init(&rotation, sizeof rotation);
  rotation.from = from.data();
  rotation.to = to.data();
  rotation.from_count = rotation.to_count = kRows;
  rotation.rows = rotation.into = keys.data();
  rotation.rows_size = rotation.into_size = keys.size() * sizeof(keys[0]);
  size_t failed = 0;
  while (true) {
    cairn_code code = CAIRN_OK;
    {
      const FailingAt failing(failed + 1);
      code = cairn_rotate_keys(&group, &rotation, nullptr);
    }
    if (code == CAIRN_OK) break;
    ASSERT_EQ(code, CAIRN_OUT_OF_MEMORY);
    ASSERT_TRUE(keys == before);
    ASSERT_LT(++failed, 100u);
  }
  EXPECT_GT(failed, 3u);
  EXPECT_FALSE(keys == before);
}

TEST_F(CApiMemoryTest, ACompletionWithoutMemoryStays) {
  cairn_append_options options;
  cairn_append_options_init(&options, sizeof options);
  options.queue = queue_;
  delta_.kv = nullptr;
  delta_.span_count = 0;
  ASSERT_EQ(cairn_branch_append(branch_, &delta_, &options, nullptr, nullptr), CAIRN_OK);
  ASSERT_TRUE(cairn_completion_queue_wait(queue_, UINT64_MAX));
  cairn_completion ended;
  size_t failed = 0;
  for (uint64_t n = 1;; ++n) {
    size_t count = 0;
    {
      const FailingAt failing(FailPlan{.at = n, .of_this_thread = true});
      count = cairn_completion_queue_drain(queue_, &ended, 1);
    }
    if (count == 1) break;
    ASSERT_LT(++failed, 10u);
  }
  EXPECT_GE(failed, 2u);  // The handle; what C++ drains into.
  EXPECT_EQ(ended.code, CAIRN_OK);
  cairn_ticket_free(ended.ticket);
}

}  // namespace
}  // namespace cairn::memory
