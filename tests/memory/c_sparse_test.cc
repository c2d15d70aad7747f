// SPDX-License-Identifier: Apache-2.0
//
// Property: a sparse arena or session that finds no memory when it is made says so, gives nothing,
// and leaves the room on the device as it was. Method: each call at every one of its allocations.
#include "tests/memory/c_sparse_fixture.h"

namespace cairn::memory {
namespace {

class CSparseMemoryTest : public CSparseFixture {
 protected:
  void SetUp() override {
    Start(4, 64);
    cairn_sparse_options_init(&options_, sizeof options_);
    options_.slots = 8;
    options_.wanted_max = 4;
    options_.page_tokens = 8;
  }
  void TearDown() override {
    cairn_sparse_session_free(session_);
    CSparseFixture::TearDown();
  }

  cairn_sparse_options options_;
  cairn_sparse_session* session_ = nullptr;
};

TEST_F(CSparseMemoryTest, ArenasAndSessions) {
  Try(
      [&](cairn_error** error) {
        return cairn_sparse_arena_make(store_, gpu_, &arena_options_, &arena_, error);
      },
      [&](cairn_code code) {
        EXPECT_EQ(arena_ != nullptr, code == CAIRN_OK);
        cairn_sparse_arena_free(arena_);
        arena_ = nullptr;
      });
  MakeArena();
  Try(
      [&](cairn_error** error) {
        return cairn_sparse_arena_open(arena_, branch_, &options_, &session_, error);
      },
      [&](cairn_code code) {
        EXPECT_EQ(session_ != nullptr, code == CAIRN_OK);
        cairn_sparse_session_free(session_);
        session_ = nullptr;
        EXPECT_EQ(0u, cairn_sparse_arena_device_bytes(arena_));
      });
}

// One that could not be posted was waited for when the session ended.
TEST_F(CSparseMemoryTest, Prefetches) {
  MakeArena();
  const uint32_t pieces[] = {0, 3, 7};
  cairn_sparse_wanted wanted;
  cairn_sparse_wanted_init(&wanted, sizeof wanted);
  wanted.pieces = pieces;
  wanted.count = wanted.stride = 3;
  const auto open = [&] {
    ASSERT_EQ(CAIRN_OK, cairn_sparse_arena_open(arena_, branch_, &options_, &session_, nullptr));
  };
  open();
  Try([&](cairn_error** error) { return cairn_sparse_session_prefetch(session_, &wanted, error); },
      [&](cairn_code) {
        cairn_sparse_session_free(session_);
        session_ = nullptr;
        open();
      });
}

}  // namespace
}  // namespace cairn::memory
