// SPDX-License-Identifier: Apache-2.0
//
// Property: a shadow that finds no memory while it is made, or a session while it is opened, says
// so, gives nothing, and leaves the room on the device as it was; a session that finds none while
// it grows does so when it is called again. Method: each call at every one of its allocations.
#include "tests/memory/c_sparse_fixture.h"

namespace cairn::memory {
namespace {

class CShadowMemoryTest : public CSparseFixture,
                          public ::testing::WithParamInterface<cairn_shadow_keys> {
 protected:
  void SetUp() override {
    Start(8, 256);
    MakeArena();
    cairn_shadow_spec_init(&spec_, sizeof spec_);
    spec_.keys = GetParam();
    if (spec_.keys == CAIRN_SHADOW_KEYS_LOW_RANK) spec_.rank_energy = 0.9;
  }

  cairn_shadow_spec spec_;
};

INSTANTIATE_TEST_SUITE_P(Keys, CShadowMemoryTest,
                         ::testing::Values(CAIRN_SHADOW_KEYS_INT4, CAIRN_SHADOW_KEYS_LOW_RANK),
                         [](const auto& of) {
                           return of.param == CAIRN_SHADOW_KEYS_INT4 ? "Int4" : "LowRank";
                         });

TEST_P(CShadowMemoryTest, Shadows) {
  cairn_shadow_of of;
  cairn_shadow_of_init(&of, sizeof of);
  of.spec = &spec_;
  Try([&](cairn_error** error) { return cairn_build_shadow(branch_, &of, nullptr, error); },
      [&](cairn_code code) {
        const cairn_code found = cairn_find_shadow(branch_, &of, nullptr, nullptr);
        EXPECT_TRUE(code != CAIRN_OK || found == CAIRN_OK);
        if (found == CAIRN_OK) {
          EXPECT_EQ(CAIRN_OK, cairn_drop_shadow(branch_, &of, nullptr));
        }
      });
}

TEST_P(CShadowMemoryTest, Sessions) {
  cairn_shadow_options options;
  cairn_shadow_options_init(&options, sizeof options);
  options.spec = &spec_;
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

// From 130 tokens all keys have codes, or coefficients of vectors that go on; from 60, too few for
// a shadow, all comes from a table.
TEST_P(CShadowMemoryTest, SessionsThatGrow) {
  cairn_shadow_options options;
  cairn_shadow_options_init(&options, sizeof options);
  if (spec_.keys == CAIRN_SHADOW_KEYS_LOW_RANK) {
    spec_.rank = 4;
    spec_.rank_energy = 0;
  }
  options.spec = &spec_;
  options.query_heads = 1;
  options.append_tokens = 1;
  options.tokens_max = 256;
  for (const uint64_t end : {uint64_t{130}, uint64_t{60}}) {
    if (end == 60) {
      if (spec_.keys != CAIRN_SHADOW_KEYS_LOW_RANK) break;
      cairn_shadow_of of;
      cairn_shadow_of_init(&of, sizeof of);
      of.spec = &spec_;
      ASSERT_EQ(CAIRN_OK, cairn_build_shadow(branch_, &of, nullptr, nullptr));
    }
    options.end = end;
    cairn_shadow_session* session = nullptr;
    const auto open = [&] {
      cairn_shadow_session_free(session);
      session = nullptr;
      ASSERT_EQ(CAIRN_OK, cairn_shadow_session_open(arena_, branch_, &options, &session, nullptr));
    };
    open();
    Try([&](cairn_error** error) { return cairn_shadow_session_extend(session, 256, error); },
        [&](cairn_code code) {
          cairn_shadow_info info;
          cairn_shadow_info_init(&info, sizeof info);
          cairn_shadow_session_info(session, &info, nullptr);
          EXPECT_EQ(code == CAIRN_OK, info.covered == 192);
          if (code == CAIRN_OK) open();  // Else the next one goes on from there.
        },
        /*also_behind=*/false);
    cairn_shadow_session_free(session);
    EXPECT_EQ(0u, cairn_sparse_arena_device_bytes(arena_));
  }
}

}  // namespace
}  // namespace cairn::memory
