// SPDX-License-Identifier: Apache-2.0
//
// The bug: the log's newest segment was cut below the place from which the next opening was to read
// it. A salvage opened the store and went on behind that place, beyond the end of the file; the
// next opening found a file that ends before what the next segment names, and refused it. A second
// salvage then cut off what had been acknowledged since the first. Method: that segment is cut at
// every block, salvaged, written to and opened again.
#include "base/io/path.h"
#include "engine/manifest/manifest.h"
#include "sim/disk.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"
#include "wal/segment_files.h"

namespace cairn::testing {
namespace {

TEST(ASalvageMadeAStore, ThatOpensAgain) {
  uint64_t cut_below = 0;
  for (uint64_t cut_blocks = 3;; ++cut_blocks) {
    io::SimWorld machine = io::MakeSimWorld(1);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(machine.world());
    options.replay_records_max = 16;
    const auto append = [&](const char* name, int times) {
      ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
      ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
      auto branch = store.FindBranch(name);
      if (!branch.ok()) branch = store.CreateBranch(model, {.name = name});
      ASSERT_OK(branch);
      for (int i = 0; i < times; ++i) {
        ASSERT_OK(branch->AppendSync({.tokens = Tokens(10)}, {.durability = Durability::kPower}));
      }
      machine.scheduler->Sleep(1'000'000'000);  // The index is written meanwhile.
      ASSERT_OK(store.Close());
    };
    ASSERT_NO_FATAL_FAILURE(append("one", 30));
    ASSERT_OK_ASSIGN(const engine::Manifest manifest,
                     engine::ReadManifest(*options.world->files, "/store"));
    const uint64_t cut_at = cut_blocks * io::kBlockBytes;
    const std::string segment = wal::SegmentPath("/store/log", manifest.replay_from.segment);
    ASSERT_OK_ASSIGN(const io::FileInfo info, options.world->files->Info(segment));
    if (cut_at >= info.bytes) break;
    cut_below += cut_at < manifest.replay_from.offset ? 1 : 0;
    ASSERT_OK(machine.disk->TruncateRaw(segment, cut_at));
    options.create_if_missing = false;
    options.recovery = Recovery::kSetAside;
    ASSERT_NO_FATAL_FAILURE(append("two", 5)) << "cut at " << cut_at;
    options.recovery = Recovery::kRefuse;
    ASSERT_NO_FATAL_FAILURE(append("three", 1)) << "cut at " << cut_at;
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const Branch two, store.FindBranch("two"));
    EXPECT_EQ(50u, *two.length()) << "cut at " << cut_at;
    EXPECT_OK(two.ReadTokens(0, 50));
  }
  EXPECT_GE(cut_below, 2u);
}

}  // namespace
}  // namespace cairn::testing
