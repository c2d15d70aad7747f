// SPDX-License-Identifier: Apache-2.0
//
// The bug: a copy took along an append that came while it was begun, and not the table that this
// append had put its KV into. Method: large appends to ever new branches beside one Checkpoint
// after the other; every copy opens, and everything in it is verified.
#include <thread>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(CheckpointMissedAnIngestedTable, EveryCopyIsWhole) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.direct_ingest_bytes = 64 << 10;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  constexpr uint64_t kEach = 16;
  std::jthread writer([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && !::testing::Test::HasFailure()) {
      auto branch = store.CreateBranch(model);
      EXPECT_OK(branch);
      EXPECT_OK(AppendSome(*branch, spec, 0, kEach, kSeed, Durability::kPower));
    }
  });
  uint64_t copied = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string path = "/copy" + std::to_string(i);
    EXPECT_OK(store.Checkpoint(path));
    Options read = options;
    read.world = std::make_shared<io::World>(world->world());
    read.read_only = true;
    read.create_if_missing = false;
    ASSERT_OK_ASSIGN(Store copy, Store::Open(path, read));
    ASSERT_OK_ASSIGN(const VerifyReport report, copy.Verify(VerifyLevel::kAll));
    for (const VerifyReport::Damage& damage : report.damages) {
      ADD_FAILURE() << path << ": " << damage.where << ": " << damage.what;
    }
    copied += copy.Metrics().branches;
    ASSERT_OK(copy.Close());
  }
  writer.request_stop();
  writer.join();
  EXPECT_GT(copied, 100u);
  EXPECT_GT(store.Metrics().ingests, 10u);
}

}  // namespace
}  // namespace cairn::testing
