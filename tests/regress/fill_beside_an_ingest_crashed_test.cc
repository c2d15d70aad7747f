// SPDX-License-Identifier: Apache-2.0
//
// The bug: Fill went on at a group's kv_length while a large append of the branch was under way. On
// a fork it made the node that the append's table was already written for, and the append crashed.
// Method: a Fill while that table is being written, by an allocator that calls it.

#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(FillBesideAnIngestCrashed, TheFillWaitsOrIsRefused) {
  ModelSpec spec = TinyModel();
  spec.groups.push_back(LayerGroup::Mla(1, 12, 4, Dtype::kBf16));
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.direct_ingest_bytes = 4096;
  options.allocator = CallingAllocator();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  KvSet kv(spec, Layout::kContiguous, 0, 310);
  kv.Write(7, 0, 310);
  ASSERT_OK(chat.AppendSync({.tokens = Tokens(10), .kv = kv.View({{0, 10}, {0, 8}})}));
  ASSERT_OK_ASSIGN(Branch fork, chat.ForkAt(10, {}));

  Status filled;
  on_allocation = [&] {
    const GroupView late = kv.pool(1).View(0, 10);
    filled = fork.Fill({.groups = std::span(&late, 1)}, {.timeout_ns = 1});
  };
  const GroupView first = kv.pool(0).View(10, 300);
  const KvView large{.groups = std::span(&first, 1)};
  ASSERT_OK(fork.AppendSync({.tokens = Tokens(300), .kv = &large}));
  EXPECT_EQ(nullptr, on_allocation);
  EXPECT_FAILS(filled, StatusCode::kDeadlineExceeded, "large append");
  EXPECT_EQ((std::vector<uint64_t>{310, 8}), fork.Info()->kv_lengths);
  const GroupView late = kv.pool(1).View(0, 10);
  ASSERT_OK(fork.Fill({.groups = std::span(&late, 1)}));
  EXPECT_EQ((std::vector<uint64_t>{310, 10}), fork.Info()->kv_lengths);
}

}  // namespace
}  // namespace cairn::testing
