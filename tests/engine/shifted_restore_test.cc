// SPDX-License-Identifier: Apache-2.0
//
// Property: a restore of several sources brings each position's KV to where its source's shift
// says: keys that are stored rotated as base/codec/rotary.h turns the stored row, bit for bit, all
// other rows unchanged; nothing else is written; what is cached on the way is what is stored. All
// sources come, or the restore fails. Method: every kind of element, pairing, window and layout,
// from the log, from tables and from memory, compared with rows that are restored in place and
// turned one by one without a table.
#include <algorithm>
#include <cstring>

#include "base/codec/kv_copy.h"
#include "base/codec/rotary.h"
#include "engine/restore/plan/restore_item.h"
#include "engine/store/store_core.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

using engine::RestoreItem;
using engine::RestoreSource;

constexpr uint32_t kLayers = 2, kHeads = 2, kElements = 40;
constexpr uint64_t kTokens = 300;

struct Shape {
  const char* name;
  Dtype dtype;
  SealedAs sealed_as;
  RotaryPairing pairing;
  uint32_t first, width;  // The window's.
  std::vector<uint32_t> sections{};
};
const Shape kShapes[] = {
    {"f32", Dtype::kF32, SealedAs::kLossless, RotaryPairing::kHalves, 0, kElements},
    {"f32 adjacent, partial", Dtype::kF32, SealedAs::kLossless, RotaryPairing::kAdjacent, 4, 32},
    {"f16, partial", Dtype::kF16, SealedAs::kLossless, RotaryPairing::kHalves, 0, 32},
    {"f16 adjacent", Dtype::kF16, SealedAs::kLossless, RotaryPairing::kAdjacent, 0, kElements},
    {"bf16", Dtype::kBf16, SealedAs::kLossless, RotaryPairing::kHalves, 0, kElements},
    {"bf16 adjacent", Dtype::kBf16, SealedAs::kLossless, RotaryPairing::kAdjacent, 8, 32},
    {"int8", Dtype::kBf16, SealedAs::kInt8, RotaryPairing::kHalves, 0, kElements},
    // All positions of a token are moved alike.
    {"sections", Dtype::kF32, SealedAs::kLossless, RotaryPairing::kHalves, 0, kElements, {4, 8, 8}},
};

