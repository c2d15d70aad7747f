// SPDX-License-Identifier: Apache-2.0
//
// Property: a copy of KV between views puts each row that both models hold in its place, and
// touches nothing else; what cannot be copied is named. Method: all pairs of layouts, with content
// that says where each row belongs; models cut over ranks of every degree, compared row by row.
#include "cairn/copy_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cairn/kv_buffer.h"
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kSeed = 11;

// Without a table blocks begin where the view does.
uint64_t BeginOf(Layout layout, uint64_t first, uint64_t begin) {
  return layout == Layout::kBlocksNoTable ? first + (begin - first) / 4 * 4 : begin;
}

TEST(CopyKvTest, FromEveryLayoutToEveryLayout) {
  const ModelSpec model = HybridModel();
  for (const Layout from_layout : AllLayouts()) {
    KvSet from(model, from_layout, 3, 30);
    from.Write(kSeed, 3, 33);
    for (const Layout to_layout : AllLayouts()) {
      for (const auto& [wanted, count] :
           {std::pair(3U, 30U), std::pair(6U, 1U), std::pair(9U, 17U)}) {
        const uint64_t begin = BeginOf(from_layout, 3, wanted);
        KvSet to(model, to_layout, 1, 40), want(model, to_layout, 1, 40);
        want.Write(kSeed, begin, begin + count);
        ASSERT_OK_ASSIGN(const uint64_t bytes,
                         CopyKv(model, *from.View(begin, count), *to.View(1, 40)));
        EXPECT_EQ(bytes, model.token_bytes() * count);
        EXPECT_TRUE(to == want) << LayoutName(from_layout) << " to " << LayoutName(to_layout);
      }
    }
  }
}

// More than the caches hold goes past them, in whole lines, wherever rows begin and end.
TEST(CopyKvTest, ALargeCopyIsTheSame) {
  ModelSpec odd = WideModel();
  for (Plane& plane : odd.groups[0].planes) plane.row_bytes = 130;
  for (const ModelSpec& model : {WideModel(), odd}) {
    KvSet from(model, Layout::kNhd, 0, 700);
    from.Write(kSeed, 0, 700);
    for (const Layout layout : {Layout::kContiguous, Layout::kTokenMajor, Layout::kHnd,
                                Layout::kReversedTokens, Layout::kElementStride}) {
      KvSet to(model, layout, 0, 700), want(model, layout, 0, 700);
      want.Write(kSeed, 1, 700);
      ASSERT_OK_ASSIGN(const uint64_t bytes, CopyKv(model, *from.View(1, 699), *to.View(0, 700)));
      EXPECT_GT(bytes, uint64_t{4} << 20);
      EXPECT_TRUE(to == want) << LayoutName(layout);
    }
  }
}

TEST(CopyKvTest, AGroupInTwoViewsGoesWhereEachPositionIs) {
  const ModelSpec model = TinyModel();
  KvSet from(model, Layout::kNhd, 0, 40), to(model, Layout::kHnd, 0, 40);
  KvSet want(model, Layout::kHnd, 0, 40);
  from.Write(kSeed, 0, 40);
  const auto twice = [](KvSet& set, uint64_t first, uint64_t second, uint64_t end) {
    std::vector<GroupView> groups = {set.pool(0).View(0, first),
                                     set.pool(0).View(second, end - second)};
    return groups;
  };
  const auto a = twice(from, 4, 20, 40), b = twice(to, 8, 16, 40);
  ASSERT_OK(CopyKv(model, {.groups = a}, {.groups = b}));
  want.Write(kSeed, 0, 4);
  want.Write(kSeed, 20, 40);
  EXPECT_TRUE(to == want);
  // One piece of the source, in two of the target.
  const auto c = twice(to, 15, 15, 40);
  ASSERT_OK(CopyKv(model, *from.View(0, 40), {.groups = c}));
  want.Write(kSeed, 0, 40);
  EXPECT_TRUE(to == want);
  // What lies between its two views has no place.
  EXPECT_FAILS(CopyKv(model, *from.View(0, 20), {.groups = b}), StatusCode::kInvalidArgument,
               "no place for position 8");
}

