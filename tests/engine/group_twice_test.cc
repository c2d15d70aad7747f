// SPDX-License-Identifier: Apache-2.0
//
// Property: a group may have two views in one KvView, sinks and the window behind them, whichever
// way an append goes and wherever a restore finds its KV. Method: a model with every rule; appends
// with two views of each group that may have them, by every way in; restores with two views and
// with one, which must agree bit for bit.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

// Groups of EveryRuleModel.
enum Group : uint32_t { kFull, kWindowed, kChunks, kState, kEncoder };

struct Rows {
  uint32_t group;
  uint64_t begin, count;
};

class GroupTwiceTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (!IsSkipped()) id_ = Register(model_);
  }
  static KvView ViewOf(KvSet* kv, const std::vector<Rows>& rows, std::vector<GroupView>* views) {
    views->clear();
    for (const auto& [group, begin, count] : rows) {
      views->push_back(kv->pool(group).View(begin, count));
    }
    return {.groups = *views};
  }
  // A prompt of n tokens, n % 8 == 0, where the group of chunks needs nothing: all of the first
  // group in two pieces, sinks and the newest of the second.
  static std::vector<Rows> Prompt(uint64_t n) {
    return {{kWindowed, 0, 2},         {kFull, 0, n / 3},     {kState, n - 1, 1},
            {kFull, n / 3, n - n / 3}, {kWindowed, n - 6, 6}, {kEncoder, 0, 1}};
  }
  Status Append(Branch& branch, KvSet* kv, uint64_t tokens, const std::vector<Rows>& rows,
                bool sync) {
    std::vector<GroupView> views;
    const KvView view = ViewOf(kv, rows, &views);
    const std::vector<TokenId> ids = Tokens(tokens);
    if (sync) return branch.AppendSync(MakeDelta(ids, &view)).status();
    auto ticket = WhileBusy(store_, [&] { return branch.Append(MakeDelta(ids, &view)); });
    return ticket.ok() ? ticket->Wait() : ticket.status();
  }
  // Into every layout, by two views of each group and by one.
  void Check(Branch& branch, uint64_t n) {
    KvSet want(model_, Layout::kNhd, 0, n);
    want.pool(kFull).Write(kSeed, 0, n);
    want.pool(kWindowed).Write(kSeed, 0, 2);
    want.pool(kWindowed).Write(kSeed, n - 6, n);
    want.pool(kState).Write(kSeed, n - 1, n);
    want.pool(kEncoder).Write(kSeed, 0, 1);
    for (const bool twice : {true, false}) {
      KvSet got(model_, Layout::kNhd, 0, n);
      std::vector<GroupView> views;
      const std::vector<Rows> one = {
          {kFull, 0, n}, {kWindowed, 0, n}, {kState, n - 1, 1}, {kEncoder, 0, 1}};
      const KvView view = ViewOf(&got, twice ? Prompt(n) : one, &views);
      RestoreRequest request;
      request.into = &view;
      std::vector<std::atomic<uint32_t>> words(2 * views.size());
      LayerProgress progress{words};
      ASSERT_OK_ASSIGN(const RestoreResult result, branch.Restore(request, &progress));
      ASSERT_TRUE(got == want) << twice;
      ASSERT_EQ(views.size(), result.kv_ends.size());
      for (size_t i = 0; i < views.size(); ++i) {
        const bool encoder = views[i].group == kEncoder;
        EXPECT_EQ(encoder ? 1 : views[i].position + views[i].count, result.kv_ends[i]) << i;
      }
      size_t layers = 0;
      for (const GroupView& each : views) layers += each.planes[0].layer_bases.size();
      for (size_t i = 0; i < layers; ++i) EXPECT_EQ(kLayerComplete, words[i].load()) << i;
    }
  }

  const ModelSpec model_ = EveryRuleModel();
  ModelId id_{};
};

