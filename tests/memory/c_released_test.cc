// SPDX-License-Identifier: Apache-2.0
//
// Property: a call of C that returns an error has borrowed nothing, so it does not report its
// arguments as released; one that returns CAIRN_OK reports it once. Method: each allocation of the
// call fails in turn, that of its ticket as well.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "cairn/c.h"
#include "tests/memory/failing_at.h"

namespace cairn::memory {
namespace {

void Count(void* context) { ++*static_cast<std::atomic<int>*>(context); }

class CReleasedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CAIRN_OK, cairn_store_open(":memory:", nullptr, &store_, nullptr));
    for (cairn_plane& plane : planes_) cairn_plane_init(&plane, sizeof(plane));
    cairn_layer_group group;
    cairn_layer_group_init(&group, sizeof(group));
    ASSERT_EQ(CAIRN_OK, cairn_layer_group_full_attention(&group, planes_, 2, 2, 4, CAIRN_DTYPE_BF16,
                                                         nullptr));
    cairn_model_spec spec;
    cairn_model_spec_init(&spec, sizeof(spec));
    spec.name = "m";
    spec.groups = &group;
    spec.group_count = 1;
    uint64_t model = 0;
    ASSERT_EQ(CAIRN_OK,
              cairn_store_register_model(store_, &spec, CAIRN_DURABILITY_MEMORY, &model, nullptr));
    ASSERT_EQ(CAIRN_OK, cairn_store_create_branch(store_, model, nullptr, &branch_, nullptr));
    cairn_delta_init(&delta_, sizeof(delta_));
    delta_.tokens = tokens_;
    delta_.token_count = 4;
    ASSERT_EQ(CAIRN_OK, cairn_branch_append_sync(branch_, &delta_, nullptr, nullptr, nullptr));
  }
  void TearDown() override {
    cairn_branch_free(branch_);
    cairn_store_free(store_);
  }

  // `call` at each of its allocations: how often it reported the release, and how it ended.
  template <typename Call>
  void ExpectToldOnceOrNever(const Call& call) {
    int refused = 0;
    AtEveryAllocation([&](uint64_t n) {
      const int before = told_;
      cairn_ticket* ticket = nullptr;
      cairn_code code = CAIRN_OK;
      {
        const FailingAt failing(n);
        code = call(&ticket);
      }
      EXPECT_EQ(ticket != nullptr, code == CAIRN_OK);
      if (code != CAIRN_OK) {
        EXPECT_EQ(CAIRN_OUT_OF_MEMORY, code);
        EXPECT_EQ(before, told_) << "of a call that failed";
        ++refused;
        return;
      }
      static_cast<void>(cairn_ticket_wait(ticket, UINT64_MAX, nullptr));
      cairn_ticket_free(ticket);
      for (int i = 0; i < 10'000 && told_ == before; ++i) usleep(1000);  // A moment later, maybe.
      EXPECT_EQ(before + 1, told_);
    });
    EXPECT_GT(refused, 1);
  }

  cairn_store* store_ = nullptr;
  cairn_branch* branch_ = nullptr;
  cairn_plane planes_[2];
  cairn_delta delta_;
  uint32_t tokens_[4] = {1, 2, 3, 4};
  std::atomic<int> told_{0};
};

TEST_F(CReleasedTest, Appends) {
  cairn_append_options options;
  cairn_append_options_init(&options, sizeof(options));
  options.released = Count;
  options.released_context = &told_;
  ExpectToldOnceOrNever([&](cairn_ticket** ticket) {
    return cairn_branch_append(branch_, &delta_, &options, ticket, nullptr);
  });
}

TEST_F(CReleasedTest, Restores) {
  uint32_t back[4];
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof(request));
  request.tokens = back;
  request.token_count = 4;
  request.end = 4;
  request.released = Count;
  request.released_context = &told_;
  ExpectToldOnceOrNever([&](cairn_ticket** ticket) {
    return cairn_branch_restore_async(branch_, &request, nullptr, ticket, nullptr);
  });
}

}  // namespace
}  // namespace cairn::memory