TEST(CopyKvTest, OfSomeLayersThoseThatBothViewsDescribe) {
  const ModelSpec model = WideModel();
  KvSet from(model, Layout::kNhd, 0, 8), to(model, Layout::kContiguous, 0, 8);
  KvSet want(model, Layout::kContiguous, 0, 8);
  from.Write(kSeed, 0, 8);
  const std::vector<GroupView> a = {from.pool(0).View(0, 8, 1, 4)};
  const std::vector<GroupView> b = {to.pool(0).View(0, 8, 3, 5)};
  ASSERT_OK_ASSIGN(const uint64_t bytes, CopyKv(model, {.groups = a}, {.groups = b}));
  EXPECT_EQ(bytes, model.token_bytes() * 8 * 2 / 8);
  want.pool(0).Write([](uint64_t) { return kSeed; }, 0, 8, 3, 2);
  EXPECT_TRUE(to == want);
  const std::vector<GroupView> c = {to.pool(0).View(0, 8, 5, 3)};
  EXPECT_FAILS(CopyKv(model, {.groups = a}, {.groups = c}), StatusCode::kInvalidArgument,
               "none of the layers");
}

TEST(CopyKvTest, NothingIsCopiedOfEmptyViews) {
  const ModelSpec model = TinyModel();
  KvSet set(model, Layout::kNhd, 0, 4), other(model, Layout::kNhd, 0, 4);
  ASSERT_OK_ASSIGN(const uint64_t none, CopyKv(model, {}, {}));
  EXPECT_EQ(none, 0U);
  ASSERT_OK_ASSIGN(const uint64_t nothing, CopyKv(model, *set.View(0, 0), *other.View(0, 4)));
  EXPECT_EQ(nothing, 0U);
}

// ---------------------------------------------------------------- ranks

// Full attention, a window, latent KV, scales of each head, one scale for all, a state of parts.
ModelSpec LogicalModel() {
  ModelSpec model;
  model.identity.name = "cut";
  model.groups.push_back(LayerGroup::FullAttention(6, 8, 4, Dtype::kBf16));
  model.groups[0].planes.push_back({.name = "k_scale",
                                    .role = PlaneRole::kScale,
                                    .heads = 8,
                                    .row_bytes = 4,
                                    .dtype = Dtype::kF32});
  model.groups[0].planes.push_back({.name = "scale",
                                    .role = PlaneRole::kScale,
                                    .heads = 1,
                                    .row_bytes = 4,
                                    .dtype = Dtype::kF32});
  model.groups.push_back(LayerGroup::SlidingWindow(3, 4, 2, Dtype::kF32, 64, 0));
  model.groups.push_back(LayerGroup::Mla(2, 36, 10, Dtype::kBf16));
  LayerGroup state;
  state.name = "state";
  state.layers = 4;
  state.retention.kind = Retention::kCheckpoint;
  state.planes = {
      {.name = "s", .role = PlaneRole::kState, .heads = 1, .row_bytes = 8 * 12, .state_parts = 8}};
  model.groups.push_back(std::move(state));
  return model;
}

uint32_t Share(uint32_t all, uint32_t rank, uint32_t ranks) { return all * rank / ranks; }