INSTANTIATE_TEST_SUITE_P(Worlds, GroupTwiceTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(GroupTwiceTest, EveryWayInAndOut) {
  struct Way {
    const char* name;
    uint64_t tokens;
    bool sync;
  };
  for (const Way& way : {Way{"record", 40, true}, Way{"posted record", 40, false},
                         Way{"parts", 4000, true}, Way{"posted parts", 4000, false}}) {
    SCOPED_TRACE(way.name);
    Branch chat = Create(id_, way.name);
    KvSet kv(model_, Layout::kHnd, 0, way.tokens);
    kv.Write(kSeed, 0, way.tokens);
    ASSERT_OK(Append(chat, &kv, way.tokens, Prompt(way.tokens), way.sync));
    ASSERT_NO_FATAL_FAILURE(Check(chat, way.tokens));
    Reopen();
    chat = Find(way.name);
    ASSERT_NO_FATAL_FAILURE(Check(chat, way.tokens)) << "replayed";
    ASSERT_OK(store_.Compact());
    ASSERT_NO_FATAL_FAILURE(Check(chat, way.tokens)) << "sealed";
    ASSERT_NO_FATAL_FAILURE(Check(chat, way.tokens)) << "again, out of memory";
  }
}

TEST_P(GroupTwiceTest, InABatchAndFilledLater) {
  KvSet kv(model_, Layout::kContiguous, 0, 64);
  kv.Write(kSeed, 0, 64);
  const std::vector<TokenId> ids = Tokens(64);
  Branch in_batch = Create(id_, "batch"), filled = Create(id_, "filled"),
         partly = Create(id_, "partly");
  std::vector<GroupView> views;
  const KvView view = ViewOf(&kv, Prompt(64), &views);
  WriteBatch batch;
  batch.Append(in_batch, MakeDelta(ids, &view));
  ASSERT_OK(WhileBusy(store_, [&] { return store_.Write(batch); }));
  ASSERT_NO_FATAL_FAILURE(Check(in_batch, 64));
  ASSERT_OK(filled.AppendSync({.tokens = ids}));
  ASSERT_OK(filled.Fill(view));
  ASSERT_NO_FATAL_FAILURE(Check(filled, 64));
  // One group has all of its KV, another none.
  ASSERT_OK(Append(partly, &kv, 64, {{kFull, 0, 64}, {kState, 63, 1}}, true));
  ASSERT_OK(partly.Fill(view));
  ASSERT_NO_FATAL_FAILURE(Check(partly, 64));
}

TEST_P(GroupTwiceTest, WhatHasNoRoomBetweenIsLeftAlone) {
  Branch chat = Create(id_, "chat");
  KvSet kv(model_, Layout::kNhd, 0, 32);
  kv.Write(kSeed, 0, 32);
  ASSERT_OK(Append(chat, &kv, 32,
                   {{kFull, 0, 32}, {kState, 31, 1}, {kWindowed, 0, 32}, {kEncoder, 0, 1}}, true));
  KvSet got(model_, Layout::kNhd, 0, 32), want(model_, Layout::kNhd, 0, 32);
  std::vector<GroupView> views;
  const KvView view = ViewOf(&got, {{kFull, 3, 4}, {kFull, 20, 12}, {kState, 31, 1}}, &views);
  RestoreRequest request;
  request.into = &view;
  ASSERT_OK(chat.Restore(request));
  want.pool(kFull).Write(kSeed, 3, 7);
  want.pool(kFull).Write(kSeed, 20, 32);
  want.pool(kState).Write(kSeed, 31, 32);
  EXPECT_TRUE(got == want);
}

TEST_P(GroupTwiceTest, WhatIsWrongIsRefused) {
  Branch chat = Create(id_, "chat");
  KvSet kv(model_, Layout::kNhd, 0, 30);
  const auto refused = [&](const std::vector<Rows>& rows, const std::string& why) {
    EXPECT_FAILS(Append(chat, &kv, 30, rows, true), StatusCode::kInvalidArgument, why);
  };
  refused({{kFull, 0, 20}, {kFull, 19, 11}}, "group 0: its second view begins at position 19");
  refused({{kFull, 20, 10}, {kFull, 0, 20}}, "group 0: its second view begins at position 0");
  refused({{kWindowed, 0, 1}, {kWindowed, 3, 1}, {kWindowed, 5, 1}},
          "group 1 is given three times");
  refused({{kState, 3, 1}, {kState, 29, 1}}, "group 3 keeps states and is given twice");
  refused({{kFull, 0, 10}, {kFull, 12, 18}}, "kv of group 0 begins at position 12");
  EXPECT_EQ(0u, *chat.length());
  // Shedding looks at both: what goes on does not count as a gap.
  AppendOptions shed;
  shed.overload = Overload::kShedKv;
  std::vector<GroupView> views;
  kv.Write(kSeed, 0, 30);
  const KvView view =
      ViewOf(&kv, {{kFull, 0, 10}, {kFull, 10, 20}, {kWindowed, 0, 2}, {kWindowed, 24, 6}}, &views);
  const std::vector<TokenId> ids = Tokens(30);
  ASSERT_OK_ASSIGN(Ticket ticket, chat.Append(MakeDelta(ids, &view), shed));
  ASSERT_OK(ticket.Wait());
  EXPECT_FALSE(ticket.kv_shed());
}

}  // namespace
}  // namespace cairn::testing
