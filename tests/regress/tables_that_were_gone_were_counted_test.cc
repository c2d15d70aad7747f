// SPDX-License-Identifier: Apache-2.0
//
// The bug: a store that is read only reported snapshot tables that its writer had deleted since the
// index was flushed. Method: tables that die one after the other; then the files are counted.
#include <algorithm>

#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(TablesThatWereGone, AreNotCounted) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("memory");
  const auto files = [&world] {
    const auto names = world->world().files->List(world->path() + "/tables");
    EXPECT_OK(names);
    return std::count_if(names->begin(), names->end(),
                         [](const std::string& name) { return name.ends_with(".snapshot"); });
  };
  ASSERT_OK_ASSIGN(Store store, world->Open());
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  for (int round = 0; round < 6; ++round) {
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
    KvSet kv(spec, Layout::kContiguous, 0, 20);
    ASSERT_OK(chat.AppendSync({.tokens = Tokens(20), .kv = kv.View(0, 20)}));
    ASSERT_OK(store.Compact());
    if (round == 0) continue;
    ASSERT_OK(chat.Drop());
    while (files() > 1) world->world().scheduler->Sleep(1'000'000);
  }
  ASSERT_OK(store.Close());
  Options options = world->options();
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(const Store reader, world->Open(options));
  EXPECT_EQ(1U, files());
  EXPECT_EQ(1U, reader.Metrics().tables);
}

}  // namespace
}  // namespace cairn::testing