// What rank `head_rank` of `tp`, of stage `stage` of `pp`, holds. Fewer heads than ranks: several
// have the same.
ModelSpec RankOf(const ModelSpec& all, uint32_t tp, uint32_t head_rank, uint32_t pp,
                 uint32_t stage) {
  ModelSpec rank = all;
  rank.groups.clear();
  for (const LayerGroup& group : all.groups) {
    LogicalGroup logical{.name = group.name,
                         .layers = group.layers,
                         .heads = group.planes[0].state_parts != 0 ? group.planes[0].state_parts
                                                                   : group.planes[0].heads,
                         .layer_begin = Share(group.layers, stage, pp),
                         .layer_end = Share(group.layers, stage + 1, pp)};
    const uint32_t shares = std::min(tp, logical.heads);
    const uint32_t share = head_rank * shares / tp;
    logical.head_begin = Share(logical.heads, share, shares);
    logical.head_end = Share(logical.heads, share + 1, shares);
    logical.replicated = shares < tp;
    const uint32_t heads = logical.head_end - logical.head_begin;
    LayerGroup own = group;
    own.layers = logical.layer_end - logical.layer_begin;
    for (Plane& plane : own.planes) {
      if (plane.role == PlaneRole::kLatent) continue;
      if (plane.state_parts != 0) {
        plane.row_bytes = plane.row_bytes / plane.state_parts * heads;
        plane.state_parts = heads;
      } else if (plane.heads == logical.heads) {
        plane.heads = heads;
      }
    }
    rank.logical.push_back(logical);
    if (own.layers != 0) rank.groups.push_back(std::move(own));
  }
  return rank;
}

KvBuffer Random(const ModelSpec& model, uint64_t tokens, uint64_t seed) {
  KvBuffer buffer(model, tokens);
  std::mt19937_64 random(seed);
  for (std::byte& byte : buffer.bytes()) byte = static_cast<std::byte>(random());
  return buffer;
}

// Whether each row of the rank is that of its place in the logical model.
bool HoldsItsPart(KvBuffer& all, const ModelSpec& logical, KvBuffer& part, const ModelSpec& rank,
                  uint64_t tokens) {
  for (uint32_t g = 0; g < rank.groups.size(); ++g) {
    const LayerGroup& group = rank.groups[g];
    uint32_t of = 0;
    while (logical.groups[of].name != group.name) ++of;
    const LogicalGroup& held = rank.logical[of];
    const bool is_state = group.retention.kind == Retention::kCheckpoint;
    for (uint32_t p = 0; p < group.planes.size(); ++p) {
      const Plane& plane = group.planes[p];
      const bool is_whole =
          plane.role == PlaneRole::kLatent || plane.heads == logical.groups[of].planes[p].heads;
      for (uint32_t l = 0; l < group.layers; ++l) {
        for (uint64_t at = is_state ? tokens - 1 : 0; at < tokens; ++at) {
          for (uint32_t h = 0; h < plane.heads; ++h) {
            const auto is = part.Row(g, l, p, h, at);
            auto should = all.Row(of, l + held.layer_begin, p,
                                  is_whole || is_state ? h : h + held.head_begin, at);
            if (plane.state_parts != 0) {
              should = should.subspan(size_t{held.head_begin} * 12, is.size());
            }
            if (!std::ranges::equal(is, should)) return false;
          }
        }
      }
    }
  }
  return true;
}

TEST(CopyKvTest, RanksTakeTheirPartAndPutItBack) {
  const ModelSpec logical = LogicalModel();
  constexpr uint64_t kTokens = 7;
  for (const uint32_t tp : {1U, 2U, 4U, 8U}) {
    for (const uint32_t pp : {1U, 2U, 3U}) {
      KvBuffer all = Random(logical, kTokens, tp * 8 + pp);
      KvBuffer back(logical, kTokens);
      for (uint32_t stage = 0; stage < pp; ++stage) {
        for (uint32_t r = 0; r < tp; ++r) {
          const ModelSpec rank = RankOf(logical, tp, r, pp, stage);
          KvBuffer part(rank, kTokens);
          ASSERT_OK_ASSIGN(const KvCopier load, KvCopier::Make(logical, rank));
          ASSERT_OK_ASSIGN(uint64_t bytes, load.Copy(*all.view(), *part.view()));
          EXPECT_EQ(bytes, part.bytes().size());
          EXPECT_TRUE(HoldsItsPart(all, logical, part, rank, kTokens)) << tp << " " << pp;
          ASSERT_OK_ASSIGN(const KvCopier save, KvCopier::Make(rank, logical));
          ASSERT_OK_ASSIGN(bytes, save.Copy(*part.view(), *back.view()));
          EXPECT_EQ(bytes, part.bytes().size());
        }
      }
      EXPECT_TRUE(back == all) << "TP " << tp << ", PP " << pp;
    }
  }
}

