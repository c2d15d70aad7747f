// SPDX-License-Identifier: Apache-2.0
//
// The bug: a close cuts the log's last segment, so a place that is wrong, or was right before
// somebody cut the file, may lie behind its end. Reading there was kIoError, as if the machine had
// refused; it is damage, and names the file. Method: the segment of a store that is open is cut on
// the simulated disk, above and within the record that is read.
#include "sim/disk.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(APlaceBehindTheEndOfItsFile, IsDamage) {
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{8192}, uint64_t{12288}}) {
    io::SimWorld sim = io::MakeSimWorld(1);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim.world());
    {
      ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
      ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
      ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
      ASSERT_OK(chat.AppendSync({.tokens = Tokens(5000)}));
      ASSERT_OK(store.Close());
    }
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
    std::string first;
    for (const std::string& path : sim.disk->Files()) {
      if (path.starts_with("store/log/0") && (first.empty() || path < first)) first = path;
    }
    ASSERT_OK(sim.disk->TruncateRaw(first, bytes));
    EXPECT_FAILS(chat.ReadTokens(0, 5000), StatusCode::kCorruption, first);
  }
}

}  // namespace
}  // namespace cairn::testing
