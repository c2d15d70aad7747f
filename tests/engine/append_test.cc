// SPDX-License-Identifier: Apache-2.0
//
// Property: an append is applied whole or refused in words; KV may lag behind the tokens, group by
// group, and is served exactly as far as all groups have it.
// Method: appends that are right, and every way to get one wrong; after each refusal the branch is
// as it was.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class AppendTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    model_ = HybridModel();
    chat_ = Create(Register(model_), "chat");
  }
  std::vector<uint64_t> Lengths() {
    auto info = chat_.Info();
    EXPECT_OK(info);
    std::vector<uint64_t> lengths = info->kv_lengths;
    lengths.insert(lengths.begin(), info->length);
    return lengths;
  }
  ModelSpec model_;
  Branch chat_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, AppendTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(AppendTest, KvLagsGroupByGroupAndCatchesUp) {
  const std::vector<TokenId> tokens = Tokens(30);
  const auto ids = [&](uint64_t begin, uint64_t end) {
    return std::span(tokens).subspan(begin, end - begin);
  };
  KvSet kv(model_, Layout::kNhd, 0, 30);
  kv.Write(kSeed, 0, 30);
  using L = std::vector<uint64_t>;
  ASSERT_OK(chat_.AppendSync(MakeDelta(ids(0, 10))));
  EXPECT_EQ((L{10, 0, 0, 0, 0}), Lengths());
  ASSERT_OK(chat_.AppendSync(MakeDelta(ids(10, 12), kv.View({{0, 5}, {0, 12}, {0, 0}, {0, 1}}))));
  EXPECT_EQ((L{12, 5, 12, 0, 1}), Lengths());
  const std::vector<GroupView> fill = {kv.pool(0).View(5, 7), kv.pool(2).View(0, 12),
                                       kv.pool(3).View(1, 3)};
  ASSERT_OK(chat_.Fill({.groups = fill}));
  EXPECT_EQ((L{12, 12, 12, 12, 4}), Lengths());
  for (const bool cold : {false, true}) {
    if (cold) {
      Reopen();
      chat_ = Find("chat");
    }
    KvSet got(model_, Layout::kHnd, 0, 12);
    KvSet want(model_, Layout::kHnd, 0, 12);
    want.Write(kSeed, 0, 4);
    RestoreRequest request;
    request.into = got.View(0, 12);
    ASSERT_OK_ASSIGN(const RestoreResult result, chat_.Restore(request));
    EXPECT_EQ((L{4, 4, 4, 4}), result.kv_ends) << "one position for all groups";
    EXPECT_TRUE(got == want) << "nothing above it is served";
    EXPECT_EQ(4u, *chat_.RestorableLength());
    KvSet none(model_, Layout::kHnd, 8, 4), untouched(model_, Layout::kHnd, 8, 4);
    request.begin = 8;
    request.into = none.View(8, 4);
    ASSERT_OK_ASSIGN(const RestoreResult beyond, chat_.Restore(request));
    EXPECT_EQ((L{4, 4, 4, 4}), beyond.kv_ends);
    EXPECT_TRUE(none == untouched);
  }
  ASSERT_OK(
      chat_.AppendSync(MakeDelta(ids(12, 30), kv.View({{12, 18}, {12, 18}, {12, 18}, {4, 26}}))));
  EXPECT_EQ((L{30, 30, 30, 30, 30}), Lengths());
  EXPECT_TRUE(HasKv(chat_, model_, 0, 30));
  EXPECT_EQ(tokens, *chat_.ReadTokens(0, 30));
}

