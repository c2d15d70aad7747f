// SPDX-License-Identifier: Apache-2.0
//
// Property: a pin that finds no memory at any one allocation pins nothing: neither the log nor a
// table. (It once left the log's segments pinned for good: appends waited for ever.)
#include "engine/restore/pins.h"

#include <chrono>
#include <new>
#include <thread>

#include "tests/engine/engine_test.h"
#include "tests/memory/failing_at.h"

namespace cairn::memory {
namespace {

using engine::Pins;

TEST(PinsMemory, AtEveryAllocation) {
  for (const Pins::Of of : {Pins::Of::kBranch, Pins::Of::kParts}) {
    AtEveryAllocation([&](uint64_t n) {
      Pins pins([] { return uint64_t{7}; }, [] {});
      const auto other = pins.Take({Pins::Of::kBranch, 1}, {9}, {4});
      std::unique_ptr<Pins::Pin> pin;
      std::vector<uint64_t> tables = {3, 5};
      {
        const FailingAt failing(n);
        try {
          pin = std::make_unique<Pins::Pin>(&pins, Pins::Holder{of, 2}, 5, std::vector<uint64_t>(),
                                            std::move(tables));
        } catch (const std::bad_alloc&) {
        }
      }
      EXPECT_EQ(pin != nullptr, pins.HoldSegment(5));
      EXPECT_EQ(pin != nullptr, pins.HoldTable(3) && pins.HoldTable(5));
      EXPECT_EQ(pin != nullptr, pins.HolderOf(5).has_value());
      EXPECT_EQ(pin != nullptr && of == Pins::Of::kParts ? 5u : UINT64_MAX, pins.LowestOfParts());
      pin.reset();
      EXPECT_FALSE(pins.HoldSegment(8));
      EXPECT_TRUE(pins.HoldSegment(9) && pins.HoldTable(4));
    });
  }
}

// A restore of content of the log and of a table, each of whose allocations fails in turn: the log
// goes on, and Compact gives it back.
TEST(PinsMemory, ARestoreLeavesTheLogToBeGivenBack) {
  const ModelSpec model = testing::WideModel();
  AtEveryAllocation([&](uint64_t n) {
    Options options = testing::TinyOptions();
    options.log_bytes_max = 1 << 20;
    ASSERT_OK_ASSIGN(Store store, Store::Open(":memory:", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id));
    ASSERT_OK(testing::AppendSome(branch, model, 0, 8));
    ASSERT_OK(store.Compact());
    ASSERT_OK(testing::AppendSome(branch, model, 8, 8));
    testing::KvSet got(model, testing::Layout::kContiguous, 0, 16);
    RestoreRequest request;
    request.end = 16;
    request.into = got.View(0, 16);
    {
      const FailingAt failing(n);
      static_cast<void>(branch.Restore(request));
    }
    for (uint64_t length = 16; length < 16 + 25 * 8; length += 8) {
      // The log may have been refused memory for a segment meanwhile: it tries again.
      Status appended = testing::AppendSome(branch, model, length, 8).status();
      for (int i = 0; i < 200 && appended.code() == StatusCode::kOutOfMemory; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        appended = testing::AppendSome(branch, model, length, 8).status();
      }
      ASSERT_OK(appended);
    }
    ASSERT_OK(store.Compact());
    EXPECT_LE(store.Metrics().log_segments, 3u);
    EXPECT_EQ(0u, store.Metrics().log_pinned_ns);
    ASSERT_OK(store.Close());
  });
}

}  // namespace
}  // namespace cairn::memory
