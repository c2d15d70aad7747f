// SPDX-License-Identifier: Apache-2.0
//
// Property: a view can say that its memory is a device's, and is refused then, by the name of the
// field, in every call that takes one, before anything is applied or written to; a number of blocks
// bounds what a table names.
// Method: good views, with one field changed.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kCount = 6;

class DeviceViewTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_ = TestWorld::Make("memory");
    ASSERT_OK_ASSIGN(store_, world_->Open());
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(chat_, model_, 0, kCount));
    ASSERT_OK(chat_.AppendSync(MakeDelta(Tokens(kCount))));
  }
  // All calls with this view of positions [0, kCount), or [kCount, 2 * kCount) for what is new.
  void ExpectRefused(const KvView& view, const std::string& field) {
    const std::vector<TokenId> one = Tokens(1);
    Delta delta = MakeDelta(one, &view);
    const StatusCode bad = StatusCode::kInvalidArgument;
    EXPECT_FAILS(chat_.AppendSync(delta), bad, field);
    EXPECT_FAILS(chat_.Append(delta), bad, field);
    EXPECT_FAILS(chat_.Fill(view), bad, field);
    WriteBatch batch;
    batch.Append(chat_, delta);
    EXPECT_FAILS(store_.Write(batch), bad, field);
    RestoreRequest request;
    request.into = &view;
    EXPECT_FAILS(chat_.Restore(request), bad, field);
    ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request));
    EXPECT_FAILS(ticket.Wait(), bad, field);
    ASSERT_OK_ASSIGN(const BranchInfo info, chat_.Info());
    EXPECT_EQ(2 * kCount, info.length);
    EXPECT_EQ(kCount, info.kv_lengths[0]);
  }

  const ModelSpec model_ = TinyModel();
  std::unique_ptr<TestWorld> world_;
  Store store_;
  Branch chat_;
};

TEST_F(DeviceViewTest, MemoryThatIsNotTheHostsIsRefusedByName) {
  KvSet kv(model_, Layout::kNhd, 0, 2 * kCount);
  KvView view = *kv.View(kCount, kCount);
  ASSERT_OK(ValidateKvView(model_, view, KvUse::kRestore));
  view.memory = MemoryKind::kCuda;
  view.device = 1;
  ASSERT_NO_FATAL_FAILURE(ExpectRefused(view, "memory is cuda"));
  view.memory = MemoryKind{7};
  ASSERT_NO_FATAL_FAILURE(ExpectRefused(view, "memory is unknown"));
  view.memory = MemoryKind::kHost;
  ASSERT_NO_FATAL_FAILURE(ExpectRefused(view, "device is 1"));
  view.device = 0;
  GroupView group = view.groups[0];
  group.table.on_device = true;
  view.groups = {&group, 1};
  ASSERT_NO_FATAL_FAILURE(ExpectRefused(view, "table.on_device"));
  EXPECT_STREQ("host", MemoryKindName(MemoryKind::kHost));
}

// Layers for Put, and the states of the commit, lie in the host.
TEST_F(DeviceViewTest, ADraftRefusesItAsWell) {
  const ModelSpec model = EveryRuleModel();
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(id));
  KvSet kv(model, Layout::kContiguous, 0, 1);
  ASSERT_OK_ASSIGN(Draft draft, chat.BeginAppend(1));
  const KvView all = *kv.View(0, 1);
  KvView states;
  states.groups = all.groups.subspan(3, 1);
  states.memory = MemoryKind::kCuda;
  const std::vector<TokenId> one = Tokens(1);
  EXPECT_FAILS(draft.Commit(MakeDelta(one, &states), {}), StatusCode::kInvalidArgument,
               "in host memory");
  states.memory = MemoryKind::kHost;
  EXPECT_OK(draft.Commit(MakeDelta(one, &states), {}));
  GroupView group = kv.View(0, 1)->groups[0];
  group.table.on_device = true;
  ASSERT_OK_ASSIGN(draft, chat.BeginAppend(1));
  EXPECT_FAILS(draft.Put(0, group), StatusCode::kInvalidArgument, "table.on_device");
}

TEST_F(DeviceViewTest, ABlockBeyondTheirNumberIsRefused) {
  for (const Layout layout : AllLayouts()) {
    SCOPED_TRACE(LayoutName(layout));
    KvSet kv(model_, layout, 0, 9);
    KvView view = *kv.View(0, 9);
    GroupView group = view.groups[0];
    view.groups = {&group, 1};
    uint64_t needed = 1;  // Blocks: one beyond the last that is named.
    const BlockTable& table = group.table;
    const uint64_t per_block = group.tokens_per_block;
    const uint64_t named =
        table.kind == TableKind::kBlocks ? (8 - table.table_position) / per_block + 1 : 9;
    for (uint64_t i = 0; table.kind != TableKind::kNone && i < named; ++i) {
      const auto entry =
          static_cast<uint64_t>(table.is_64_bit ? static_cast<const int64_t*>(table.entries)[i]
                                                : static_cast<const int32_t*>(table.entries)[i]);
      const bool slots = table.kind == TableKind::kSlots;
      needed = std::max(needed, 1 + (!slots ? entry : per_block != 0 ? entry / per_block : 0));
    }
    if (table.kind == TableKind::kNone && per_block != 0) needed = (9 + per_block - 1) / per_block;
    for (const uint64_t blocks : {uint64_t{0}, needed, needed + 1}) {
      group.blocks = blocks;
      EXPECT_OK(ValidateKvView(model_, view, KvUse::kRestore)) << blocks;
    }
    if (needed == 1) continue;
    group.blocks = needed - 1;
    EXPECT_FAILS(ValidateKvView(model_, view, KvUse::kRestore), StatusCode::kInvalidArgument,
                 std::to_string(needed - 1) + " blocks");
  }
}

}  // namespace
}  // namespace cairn::testing