TEST_P(AppendTest, WrongDeltasAreRefusedAndChangeNothing) {
  ASSERT_OK(AppendSome(chat_, model_, 0, 6));
  const std::vector<uint64_t> before = Lengths();
  KvSet kv(model_, Layout::kNhd, 0, 20);
  const std::vector<TokenId> tokens = Tokens(4);
  const auto refused = [&](const Delta& delta, const std::string& words) {
    EXPECT_FAILS(chat_.AppendSync(delta), StatusCode::kInvalidArgument, words);
    EXPECT_FAILS(chat_.Append(delta), StatusCode::kInvalidArgument, words);
    EXPECT_EQ(before, Lengths());
  };
  const auto refused_view = [&](auto change, const std::string& words) {
    GroupView view = kv.pool(0).View(6, 4);
    std::vector<PlaneView> planes(view.planes.begin(), view.planes.end());
    change(view, planes);
    view.planes = planes;
    const KvView one{.groups = std::span(&view, 1)};
    refused(MakeDelta(tokens, &one), words);
  };
  refused(MakeDelta({}), "at least one token");
  refused(MakeDelta({}, kv.View(6, 0)), "at least one token");
  refused(MakeDelta(tokens, kv.View(7, 3)), "begins at position 7");
  refused(MakeDelta(tokens, kv.View(5, 3)), "begins at position 5");
  refused(MakeDelta(tokens, kv.View(6, 5)), "beyond the 10 tokens");
  refused_view([](GroupView& v, auto&) { v.group = 4; }, "group 4 does not exist");
  refused_view([](GroupView&, auto& p) { p.pop_back(); }, "1 planes; the model has 2");
  refused_view([](GroupView& v, auto&) { v.layer_begin = 1; }, "layers [1, 3)");
  refused_view([](GroupView&, auto& p) { p[1].layer_bases = p[1].layer_bases.first(1); },
               "layer bases");
  refused_view([](GroupView&, auto& p) { p[0].layer_bases = p[1].layer_bases = {}; }, "no layer");
  refused_view(
      [](GroupView&, auto& p) {
        for (PlaneView& plane : p) plane.layer_bases = plane.layer_bases.first(1);
      },
      "needs all 2");
  std::vector<std::byte*> null_bases(2, nullptr);
  refused_view([&](GroupView&, auto& p) { p[1].layer_bases = null_bases; }, "is null");
  refused_view([](GroupView&, auto& p) { p[0].token_stride = 4; }, "token_stride");
  refused_view([](GroupView&, auto& p) { p[0].token_stride = 0; }, "token_stride");
  refused_view([](GroupView&, auto& p) { p[0].head_stride = 2; }, "head_stride");
  refused_view([](GroupView&, auto& p) { p[0].element_stride = 1; }, "element_stride");
  refused_view([](GroupView&, auto& p) { p[0].block_stride = 0; }, "block_stride");
  refused_view([](GroupView& v, auto&) { v.table.entries = nullptr; }, "table.entries is null");
  refused_view([](GroupView& v, auto&) { v.table.count = 1; }, "table has 1 entries");
  refused_view([](GroupView& v, auto&) { v.table.table_position = 7; }, "table begins");
  refused_view([](GroupView& v, auto&) { v.tokens_per_block = 0; }, "tokens_per_block");
  const std::vector<int32_t> negative(20, -1);
  refused_view([&](GroupView& v, auto&) { v.table.entries = negative.data(); }, "is -1");
  refused_view([](GroupView& v, auto&) { v.position = UINT64_MAX - 1; }, "overflows");
  const std::vector<GroupView> twice = {kv.pool(0).View(6, 4), kv.pool(0).View(6, 4)};
  const KvView twice_view{.groups = twice};
  refused(MakeDelta(tokens, &twice_view), "second view begins at position 6");
  const SamplerState sampler{.generator = GeneratorKind{99},
                             .philox_seed = 0,
                             .philox_offset = 0,
                             .blob_name = {},
                             .blob = {},
                             .last_logits = {}};
  Delta with_sampler = MakeDelta(tokens);
  with_sampler.sampler = &sampler;
  refused(with_sampler, "sampler.generator is none that exists");
  AppendOptions options;
  options.overload = Overload{9};
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens), options), StatusCode::kInvalidArgument,
               "overload is neither kFail nor kShedKv");
  EXPECT_EQ(before, Lengths());
}