// What one rank leaves out is missing: the count of bytes says so.
TEST(CopyKvTest, ARankThatIsLeftOutIsMissing) {
  const ModelSpec logical = LogicalModel();
  KvBuffer all = Random(logical, 5, 1), back(logical, 5);
  uint64_t bytes = 0;
  for (const uint32_t r : {0U, 2U, 3U}) {
    const ModelSpec rank = RankOf(logical, 4, r, 1, 0);
    KvBuffer part(rank, 5);
    ASSERT_OK_ASSIGN(const KvCopier load, KvCopier::Make(logical, rank));
    ASSERT_OK_ASSIGN(const KvCopier save, KvCopier::Make(rank, logical));
    ASSERT_OK(load.Copy(*all.view(), *part.view()));
    ASSERT_OK_ASSIGN(const uint64_t some, save.Copy(*part.view(), *back.view()));
    bytes += some;
  }
  EXPECT_FALSE(back == all);
  EXPECT_LT(bytes, all.bytes().size());
}

// From ranks of one degree straight to ranks of another.
TEST(CopyKvTest, FromRankToRank) {
  const ModelSpec logical = LogicalModel();
  KvBuffer all = Random(logical, 5, 3);
  std::vector<ModelSpec> two, four;
  std::vector<KvBuffer> of_two, of_four;
  for (uint32_t r = 0; r < 2; ++r) {
    two.push_back(RankOf(logical, 2, r, 1, 0));
    of_two.emplace_back(two[r], 5);
    ASSERT_OK_ASSIGN(const KvCopier load, KvCopier::Make(logical, two[r]));
    ASSERT_OK(load.Copy(*all.view(), *of_two[r].view()));
  }
  for (uint32_t r = 0; r < 4; ++r) {
    four.push_back(RankOf(logical, 2, r % 2, 2, r / 2));
    of_four.emplace_back(four[r], 5);
    ASSERT_OK_ASSIGN(const KvCopier move, KvCopier::Make(two[r % 2], four[r]));
    ASSERT_OK(move.Copy(*of_two[r % 2].view(), *of_four[r].view()));
    EXPECT_TRUE(HoldsItsPart(all, logical, of_four[r], four[r], 5));
  }
  EXPECT_FAILS(KvCopier::Make(RankOf(logical, 1, 0, 3, 0), RankOf(logical, 1, 0, 3, 2)),
               StatusCode::kModelMismatch, "no layer and no head in common");
}

// ---------------------------------------------------------------- what is refused

TEST(CopyKvTest, ModelsThatDifferAreNamedByField) {
  const ModelSpec logical = LogicalModel();
  const auto differs = [&](const char* part, const auto& change) {
    ModelSpec other = logical;
    change(other);
    for (const bool swapped : {false, true}) {
      EXPECT_FAILS(swapped ? KvCopier::Make(other, logical) : KvCopier::Make(logical, other),
                   StatusCode::kModelMismatch, part);
    }
  };
  differs("identity.weights_digest", [](ModelSpec& m) { m.identity.weights_digest = "x"; });
  differs("variant", [](ModelSpec& m) { m.variant.name = "lora"; });
  differs("dtype", [](ModelSpec& m) { m.groups[0].planes[0].dtype = Dtype::kF16; });
  differs("retention", [](ModelSpec& m) { m.groups[1].retention.window = 32; });
  differs("rotary",
          [](ModelSpec& m) { m.groups[0].planes[0].rotary.pairing = RotaryPairing::kAdjacent; });
  differs("planes", [](ModelSpec& m) { m.groups[0].planes.pop_back(); });
  differs("layers", [](ModelSpec& m) { m.groups[0].layers = 5; });
  differs("heads of", [](ModelSpec& m) { m.groups[0].planes[0].heads = 4; });
  differs("heads of", [](ModelSpec& m) { m.groups[0].planes[0].row_bytes = 16; });
  differs("only one of the models", [](ModelSpec& m) { m.groups.pop_back(); });
  differs("only one of the models", [](ModelSpec& m) { m.groups[1].name = "other"; });
  differs("context_rank", [](ModelSpec& m) { m.shard.context_size = 2; });
  ModelSpec bad = logical;
  bad.identity.name.clear();
  EXPECT_FAILS(KvCopier::Make(bad, logical), StatusCode::kInvalidArgument, "name");
  EXPECT_FAILS(KvCopier::Make(logical, bad), StatusCode::kInvalidArgument, "name");
  EXPECT_FAILS(CopyKv(bad, {}, {}), StatusCode::kInvalidArgument, "name");
}

