// SPDX-License-Identifier: Apache-2.0
//
// The bug: how much of a table is needed was believed as the index says it. When that was less than
// what then died, a check failed. Now such a table stays, and is reported: by verification, and by
// the rewrite that meets it.
#include <cstring>

#include "tests/crash/hostile_files.h"
#include "tests/engine/engine_test.h"
#include "tests/golden/golden_story.h"

namespace cairn::testing {
namespace {

TEST(ATableThatSaidTooLittle, IsToldAndStays) {
  const auto base = crash::HostileBase();
  crash::IndexRecords records = crash::ReadIndexRecords(*base);
  size_t tables = 0;
  for (auto& [key, value] : records) {
    if (key[0] != 'T') continue;
    constexpr size_t kLiveBytes = 16;  // Behind those of the file and those sealed.
    const uint64_t one = 1;
    ASSERT_EQ(value.size(), kLiveBytes + sizeof(one));
    std::memcpy(value.data() + kLiveBytes, &one, sizeof(one));
    ++tables;
  }
  ASSERT_GT(tables, 0u);
  const io::SimWorld machine = io::CrashWorld(*base, io::CrashChoice::KeepAll());
  crash::PutIndexRecords(*machine.disk, records);
  Options options = golden::GoldenOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.read_only = true;
  {
    ASSERT_OK_ASSIGN(const Store store, Store::Open(crash::kHostileStore, options));
    ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kIndex));
    size_t told = 0;
    for (const auto& damage : report.damages) {
      if (damage.what.find("it says that 1 bytes of it are needed") != std::string::npos) ++told;
    }
    EXPECT_EQ(told, tables);
  }
  options.read_only = false;
  ASSERT_OK_ASSIGN(Store store, Store::Open(crash::kHostileStore, options));
  for (const char* name : {"chat", "what-if", "hybrid", "hybrid-fork", "int8", "tokens", "late"}) {
    auto branch = store.FindBranch(name);
    if (!branch.ok()) continue;
    EXPECT_OK(branch->Drop());
  }
  const Status compacted = store.Compact();
  EXPECT_TRUE(compacted.ok() || compacted.code() == StatusCode::kCorruption)
      << compacted.ToString();
  EXPECT_OK(store.Close());
  EXPECT_OK(Store::Open(crash::kHostileStore, options));
}

}  // namespace
}  // namespace cairn::testing