// Keys that are stored rotated and their values; and keys from before rotation.
ModelSpec ModelOf(const Shape& shape) {
  ModelSpec model;
  model.identity.name = std::string("shifted ") + shape.name;
  LayerGroup rotated = LayerGroup::FullAttention(kLayers, kHeads, kElements, shape.dtype);
  rotated.name = "rotated";
  rotated.inv_freq = RotaryFrequencies(shape.width, 10'000.0);
  rotated.planes[0].rotary = {.state = RotaryState::kApplied,
                              .pairing = shape.pairing,
                              .first = shape.first,
                              .width = shape.width,
                              .sections = shape.sections};
  rotated.planes[1].rotary.state = RotaryState::kNone;
  for (Plane& plane : rotated.planes) plane.sealed_as = shape.sealed_as;
  LayerGroup before = rotated;
  before.name = "before";
  before.planes[0].rotary.state = RotaryState::kBefore;
  model.groups = {rotated, before};
  return model;
}

class ShiftedRestoreTest : public WorldTest {
 protected:
  void Write(const ModelSpec& model, const std::string& name, uint64_t seed) {
    Branch branch = Create(Register(model), name);
    for (uint64_t at = 0; at < kTokens; at += 100) {
      ASSERT_OK(AppendSome(branch, model, at, 100, seed));
    }
  }
  RestoreSource Source(const std::string& name, uint64_t begin, uint64_t end, uint64_t target) {
    return {.branch = Find(name).id(),
            .begin = begin,
            .end = end,
            .shift = static_cast<int64_t>(target - begin)};
  }
  RestoreItem Restore(std::vector<RestoreSource> sources, const KvView* into) {
    RestoreItem item;
    item.sources = std::move(sources);
    item.request.into = into;
    EXPECT_OK(Find("one").core()->reads().RestoreMany({&item, 1}, UINT64_MAX));
    return item;
  }
  // Puts into `want` the rows of a source, restored in place and turned one by one.
  void PutWanted(const ModelSpec& model, const std::string& name, const RestoreSource& source,
                 const KvView& want) {
    KvSet stored(model, Layout::kContiguous, source.begin, source.end - source.begin);
    const KvView* const from = stored.View(source.begin, source.end - source.begin);
    RestoreRequest request;
    request.begin = source.begin;
    request.end = source.end;
    request.into = from;
    ASSERT_OK(Find(name).Restore(request));
    for (uint32_t group = 0; group < model.groups.size(); ++group) {
      for (uint32_t plane = 0; plane < 2; ++plane) {
        for (uint64_t at = source.begin; at < source.end; ++at) {
          PutRows(model.groups[group], plane, at, source.shift, from->groups[group],
                  want.groups[group]);
        }
      }
    }
  }
  static void PutRows(const LayerGroup& group, uint32_t plane, uint64_t position, int64_t shift,
                      const GroupView& from, const GroupView& into) {
    const uint64_t target = engine::TargetOf(position, shift);
    const Plane& of = group.planes[plane];
    for (uint32_t layer = 0; layer < group.layers; ++layer) {
      std::vector<std::byte> rows(SliceBytes(of, 1));
      GatherSlice(of, from.planes[plane], layer, PositionMap(from, position, 1), rows.data());
      if (of.rotary.state == RotaryState::kApplied && shift != 0) {
        const Rotation rotation = Rotation::Of(group, plane).value();
        std::vector<RotaryTurn> turns(rotation.pairs());
        rotation.Between(std::vector<uint64_t>(rotation.positions(), position),
                         std::vector<uint64_t>(rotation.positions(), target), turns);
        for (uint32_t head = 0; head < of.heads; ++head) {
          const auto row = std::span(rows).subspan(size_t{head} * of.row_bytes, of.row_bytes);
          rotation.Turn(turns, row, row);
        }
      }
      ScatterSlice(of, into.planes[plane], layer, PositionMap(into, target, 1), rows.data(), 1, 0);
    }
  }
  void CheckAll(const ModelSpec& model, std::span<const Layout> layouts, uint64_t base) {
    for (const Layout layout : layouts) {
      SCOPED_TRACE(LayoutName(layout) + " at " + std::to_string(base));
      KvSet got(model, layout, base, 290), want(model, layout, base, 290);
      const KvView* const into = got.View(base, 290);
      const std::vector<RestoreSource> sources = {Source("one", 40, 170, base),
                                                  Source("one", 200, 290, base + 140),
                                                  Source("two", 0, 50, base + 230)};
      const RestoreItem item = Restore(sources, into);
      ASSERT_OK(item.status);
      EXPECT_EQ(item.result.begin, base);
      EXPECT_EQ(item.result.end, base + 280);
      EXPECT_EQ(item.result.kv_ends, (std::vector<uint64_t>{base + 280, base + 280}));
      EXPECT_EQ(item.result.bytes, 270 * model.token_bytes());
      const KvView* const wanted = want.View(base, 290);
      PutWanted(model, "one", sources[0], *wanted);
      PutWanted(model, "one", sources[1], *wanted);
      PutWanted(model, "two", sources[2], *wanted);
      ASSERT_TRUE(got == want);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, ShiftedRestoreTest, ::testing::ValuesIn(TestWorld::Names()),
                         NameOf);

TEST_P(ShiftedRestoreTest, KeysComeTurnedAndAllElseAsItIs) {
  constexpr Layout kOne[] = {Layout::kNhd};
  constexpr Layout kTwo[] = {Layout::kHnd, Layout::kElementStride};
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    const ModelSpec model = ModelOf(shape);
    Write(model, "one", 1);
    Write(model, "two", 2);
    CheckAll(model, kOne, 40);  // In the memory of the log; the first source stays where it is.
    ASSERT_OK(store_.Compact());
    Reopen();
    const bool all = shape.dtype == Dtype::kF32;
    // From tables, then from the page cache.
    CheckAll(model, all ? std::span<const Layout>(AllLayouts()) : kTwo, uint64_t{1} << 18);
    CheckAll(model, kOne, 0);
    ASSERT_OK(Find("one").Drop());
    ASSERT_OK(Find("two").Drop());
  }
}

TEST_P(ShiftedRestoreTest, LossySourcesCount) {
  const ModelSpec model = ModelOf(kShapes[6]);
  Write(model, "one", 1);
  ASSERT_OK(store_.Compact());
  Reopen();
  KvSet got(model, Layout::kNhd, 1000, 100);
  const RestoreItem item = Restore({Source("one", 0, 100, 1000)}, got.View(1000, 100));
  ASSERT_OK(item.status);
  EXPECT_EQ(item.result.lossy_bytes, 100 * model.token_bytes());
}

TEST_P(ShiftedRestoreTest, ALayerIsCompleteWhenAllSourcesHaveIt) {
  const ModelSpec model = ModelOf(kShapes[4]);
  Write(model, "one", 1);
  ASSERT_OK(store_.Compact());
  Reopen();
  Write(model, "two", 2);  // In the log.
  KvSet got(model, Layout::kNhd, 0, 600);
  std::array<std::atomic<uint32_t>, 2 * kLayers> words{};
  LayerProgress progress{words};
  engine::LayerWords layers(*world_->world().scheduler, &progress);
  RestoreItem item;
  item.sources = {Source("two", 0, 300, 0), Source("one", 0, 300, 300)};
  item.request.into = got.View(0, 600);
  item.layers = &layers;
  ASSERT_OK(Find("one").core()->reads().RestoreMany({&item, 1}, UINT64_MAX));
  ASSERT_OK(item.status);
  for (const auto& word : words) EXPECT_EQ(word.load(), kLayerComplete);
}

TEST_P(ShiftedRestoreTest, WhatOneSourceLacksFailsAll) {
  const ModelSpec model = ModelOf(kShapes[0]);
  Write(model, "one", 1);
  Write(model, "two", 2);
  Branch two = Find("two");
  const std::vector<TokenId> more = Tokens(10, 3);
  ASSERT_OK(two.AppendSync(MakeDelta(more)));  // Ids alone.
  KvSet got(model, Layout::kNhd, 0, 700);
  const KvView* const into = got.View(0, 700);
  EXPECT_FAILS(Restore({Source("one", 0, 300, 0), Source("two", 0, 305, 300)}, into).status,
               StatusCode::kEvicted, "group \"rotated\" positions [300, 305)");
  EXPECT_FAILS(Restore({Source("one", 0, 300, 0), Source("two", 0, 311, 300)}, into).status,
               StatusCode::kInvalidArgument, "[0, 311) from a branch of 310 tokens");
  RestoreItem gone;
  gone.sources = {Source("one", 0, 300, 0), Source("two", 0, 100, 300)};
  gone.request.into = into;
  ASSERT_OK(two.Drop());
  ASSERT_OK(Find("one").core()->reads().RestoreMany({&gone, 1}, UINT64_MAX));
  EXPECT_EQ(gone.status.code(), StatusCode::kNotFound);
}

TEST_P(ShiftedRestoreTest, IdsOfSeveralSourcesLieAsTheirKvDoes) {
  const ModelSpec model = ModelOf(kShapes[0]);
  Write(model, "one", 1);
  Write(model, "two", 2);
  std::vector<TokenId> ids(150, 0);
  RestoreItem item;
  item.sources = {Source("two", 10, 60, 1000), Source("one", 100, 180, 1070)};
  item.request.tokens = ids;
  ASSERT_OK(Find("one").core()->reads().RestoreMany({&item, 1}, UINT64_MAX));
  ASSERT_OK(item.status);
  ASSERT_OK_ASSIGN(const std::vector<TokenId> two, Find("two").ReadTokens(10, 60));
  ASSERT_OK_ASSIGN(const std::vector<TokenId> one, Find("one").ReadTokens(100, 180));
  EXPECT_TRUE(std::equal(two.begin(), two.end(), ids.begin()));
  EXPECT_TRUE(std::equal(one.begin(), one.end(), ids.begin() + 70));
  EXPECT_TRUE(std::all_of(ids.begin() + 50, ids.begin() + 70, [](TokenId id) { return id == 0; }));
  item.request.tokens = std::span(ids).first(149);
  ASSERT_OK(Find("one").core()->reads().RestoreMany({&item, 1}, UINT64_MAX));
  EXPECT_FAILS(item.status, StatusCode::kInvalidArgument, "room for 149 token ids, 150 are wanted");
}

// Ids of a source that began below position 0 were written before the caller's memory, and of two
// sources in one place either came.
TEST_P(ShiftedRestoreTest, SourcesOutOfTheViewOrInOnePlaceAreRefused) {
  const ModelSpec model = ModelOf(kShapes[0]);
  Write(model, "one", 1);
  KvSet got(model, Layout::kNhd, 0, 700);
  std::vector<TokenId> ids(500, 7);
  RestoreItem item;
  item.request.tokens = std::span(ids).subspan(150, 300);
  item.request.into = got.View(0, 700);
  item.sources = {Source("one", 0, 300, 200), Source("one", 0, 300, 0)};
  item.sources[1].shift = -100;
  const auto restore = [&] {
    EXPECT_OK(Find("one").core()->reads().RestoreMany({&item, 1}, UINT64_MAX));
    return item.status;
  };
  EXPECT_FAILS(restore(), StatusCode::kInvalidArgument, "cannot be shifted by -100");
  item.sources = {Source("one", 100, 300, 50), Source("one", 0, 100, 0)};
  EXPECT_FAILS(restore(), StatusCode::kInvalidArgument, "two sources go to position 50");
  EXPECT_TRUE(std::all_of(ids.begin(), ids.end(), [](TokenId id) { return id == 7; }));
}

TEST_P(ShiftedRestoreTest, ASourceWithoutRoomClaimsNone) {
  const ModelSpec model = ModelOf(kShapes[0]);
  Write(model, "one", 1);
  KvSet got(model, Layout::kNhd, 0, 100);
  std::vector<RestoreSource> sources = {Source("one", 0, 100, 0), Source("one", 0, 100, 200)};
  for (int order = 0; order < 2; ++order) {
    const RestoreItem item = Restore(sources, got.View(0, 100));
    ASSERT_OK(item.status);
    EXPECT_EQ(item.result.kv_ends, (std::vector<uint64_t>{100, 100}));
    std::swap(sources[0], sources[1]);
  }
}

// At the end of a chunk of the source nothing is needed; in the view that is within a chunk.
TEST_P(ShiftedRestoreTest, AShiftedChunkNeedsItsKv) {
  ModelSpec model = ModelOf(kShapes[0]);
  model.groups[1].retention = {.kind = Retention::kChunkLocal, .chunk = 64};
  Branch branch = Create(Register(model), "one");
  KvSet kv(model, Layout::kContiguous, 0, 64);
  kv.Write(1, 0, 64);
  const std::vector<TokenId> ids = Tokens(64, 1);
  ASSERT_OK(branch.AppendSync(MakeDelta(ids, kv.View({{0, 64}, {0, 40}}))));
  KvSet got(model, Layout::kContiguous, 0, 100);
  EXPECT_FAILS(Restore({Source("one", 0, 64, 10)}, got.View(0, 100)).status, StatusCode::kEvicted,
               "group \"before\" positions [40, 64)");
}

TEST_P(ShiftedRestoreTest, SourcesOfTwoModelsAreNoMatch) {
  Write(ModelOf(kShapes[0]), "one", 1);
  Write(ModelOf(kShapes[4]), "two", 2);
  const ModelSpec model = ModelOf(kShapes[0]);
  KvSet got(model, Layout::kNhd, 0, 200);
  RestoreItem item;
  item.sources = {Source("one", 0, 100, 0), Source("two", 0, 100, 100)};
  std::vector<TokenId> ids(200);
  item.request.tokens = ids;
  ASSERT_OK(Find("one").core()->reads().RestoreMany({&item, 1}, UINT64_MAX));
  EXPECT_FAILS(item.status, StatusCode::kModelMismatch, "of several models");
}

// A shift of rows whose rotation is not described would hand out keys of another position.
TEST_P(ShiftedRestoreTest, KeysThatCannotBeTurnedStayWhereTheyAre) {
  ModelSpec unknown = ModelOf(kShapes[0]);
  unknown.groups[0].inv_freq.clear();
  unknown.groups[1].inv_freq.clear();
  Write(unknown, "one", 1);
  KvSet got(unknown, Layout::kNhd, 0, 200);
  const KvView* const into = got.View(0, 200);
  EXPECT_FAILS(Restore({Source("one", 0, 100, 1)}, into).status, StatusCode::kInvalidArgument,
               "group \"rotated\", plane \"k\": inv_freq of the group is empty");
  EXPECT_OK(Restore({Source("one", 0, 100, 0)}, into).status);
}

TEST_P(ShiftedRestoreTest, StatesOfSeveralSourcesAreRefused) {
  ModelSpec model = ModelOf(kShapes[0]);
  LayerGroup state = LayerGroup::Recurrent(1, 64);
  state.name = "state";
  model.groups[1] = state;
  Branch branch = Create(Register(model), "one");
  ASSERT_OK(AppendSome(branch, model, 0, 100, 1));
  KvSet got(model, Layout::kContiguous, 0, 200);
  EXPECT_FAILS(
      Restore({Source("one", 0, 50, 0), Source("one", 50, 100, 50)}, got.View(0, 200)).status,
      StatusCode::kInvalidArgument, "group \"state\" has states");
}

// What stands behind a source attends to what is there.
TEST_P(ShiftedRestoreTest, AWindowIsWantedWhereEachSourceEnds) {
  ModelSpec model = ModelOf(kShapes[0]);
  model.groups[1].retention = {.kind = Retention::kWindow, .window = 64};
  for (const auto& [name, length] : {std::pair("one", 200), std::pair("two", 100)}) {
    Branch branch = Create(Register(model), name);
    const auto count = static_cast<uint64_t>(length);
    KvSet kv(model, Layout::kContiguous, 0, count);
    kv.Write(1, 0, count);
    const std::vector<TokenId> ids = Tokens(count, 1);
    ASSERT_OK(branch.AppendSync(MakeDelta(ids, kv.View({{0, count}, {count - 64, 64}}))));
  }
  KvSet got(model, Layout::kContiguous, 0, 300);
  const KvView* const into = got.View(0, 300);
  EXPECT_OK(Restore({Source("one", 0, 200, 0), Source("two", 0, 100, 200)}, into).status);
  EXPECT_FAILS(Restore({Source("one", 0, 200, 0), Source("two", 0, 90, 200)}, into).status,
               StatusCode::kEvicted, "group \"before\" positions [26, 36)");
  EXPECT_FAILS(Restore({Source("one", 0, 190, 0), Source("two", 0, 100, 200)}, into).status,
               StatusCode::kEvicted, "group \"before\" positions [126, 136)");
  // Of one that other tokens stand before in the view all is wanted.
  RestoreSource foreign = Source("two", 0, 100, 200);
  foreign.foreign = foreign.whole = true;
  EXPECT_FAILS(Restore({Source("one", 0, 200, 0), foreign}, into).status, StatusCode::kEvicted,
               "group \"before\" positions [0, 36)");
}

}  // namespace
}  // namespace cairn::testing