// A state whose parts nobody named cannot be cut.
TEST(CopyKvTest, AStateWithoutPartsIsCopiedWholeOrNotAtAll) {
  ModelSpec whole = LogicalModel();
  whole.groups[3].planes[0].state_parts = 0;
  const ModelSpec rank = RankOf(whole, 1, 0, 2, 1);
  ASSERT_OK_ASSIGN(const KvCopier copier, KvCopier::Make(whole, rank));
  KvBuffer all = Random(whole, 4, 5), part(rank, 4);
  ASSERT_OK(copier.Copy(*all.view(), *part.view()));
  EXPECT_TRUE(std::ranges::equal(all.Row(3, 2, 0, 0, 3), part.Row(3, 0, 0, 0, 3)));
  ModelSpec second = rank;
  for (LogicalGroup& logical : second.logical) {
    if (logical.name == "state") logical = {"state", 4, 2, 2, 4, 1, 2};
  }
  EXPECT_FAILS(KvCopier::Make(whole, second), StatusCode::kModelMismatch, "cannot be divided");
}

TEST(CopyKvTest, BadViewsAreNamed) {
  const ModelSpec model = TinyModel();
  KvSet from(model, Layout::kNhd, 0, 20), to(model, Layout::kNhd, 0, 20);
  ASSERT_OK_ASSIGN(const KvCopier copier, KvCopier::Make(model, model));
  KvView bad = *from.View(0, 20);
  std::vector<GroupView> groups(bad.groups.begin(), bad.groups.end());
  bad.groups = groups;
  groups[0].group = 7;
  EXPECT_FAILS(copier.Copy(bad, *to.View(0, 20)), StatusCode::kInvalidArgument, "`from`");
  EXPECT_FAILS(copier.Copy(*from.View(0, 20), bad), StatusCode::kInvalidArgument, "`to`");
  groups[0].group = 0;
  EXPECT_FAILS(copier.Copy(*from.View(0, 20), *to.View(0, 19)), StatusCode::kInvalidArgument,
               "position 19");
  EXPECT_FAILS(copier.Copy(*from.View(0, 20), *to.View(1, 19)), StatusCode::kInvalidArgument,
               "position 0");
  EXPECT_FAILS(copier.Copy(*from.View(0, 20), {}), StatusCode::kInvalidArgument, "position 0");
  EXPECT_FAILS(copier.Copy(*from.View(0, 20), *to.View(0, 20), {.gpu_ready = 1}),
               StatusCode::kInvalidArgument, "gpu_ready");
  bad.memory = MemoryKind::kCuda;
  EXPECT_FAILS(copier.Copy(bad, *to.View(0, 20)), StatusCode::kInvalidArgument, "no such GPU");
  EXPECT_FAILS(copier.Copy(*to.View(0, 20), bad), StatusCode::kInvalidArgument, "no such GPU");
  EXPECT_FAILS(copier.Copy(bad, bad), StatusCode::kInvalidArgument, "both views");
}

}  // namespace
}  // namespace cairn::testing
