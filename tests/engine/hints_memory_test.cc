// SPDX-License-Identifier: Apache-2.0
//
// Property: hints have no more in memory than they may, also where they cannot be written: what
// waits to be flushed counts, and a flush that fails again does not leave more of it.
#include <memory>

#include "engine/find/constants.h"
#include "engine/find/hints.h"
#include "sim/disk.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class FullCallbacks final : public sstable::TableCallbacks {
 public:
  Result<uint64_t> NewTableNumber() override { return ++number_; }
  Status TakeSpace(uint64_t) override {
    return is_full ? Status(StatusCode::kNoSpace, "full") : Status::Ok();
  }
  void ReturnSpace(uint64_t) override {}
  bool is_full = true;

 private:
  uint64_t number_ = 0;
};

TEST(HintsMemoryTest, IsBoundedWhereNothingCanBeWritten) {
  constexpr uint64_t kMemory = 1 << 20;
  io::SimDisk disk;
  ASSERT_OK(disk.CreateDirectory("/tables"));
  FullCallbacks callbacks;
  sstable::TableCounters counters;
  sstable::BlockCache cache(1 << 20);
  const sstable::TableContext context{.files = &disk,
                                      .directory = "/tables",
                                      .store = {},
                                      .cache = &cache,
                                      .callbacks = &callbacks,
                                      .counters = &counters};
  ASSERT_OK_ASSIGN(const auto hints, engine::Hints::Open(context, {}, kMemory));
  uint64_t put = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 2000 && !hints->IsFull(); ++i) {
      const engine::HintEntry entry{.hash = ++put, .node = put, .position = 64};
      ASSERT_OK(hints->Put({&entry, 1}));
    }
    EXPECT_FAILS(hints->Flush(), StatusCode::kNoSpace, "full");
  }
  EXPECT_TRUE(hints->IsFull());
  EXPECT_LE(hints->memory_bytes(), kMemory + kMemory / 8);
  EXPECT_EQ(1u, hints->index().stats().frozen_memtables);
  callbacks.is_full = false;
  ASSERT_OK(hints->Flush());
  EXPECT_FALSE(hints->IsFull());
  uint64_t found = 0;
  ASSERT_OK(hints->ForEach([&](const engine::HintEntry&) { return ++found; }));
  EXPECT_EQ(put, found);
}

}  // namespace
}  // namespace cairn::testing
