// SPDX-License-Identifier: Apache-2.0
//
// Property: what is restored is, bit for bit, what was appended, for every layout on either side;
// and not a byte outside the described rows is touched.
// Method: pools with content that follows from the position; the whole target memory is compared
// with an image in which just the wanted rows were written. Hot, and cold after reopening.
#include <atomic>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class LayoutTest : public ::testing::TestWithParam<std::tuple<Layout, Layout>> {};

INSTANTIATE_TEST_SUITE_P(Pairs, LayoutTest,
                         ::testing::Combine(::testing::ValuesIn(AllLayouts()),
                                            ::testing::ValuesIn(AllLayouts())),
                         [](const auto& test) {
                           return LayoutName(std::get<0>(test.param)) + "To" +
                                  LayoutName(std::get<1>(test.param));
                         });

TEST_P(LayoutTest, BytesComeBackAndNothingElseIsTouched) {
  const auto [from, to] = GetParam();
  const ModelSpec model = HybridModel();
  const auto world = TestWorld::Make("memory");
  ASSERT_OK_ASSIGN(Store store, world->Open());
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  const std::vector<TokenId> tokens = Tokens(41);
  // Several deltas, some of one token, so that a restore crosses records.
  for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 11}, {11, 12}, {12, 29}, {29, 30}, {30, 41}}) {
    KvSet source(model, from, begin, end - begin);
    source.Write(kSeed, begin, end);
    ASSERT_OK(chat.AppendSync(
        MakeDelta(std::span(tokens).subspan(begin, end - begin), source.View(begin, end - begin))));
  }
  for (const bool cold : {false, true}) {
    if (cold) {
      ASSERT_OK(store.Close());
      ASSERT_OK_ASSIGN(store, world->Open());
      ASSERT_OK_ASSIGN(chat, store.FindBranch("chat"));
    }
    for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
             {0, 41}, {0, 1}, {40, 41}, {5, 5}, {3, 37}, {11, 12}, {12, 29}, {28, 31}}) {
      KvSet got(model, to, begin, end - begin);
      KvSet want(model, to, begin, end - begin);
      want.Write(kSeed, begin, end);
      std::vector<TokenId> ids(end - begin);
      RestoreRequest request;
      request.begin = begin;
      request.end = end;
      request.tokens = ids;
      request.into = got.View(begin, end - begin);
      ASSERT_OK_ASSIGN(const RestoreResult result, chat.Restore(request));
      EXPECT_EQ(std::vector<TokenId>(tokens.begin() + static_cast<ptrdiff_t>(begin),
                                     tokens.begin() + static_cast<ptrdiff_t>(end)),
                ids);
      EXPECT_TRUE(got == want) << "[" << begin << ", " << end << ")" << (cold ? " cold" : " hot");
      EXPECT_EQ(std::vector<uint64_t>(model.groups.size(), end), result.kv_ends);
      EXPECT_EQ(model.token_bytes() * (end - begin), result.bytes);
      EXPECT_EQ(cold ? 0 : result.bytes, result.hot_bytes);
    }
  }
}

class RestoreTest : public WorldTest {};
INSTANTIATE_TEST_SUITE_P(Worlds, RestoreTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

// Every token range x layer range of every group, in small steps.
TEST_P(RestoreTest, AnyRangeOfTokensAndLayers) {
  const ModelSpec model = HybridModel();
  Branch chat = Create(Register(model), "chat");
  for (uint64_t begin = 0; begin < 12; begin += 4) ASSERT_OK(AppendSome(chat, model, begin, 4));
  for (const bool cold : {false, true}) {
    if (cold) {
      Reopen();
      chat = Find("chat");
    }
    for (uint32_t group = 0; group < model.groups.size(); ++group) {
      for (uint32_t layer = 0; layer < model.groups[group].layers; ++layer) {
        for (uint32_t layers = 1; layer + layers <= model.groups[group].layers; ++layers) {
          for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
                   {0, 12}, {1, 3}, {3, 9}, {7, 12}, {4, 4}}) {
            KvPool got(model.groups[group], group, Layout::kNhd, begin, end - begin);
            KvPool want(model.groups[group], group, Layout::kNhd, begin, end - begin);
            want.Write([](uint64_t) { return kSeed; }, begin, end, layer, layers);
            const GroupView view = got.View(begin, end - begin, layer, layers);
            const KvView kv{.groups = std::span(&view, 1)};
            std::vector<std::atomic<uint32_t>> flags(layers);
            LayerProgress progress{.layers = flags};
            RestoreRequest request;
            request.begin = begin;
            request.end = end;
            request.into = &kv;
            ASSERT_OK(chat.Restore(request, &progress));
            ASSERT_EQ(want.memory(), got.memory())
                << "group " << group << " layers " << layer << "+" << layers << " [" << begin
                << ", " << end << ")";
            for (const auto& flag : flags) EXPECT_EQ(kLayerComplete, flag.load());
          }
        }
      }
    }
  }
}

