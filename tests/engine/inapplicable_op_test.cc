// SPDX-License-Identifier: Apache-2.0
//
// Property: a record of the log that is intact, and whose operation does not fit what was before
// it, is refused by file and offset when the store is opened, and changes nothing. Method: records
// that no store wrote, put behind a store's own by its own log.
#include "engine/manifest/manifest.h"
#include "engine/tree/memory/op.h"
#include "tests/engine/engine_test.h"
#include "tests/support/log_fixture.h"

namespace cairn::testing {
namespace {

TEST(InapplicableOp, IsToldWhereItIs) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec model = TinyModel();
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(chat, model, 0, 10));
  }
  ASSERT_OK_ASSIGN(const engine::Manifest manifest, engine::ReadManifest(*machine.disk, "store"));
  engine::Op drop, append, rewind, name, fork, join;
  drop.kind = engine::OpKind::kDrop;
  append.kind = engine::OpKind::kAppend;
  rewind.kind = engine::OpKind::kRewind;
  name.kind = engine::OpKind::kRename;
  fork.kind = engine::OpKind::kFork;
  join.kind = engine::OpKind::kJoin;
  drop.branch = append.branch = rewind.branch = name.branch = fork.other = join.node = 999;
  fork.branch = 1000;
  engine::Op strip = append;
  strip.lanes.push_back({.lane = 0, .strip = 7, .begin = 0, .count = 1});
  for (const engine::Op& op : {drop, append, rewind, name, fork, join, strip}) {
    SCOPED_TRACE("kind " + std::to_string(static_cast<int>(op.kind)));
    const io::SimWorld one{std::make_shared<io::SimScheduler>(5), machine.disk->KillClone()};
    {
      wal::LogFixture fixture(one.world());
      fixture.options.directory = "store/log";
      fixture.options.store = manifest.store;
      fixture.options.segment_bytes = manifest.segment_bytes;
      fixture.Reopen();
      FieldWriter fields;
      EncodeOp(op, &fields);
      wal::TestRecord record;
      record.kind = static_cast<uint16_t>(op.kind);
      record.fields.assign(fields.bytes().begin(), fields.bytes().end());
      ASSERT_OK_ASSIGN(const uint64_t sequence, fixture.TryAppend(record));
      ASSERT_OK(fixture.log->Wait(sequence, /*durable=*/true, io::kNoDeadline));
    }
    options.world = std::make_shared<io::World>(one.world());
    EXPECT_FAILS(Store::Open("/store", options), StatusCode::kCorruption, ".log: offset ");
  }
  options.world = std::make_shared<io::World>(machine.world());
  EXPECT_OK(Store::Open("/store", options));
}

}  // namespace
}  // namespace cairn::testing
