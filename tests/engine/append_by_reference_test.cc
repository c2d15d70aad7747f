// SPDX-License-Identifier: Apache-2.0
//
// Property: an append whose content lies in a table that its record names is replayed, read and
// verified like any other. Earlier versions wrote such records for large appends; no call of this
// one does. Method: record and table are written by hand beside an empty branch.
#include "base/codec/fields.h"
#include "base/codec/token_block.h"
#include "engine/config/constants.h"
#include "engine/manifest/manifest.h"
#include "engine/tree/memory/op.h"
#include "sstable/snapshot_writer.h"
#include "tests/engine/engine_test.h"
#include "tests/support/append_to_log.h"
#include "tests/support/table_callbacks.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kNode = 50, kOtherNode = 77, kTable = 9;
constexpr uint32_t kCount = 40;

class AppendByReferenceTest : public ::testing::Test {
 protected:
  AppendByReferenceTest() { options_.world = std::make_shared<io::World>(machine_.world()); }
  // A table of ids of this node. Returns its size.
  Result<uint64_t> WriteTable(uint64_t node) {
    sstable::TableContext context;
    context.files = machine_.disk.get();
    context.directory = "/store/tables";
    context.store = manifest_.store;
    CountingTableCallbacks callbacks(kTable);
    context.callbacks = &callbacks;
    sstable::TableCounters counters;
    context.counters = &counters;
    CAIRN_ASSIGN_OR_RETURN(const auto writer, sstable::SnapshotWriter::Create(
                                                  context, sstable::SnapshotKind::kPages, kTable));
    writer->BeginFragment({.node = node,
                           .lane = engine::kTokenLane,
                           .begin = 0,
                           .count = kCount,
                           .page_rows = engine::kTokensPerPage,
                           .slices = 1});
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::byte> block, EncodeTokens(ids_));
    stored_bytes_ = block.size();
    CAIRN_RETURN_IF_ERROR(writer->AddFrame(block, kCount * sizeof(TokenId)));
    CAIRN_ASSIGN_OR_RETURN(const sstable::SnapshotInfo info, writer->Finish());
    return info.bytes;
  }
  io::SimWorld machine_ = io::MakeSimWorld(1);
  Options options_ = TinyOptions();
  engine::Manifest manifest_;
  const std::vector<TokenId> ids_ = Tokens(kCount);
  uint64_t stored_bytes_ = 0;
};

TEST_F(AppendByReferenceTest, IsReplayedReadAndVerified) {
  uint64_t branch = 0;
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
    ASSERT_OK_ASSIGN(const Branch chat, store.CreateBranch(model, {.name = "chat"}));
    branch = static_cast<uint64_t>(chat.id());
    ASSERT_OK(store.Close());
  }
  ASSERT_OK_ASSIGN(manifest_, engine::ReadManifest(*machine_.disk, "/store"));
  engine::Op op;
  op.kind = engine::OpKind::kAppend;
  op.flags = engine::kOpNewNode;
  op.branch = branch;
  op.node = kNode;
  ASSERT_OK_ASSIGN(const uint64_t bytes, WriteTable(kNode));
  op.table = {kTable, bytes};
  op.sealed = {{.node = kNode,
                .begin = 0,
                .lane = engine::kTokenLane,
                .count = kCount,
                .stored_bytes = stored_bytes_}};
  FieldWriter fields;
  engine::EncodeOp(op, &fields);
  ASSERT_OK(AppendToLog(machine_.world(), "/store", options_,
                        {.kind = static_cast<uint16_t>(op.kind),
                         .more = false,
                         .unit = 0,
                         .fields = fields.bytes(),
                         .strips = {}}));

  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options_));
  ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
  EXPECT_EQ(ids_, *chat.ReadTokens(0, kCount));
  ASSERT_OK_ASSIGN(const VerifyReport whole, store.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(whole.damages.empty()) << whole.damages[0].what;
  EXPECT_EQ(1u, whole.tables);
  // A whole table in its place, of the same number, that holds something else.
  ASSERT_OK(WriteTable(kOtherNode));
  for (const VerifyLevel level : {VerifyLevel::kIndex, VerifyLevel::kAll}) {
    ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(level));
    ASSERT_EQ(1u, report.damages.size());
    EXPECT_EQ("tables/0000000000000009.snapshot", report.damages[0].where);
    EXPECT_NE(std::string::npos, report.damages[0].what.find("it has no position 0"))
        << report.damages[0].what;
  }
  ASSERT_OK(chat.AppendSync(MakeDelta(Tokens(3))));
  EXPECT_EQ(kCount + 3, *chat.length());
}

}  // namespace
}  // namespace cairn::testing
