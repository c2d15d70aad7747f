// SPDX-License-Identifier: Apache-2.0
//
// The bug: at the opening, branches whose use is recorded for later than now are looked for in the
// order of eviction, and were until there was none. A record of that order which its branch does
// not have stayed where it was: the space thread never ended, nor Compact, nor Close. Now each
// record is come to once.
#include "tests/crash/hostile_files.h"
#include "tests/engine/engine_test.h"
#include "tests/golden/golden_story.h"

namespace cairn::testing {
namespace {

TEST(AUseThatStoodElsewhere, IsLookedForOnce) {
  const auto base = crash::HostileBase();
  crash::IndexRecords records = crash::ReadIndexRecords(*base);
  const std::string no_namespace("U\0", 2);
  const auto found = records.lower_bound(no_namespace);
  ASSERT_TRUE(found->first.starts_with(no_namespace));
  std::string key = found->first;
  constexpr size_t kUsedAt = 4, kTimeBytes = 8;  // Behind stage and priority.
  key.replace(kUsedAt, kTimeBytes, "\x7f" + std::string(kTimeBytes - 1, '\xff'));
  records[key] = "";
  const io::SimWorld machine = io::CrashWorld(*base, io::CrashChoice::KeepAll());
  crash::PutIndexRecords(*machine.disk, records);
  Options options = golden::GoldenOptions();
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open(crash::kHostileStore, options));
  ASSERT_OK(store.Compact());
  EXPECT_OK(store.FindBranch("chat"));
  EXPECT_OK(store.Close());
}

}  // namespace
}  // namespace cairn::testing