TEST_P(AppendTest, FillIsChecked) {
  const std::vector<TokenId> tokens = Tokens(8);
  ASSERT_OK(chat_.AppendSync(MakeDelta(tokens)));
  KvSet kv(model_, Layout::kNhd, 0, 20);
  kv.Write(kSeed, 0, 20);
  EXPECT_FAILS(chat_.Fill({}), StatusCode::kInvalidArgument);
  EXPECT_FAILS(chat_.Fill(*kv.View(0, 0)), StatusCode::kInvalidArgument, "fills no position");
  EXPECT_FAILS(chat_.Fill(*kv.View(1, 3)), StatusCode::kInvalidArgument, "begins at position 1");
  EXPECT_FAILS(chat_.Fill(*kv.View(0, 9)), StatusCode::kInvalidArgument, "beyond the 8 tokens");
  AppendOptions options;
  options.expected_length = 7;
  EXPECT_FAILS(chat_.Fill(*kv.View(0, 8), options), StatusCode::kConflict, "8 tokens");
  ASSERT_OK(chat_.Fill(*kv.View(0, 5)));
  ASSERT_OK(chat_.Fill(*kv.View(5, 3)));
  KvSet other(model_, Layout::kNhd, 0, 8);
  EXPECT_OK(chat_.Fill(*other.View(0, 8))) << "written once";
  EXPECT_FAILS(chat_.Fill(*kv.View(5, 4)), StatusCode::kInvalidArgument, "beyond the 8 tokens");
  EXPECT_TRUE(HasKv(chat_, model_, 0, 8));
}

// Where some positions exist already, each record is written separately.
TEST_P(AppendTest, AFillOfManyRecordsWaitsForTheLog) {
  const ModelSpec wide = WideModel();
  Branch branch = Create(Register(wide), "wide");
  constexpr uint64_t kCount = 700;  // 5.5 MiB; the hot tail has one.
  ASSERT_OK(branch.AppendSync(MakeDelta(Tokens(kCount))));
  KvSet kv(wide, Layout::kContiguous, 0, kCount);
  kv.Write(kSeed, 0, kCount);
  ASSERT_OK(branch.Fill(*kv.View(0, 1)));
  ASSERT_OK(branch.Fill(*kv.View(0, kCount)));
  EXPECT_TRUE(HasKv(branch, wide, 0, kCount));
}

TEST_P(AppendTest, AFillBeyondWhatItsNamespaceMayHoldIsRefused) {
  ASSERT_OK(store_.SetNamespace("small", {.max_bytes = 16 << 10, .evict = Evict::kNever}));
  const ModelSpec wide = WideModel();
  auto branch = store_.CreateBranch(Register(wide), {.name = "wide", .ns = "small"});
  ASSERT_OK(branch);
  ASSERT_OK(branch->AppendSync(MakeDelta(Tokens(8))));
  KvSet kv(wide, Layout::kContiguous, 0, 8);
  kv.Write(kSeed, 0, 8);
  ASSERT_OK(branch->Fill(*kv.View(0, 1)));
  EXPECT_FAILS(branch->Fill(*kv.View(0, 8)), StatusCode::kNoSpace, "small");
}

TEST_P(AppendTest, ExpectedLengthSettlesRetries) {
  const std::vector<TokenId> tokens = Tokens(3);
  AppendOptions options;
  options.expected_length = 0;
  ASSERT_OK(chat_.AppendSync(MakeDelta(tokens), options));
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens), options), StatusCode::kConflict, "3 tokens");
  EXPECT_FAILS(chat_.Append(MakeDelta(tokens), options), StatusCode::kConflict, "3 tokens");
  options.expected_length = 4;
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens), options), StatusCode::kConflict, "3 tokens");
  EXPECT_EQ(3u, *chat_.length());
}

