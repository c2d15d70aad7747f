// SPDX-License-Identifier: Apache-2.0
//
// The bug: Verify looked into a table only for what the index and the seals of the log name, not
// for appends with a table of their own that the index does not know yet. Method: the table of such
// an append is replaced by a whole one, of the same number, that holds something else.
#include "engine/manifest/manifest.h"
#include "engine/tree/memory/op.h"
#include "sstable/snapshot_writer.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class OneTable final : public sstable::TableCallbacks {
 public:
  Result<uint64_t> NewTableNumber() override { return uint64_t{1}; }
  Status TakeSpace(uint64_t) override { return Status::Ok(); }
  void ReturnSpace(uint64_t) override {}
};

TEST(AnIngestedAppendWasNotVerified, AnotherTableInItsPlaceIsDamage) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("simulated");
  Options options = world->options();
  options.direct_ingest_bytes = 16 << 10;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  ASSERT_OK(AppendSome(chat, spec, 0, 8));
  ASSERT_OK_ASSIGN(const VerifyReport whole, store.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(whole.damages.empty());
  EXPECT_EQ(1u, whole.tables);

  io::FileSystem& files = *world->world().files;
  ASSERT_OK_ASSIGN(const engine::Manifest manifest, engine::ReadManifest(files, world->path()));
  sstable::TableContext context;
  context.files = &files;
  context.directory = world->path() + "/tables";
  context.store = manifest.store;
  OneTable host;
  context.callbacks = &host;
  sstable::TableCounters counters;
  context.counters = &counters;
  ASSERT_OK_ASSIGN(const auto writer,
                   sstable::SnapshotWriter::Create(context, sstable::SnapshotKind::kPages, 1));
  constexpr uint64_t kOtherNode = 77;
  const std::vector<std::byte> state = engine::EncodeMetadata({.content_type = "other", .bytes{}});
  writer->BeginFragment({.node = kOtherNode,
                         .lane = engine::kMetadataLane,
                         .begin = 0,
                         .count = 1,
                         .page_rows = 1,
                         .slices = 1});
  ASSERT_OK(writer->AddFrame(state, static_cast<uint32_t>(state.size())));
  ASSERT_OK(writer->Finish());
  for (const VerifyLevel level : {VerifyLevel::kIndex, VerifyLevel::kAll}) {
    ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(level));
    ASSERT_EQ(1u, report.damages.size());
    EXPECT_EQ("tables/0000000000000001.snapshot", report.damages[0].where);
    EXPECT_NE(std::string::npos, report.damages[0].what.find("it has no position 0"))
        << report.damages[0].what;
  }
}

}  // namespace
}  // namespace cairn::testing
