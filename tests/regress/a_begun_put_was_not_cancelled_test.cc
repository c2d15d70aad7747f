// SPDX-License-Identifier: Apache-2.0
//
// The bug: a put that had begun never asked whether it was still wanted, so Cancel waited until all
// of it was written, however large it was.
// Method: on a simulated machine, cancelled when it writes for the first time.
#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

class ABegunPut : public ::testing::TestWithParam<size_t> {};

INSTANTIATE_TEST_SUITE_P(Sizes, ABegunPut, ::testing::Values(300'000, 3'000'000));

TEST_P(ABegunPut, IsCancelledAndLeavesNothing) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  Objects space(store);
  ASSERT_OK_ASSIGN(const ObjectClassId id,
                   space.RegisterClass({.name = "pages", .page_bytes = 512}));
  const std::vector<std::byte> value = Content(1, GetParam());
  const ObjectPut put{.key = "a", .value = value};
  std::vector<Ticket> tickets;
  Status cancelled;
  std::unique_ptr<io::Thread> thread;
  machine.disk->set_on_operation([&](const io::SimOperation&) {
    if (tickets.empty() || thread != nullptr) return;
    thread = machine.scheduler->StartThread("cancels", [&] { cancelled = tickets[0].Cancel(); });
    machine.scheduler->Sleep(1'000'000);
  });
  ASSERT_OK_ASSIGN(tickets, space.PutBatchAsync({&put, 1}, {.object_class = id}));
  static_cast<void>(tickets[0].Wait());
  machine.disk->set_on_operation(nullptr);
  ASSERT_NE(nullptr, thread) << "nothing was written";
  thread.reset();  // Joins.
  EXPECT_FAILS(cancelled, StatusCode::kCancelled);
  const std::string_view key = "a";
  EXPECT_EQ(0u, space.Exists({&key, 1})->count);
  EXPECT_TRUE(space.Usage()->empty()) << "something is left of it";
  ASSERT_OK_ASSIGN(const std::vector<PutResult> again,
                   space.PutBatch({&put, 1}, {.object_class = id}));
  EXPECT_OK(again[0].status);
  EXPECT_TRUE(again[0].stored);
  EXPECT_EQ(1u, store.Metrics().objects_not_put);
  EXPECT_EQ(1u, store.Metrics().objects_put);
}

}  // namespace
}  // namespace cairn::testing
