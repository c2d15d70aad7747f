// SPDX-License-Identifier: Apache-2.0
//
// The bug: a store opened for reading only started the log's segment pool, which renamed and wrote
// segments beside a living writer, and failed on a read-only file system.
// Method: a reader is opened while a writer lives; the directory's files and names stay as they
// are, and the simulated disk sees no operation that changes anything.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(ReadOnlyOpenPreparedSegments, ChangesNothing) {
  io::SimWorld sim = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(sim.world());
  ASSERT_OK_ASSIGN(Store writer, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId model, writer.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, writer.CreateBranch(model, {.name = "chat"}));
  const std::vector<TokenId> tokens = Tokens(10);
  ASSERT_OK(chat.AppendSync({.tokens = tokens}, {.durability = Durability::kPower}));
  sim.scheduler->Sleep(1'000'000'000);  // The writer's pool has come to rest.

  const std::vector<std::string> files = sim.disk->Files();
  const uint64_t operations = sim.disk->operations();
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(Store reader, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(Branch seen, reader.FindBranch("chat"));
  EXPECT_EQ(tokens, *seen.ReadTokens(0, 10));
  ASSERT_OK(reader.Close());
  EXPECT_EQ(operations, sim.disk->operations());
  EXPECT_EQ(files, sim.disk->Files());

  ASSERT_OK(chat.AppendSync({.tokens = tokens}, {.durability = Durability::kPower}));
  ASSERT_OK(writer.Close());
  options.read_only = false;
  ASSERT_OK_ASSIGN(writer, Store::Open("/store", options));
  EXPECT_EQ(20u, *writer.FindBranch("chat")->length());
}

}  // namespace
}  // namespace cairn::testing
