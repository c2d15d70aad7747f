// SPDX-License-Identifier: Apache-2.0
//
// The bug: a namespace whose sums in the index were too small seemed empty when some of its
// branches were dropped, and was freed while others used it. Now one whose sums were read stays in
// memory.
#include <cstring>

#include "tests/crash/hostile_files.h"
#include "tests/engine/engine_test.h"
#include "tests/golden/golden_story.h"

namespace cairn::testing {
namespace {

TEST(ANamespaceThatSeemedEmpty, IsKept) {
  const auto base = crash::HostileBase();
  crash::IndexRecords records = crash::ReadIndexRecords(*base);
  const auto root = records.find("P");
  ASSERT_NE(root, records.end());
  constexpr size_t kPolicyBytes = 24;
  const uint64_t none[2] = {0, 0};  // Branches and nodes.
  ASSERT_GE(root->second.size(), kPolicyBytes + sizeof(none));
  std::memcpy(root->second.data() + kPolicyBytes, none, sizeof(none));
  const io::SimWorld machine = io::CrashWorld(*base, io::CrashChoice::KeepAll());
  crash::PutIndexRecords(*machine.disk, records);
  Options options = golden::GoldenOptions();
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open(crash::kHostileStore, options));
  ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
  ASSERT_OK(store.Compact());  // With a tree flush, at which the empty ones go.
  EXPECT_OK(store.FindBranch("hybrid"));
  const std::vector<TokenId> ids = {1, 2, 3};
  EXPECT_OK(chat.AppendSync({.tokens = ids}));
  EXPECT_OK(store.Compact());
  EXPECT_OK(store.FindBranch("int8"));
  EXPECT_OK(store.Close());
}

}  // namespace
}  // namespace cairn::testing