// The view has room for fewer or more positions than the request: what both cover is restored.
TEST_P(RestoreTest, AViewOfOtherPositionsThanTheRequest) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 20));
  struct Case {
    uint64_t begin, end, room_first, room_count, want_begin, want_end;
  };
  for (const Case& c : {Case{0, 20, 4, 8, 4, 12}, Case{6, 9, 0, 20, 6, 9},
                        Case{0, 20, 15, 30, 15, 20}, Case{3, 5, 10, 4, 0, 0}}) {
    KvSet got(model, Layout::kContiguous, c.room_first, c.room_count);
    KvSet want(model, Layout::kContiguous, c.room_first, c.room_count);
    want.Write(kSeed, c.want_begin, c.want_end);
    RestoreRequest request;
    request.begin = c.begin;
    request.end = c.end;
    request.into = got.View(c.room_first, c.room_count);
    ASSERT_OK(chat.Restore(request));
    EXPECT_TRUE(got == want) << "[" << c.begin << ", " << c.end << ")";
  }
}

TEST_P(RestoreTest, RangesAndRoomAreChecked) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 10));
  RestoreRequest request;
  request.end = 11;
  EXPECT_FAILS(chat.Restore(request), StatusCode::kInvalidArgument, "branch of 10 tokens");
  request.begin = 5;
  request.end = 4;
  EXPECT_FAILS(chat.Restore(request), StatusCode::kInvalidArgument, "[5, 4)");
  std::vector<TokenId> ids(3);
  request = {};
  request.tokens = ids;
  EXPECT_FAILS(chat.Restore(request), StatusCode::kInvalidArgument, "room for 3 token ids, 10");
  EXPECT_FAILS(chat.ReadTokens(0, 11), StatusCode::kInvalidArgument);
  EXPECT_FAILS(chat.ReadTokens(3, 2), StatusCode::kInvalidArgument);
  EXPECT_EQ(std::vector<TokenId>(), *chat.ReadTokens(10, 10));
  KvPool wrong(HybridModel().groups[1], 1, Layout::kContiguous, 0, 10);
  const GroupView view = wrong.View(0, 10);
  const KvView kv{.groups = std::span(&view, 1)};
  request = {};
  request.into = &kv;
  EXPECT_FAILS(chat.Restore(request), StatusCode::kInvalidArgument, "group 1 does not exist");
  // A progress array that is too short would be written past its end.
  KvSet room(model, Layout::kContiguous, 0, 10);
  std::vector<std::atomic<uint32_t>> flags(1);
  LayerProgress progress{.layers = flags};
  request.into = room.View(0, 10);
  EXPECT_FAILS(chat.Restore(request, &progress), StatusCode::kInvalidArgument, "progress");
}

TEST_P(RestoreTest, AnEmptyBranch) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK_ASSIGN(const RestoreResult result, chat.Restore({}));
  EXPECT_EQ(0u, result.end);
  EXPECT_EQ(std::vector<TokenId>(), *chat.ReadTokens(0, 0));
  EXPECT_TRUE(chat.Path()->empty());
}

// More than the hot tail and than one read window, in many records over many segments.
TEST_P(RestoreTest, ManySegmentsColdAndHot) {
  const ModelSpec model = WideModel();
  Branch chat = Create(Register(model), "chat");
  constexpr uint64_t kCount = 400;  // 3.2 MiB.
  for (uint64_t begin = 0; begin < kCount; begin += 10) {
    ASSERT_OK(AppendSome(chat, model, begin, 10, kSeed, Durability::kMemory));
  }
  EXPECT_TRUE(HasKv(chat, model, 0, kCount));
  EXPECT_TRUE(HasKv(chat, model, kCount - 5, kCount)) << "the end is hot";
  EXPECT_GT(store_.Metrics().restored_hot_bytes, 0u);
  EXPECT_GT(store_.Metrics().log_segments, 10u);
  Reopen();
  chat = Find("chat");
  EXPECT_TRUE(HasKv(chat, model, 0, kCount));
  EXPECT_TRUE(HasKv(chat, model, 123, 321));
  EXPECT_EQ(0u, store_.Metrics().restored_hot_bytes);
  ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty());
  EXPECT_GT(report.bytes, model.token_bytes() * kCount);
}

}  // namespace
}  // namespace cairn::testing