TEST_P(AppendTest, TokensAlone) {
  Branch branch = Create(Register(TokenModel()), "tokens");
  const std::vector<TokenId> tokens = Tokens(3000);
  for (size_t i = 0; i < tokens.size(); i += 100) {
    ASSERT_OK(branch.AppendSync(MakeDelta(std::span(tokens).subspan(i, 100))));
  }
  EXPECT_EQ(tokens, *branch.ReadTokens(0, 3000));
  Reopen();
  branch = Find("tokens");
  EXPECT_EQ(tokens, *branch.ReadTokens(0, 3000));
  EXPECT_EQ(std::vector<TokenId>(tokens.begin() + 777, tokens.begin() + 1234),
            *branch.ReadTokens(777, 1234));
}

// length() is applied, durable_length() is what survives power loss.
TEST_P(AppendTest, DurableLengthFollowsTheSync) {
  ASSERT_OK(AppendSome(chat_, model_, 0, 4, kSeed, Durability::kMemory));
  EXPECT_EQ(4u, *chat_.length());
  EXPECT_LE(*chat_.durable_length(), 4u);
  ASSERT_OK(AppendSome(chat_, model_, 4, 4, kSeed, Durability::kPower));
  EXPECT_EQ(8u, *chat_.durable_length());
  ASSERT_OK(AppendSome(chat_, model_, 8, 4, kSeed, Durability::kMemory));
  EXPECT_EQ(12u, *chat_.length());
  ASSERT_OK(store_.Flush());
  EXPECT_EQ(12u, *chat_.durable_length());
  ASSERT_OK(chat_.Rewind(5, Durability::kPower));
  EXPECT_EQ(5u, *chat_.durable_length());
  Reopen();
  chat_ = Find("chat");
  EXPECT_EQ(5u, *chat_.durable_length());
}

TEST_P(AppendTest, EmptyHandles) {
  Branch nothing;
  EXPECT_FALSE(nothing.valid());
  EXPECT_FAILS(nothing.length(), StatusCode::kInvalidState);
  EXPECT_FAILS(nothing.AppendSync({}), StatusCode::kInvalidState);
  Store no_store;
  EXPECT_FAILS(no_store.Flush(), StatusCode::kInvalidState);
  EXPECT_TRUE(no_store.Models().empty());
  EXPECT_OK(no_store.Close());
  Ticket no_ticket;
  EXPECT_FAILS(no_ticket.Wait(), StatusCode::kInvalidState);
  EXPECT_FAILS(no_ticket.Cancel(), StatusCode::kInvalidState);
  Draft no_draft;
  EXPECT_FAILS(no_draft.Put(0, {}), StatusCode::kInvalidState);
  EXPECT_FAILS(no_draft.Commit({}, {}), StatusCode::kInvalidState);
}

TEST_P(AppendTest, ADroppedBranchIsNotFound) {
  Branch other = Find("chat");
  ASSERT_OK(other.Drop());
  const std::vector<TokenId> tokens = Tokens(1);
  KvSet kv(model_, Layout::kNhd, 0, 1);
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens)), StatusCode::kNotFound);
  EXPECT_FAILS(chat_.Append(MakeDelta(tokens)), StatusCode::kNotFound);
  EXPECT_FAILS(chat_.BeginAppend(1), StatusCode::kNotFound);
  EXPECT_FAILS(chat_.Fill(*kv.View(0, 1)), StatusCode::kNotFound);
  EXPECT_FAILS(chat_.ForkAt(0, {}), StatusCode::kNotFound);
  EXPECT_FAILS(chat_.Rewind(0), StatusCode::kNotFound);
  EXPECT_FAILS(chat_.Rename("x"), StatusCode::kNotFound);
  EXPECT_FAILS(chat_.Drop(), StatusCode::kNotFound);
  EXPECT_FAILS(chat_.Info(), StatusCode::kNotFound);
  EXPECT_FAILS(chat_.Restore({}), StatusCode::kNotFound);
  EXPECT_FAILS(chat_.SamplerAt(0), StatusCode::kNotFound);
  EXPECT_FAILS(store_.GetBranch(chat_.id()), StatusCode::kNotFound);
}

}  // namespace
}  // namespace cairn::testing
