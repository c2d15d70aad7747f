// SPDX-License-Identifier: Apache-2.0
//
// Compact met damage in the log. Before its caller looked, a background round with little to do had
// ended well, and Compact reported that all was done. The result of a compaction stays until the
// next one.
#include <gtest/gtest.h>

#include <memory>

#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(ACompactionThatFailed, IsNotToldAsDone) {
  for (uint64_t seed = 1; seed <= 20 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const io::SimWorld machine = io::MakeSimWorld(seed);
    Options options = TinyOptions();
    // Packed when that is asked for.
    options.log_bytes_max = uint64_t{1} << 30;
    options.max_delta_chain = 0;
    options.snapshot_interval_tokens = 0;
    options.world = std::make_shared<io::World>(machine.world());
    const ModelSpec model = TinyModel();
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    const std::string segment = "store/log/0000000000000003.log";
    // The file exists before it is used.
    const auto is_used = [&] {
      const auto bytes = machine.disk->ReadRaw(segment);
      return bytes.ok() && bytes->at(4096 + 2048) != std::byte{0};
    };
    for (uint64_t length = 0; !is_used() && length < 100'000; length += 400) {
      ASSERT_OK(AppendSome(chat, model, length, 400, kSeed, Durability::kPower));
    }
    ASSERT_OK(store.Close());
    ASSERT_OK(machine.disk->FlipBit(segment, 4096 + 2048, 3));  // Payload.

    ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
    ASSERT_EQ(report.damages.size(), 1u);
    // Seals before it comes to the damage are logged, in a new segment: a reason for another round.
    EXPECT_FAILS(store.Compact(), StatusCode::kCorruption);
  }
}

}  // namespace
}  // namespace cairn::testing
