// SPDX-License-Identifier: Apache-2.0
//
// Property: planes registered as int8 come back exactly as long as they lie in the log, and from
// tables as the codec quantises them, once: whatever is sealed, cut, forked, reopened or rewritten
// later, the bits stay. A restore reports how much of it came so; models that do not ask for it
// lose nothing. Method: KV of many magnitudes, quantised by the test page by page, in every world.
#include <algorithm>
#include <cstring>

#include "base/codec/kv_frame.h"
#include "engine/tree/memory/op.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint32_t kPage = 64;
constexpr uint32_t kDim = 64;

ModelSpec Int8Model(uint32_t layers = 2, uint32_t heads = 2, uint32_t extent_tokens = kPage) {
  ModelSpec model;
  model.identity.name = "int8";
  model.extent_tokens = extent_tokens;
  model.groups.push_back(LayerGroup::FullAttention(layers, heads, kDim, Dtype::kBf16));
  for (Plane& plane : model.groups[0].planes) plane.sealed_as = SealedAs::kInt8;
  return model;
}

// K and V of positions [first, first + count): [plane][layer][head][position][channel].
struct Kv {
  Kv(const ModelSpec& spec, uint64_t first_position, uint64_t positions)
      : model(spec), first(first_position), count(positions), planes(2) {
    const LayerGroup& shape = model.groups[0];
    slices = shape.layers * shape.planes[0].heads;
    for (size_t plane = 0; plane < 2; ++plane) {
      planes[plane].resize(slices * count * kDim);
      for (uint32_t layer = 0; layer < shape.layers; ++layer) {
        bases[plane].push_back(reinterpret_cast<std::byte*>(planes[plane].data()) +
                               uint64_t{layer} * shape.planes[0].heads * count * kDim * 2);
      }
    }
  }
  Kv(const Kv&) = delete;

  // Finite; a function of where it is.
  void Fill() {
    for (size_t plane = 0; plane < 2; ++plane) {
      for (size_t i = 0; i < planes[plane].size(); ++i) {
        const uint64_t position = first + i / kDim % count;
        const uint64_t slice = i / kDim / count;
        uint64_t mixed = ((position * 64 + i % kDim) * 64 + slice) * 2 + plane;
        mixed *= 0x9e3779b97f4a7c15;
        mixed ^= mixed >> 29;
        mixed *= 0xbf58476d1ce4e5b9;
        // Later positions are larger, so that scales differ.
        const uint64_t exponent =
            110 + (mixed >> 40) % 12 + (i % kDim) % 7 + (position < 200 ? 0 : 4);
        planes[plane][i] =
            static_cast<uint16_t>((mixed >> 63) << 15 | exponent << 7 | (mixed >> 50) % 128);
      }
    }
  }
  // The values that tables return for a fragment [begin, end) whose pages begin with it.
  void Quantise(uint64_t begin, uint64_t end, uint32_t page = kPage) {
    for (size_t plane = 0; plane < 2; ++plane) {
      for (size_t slice = 0; slice < slices; ++slice) {
        for (uint64_t at = begin; at < end; at += page) {
          const auto rows = static_cast<uint32_t>(std::min<uint64_t>(page, end - at));
          uint16_t* const elements = &planes[plane][(slice * count + at - first) * kDim];
          QuantiseFrame({rows, kDim, Dtype::kBf16},
                        plane == 0 ? FrameScales::kChannel : FrameScales::kRow,
                        {reinterpret_cast<std::byte*>(elements), size_t{2} * rows * kDim});
        }
      }
    }
  }
  const KvView* View() {
    const auto row = int64_t{2} * kDim;
    for (size_t plane = 0; plane < 2; ++plane) {
      views[plane] = {.layer_bases = bases[plane],
                      .token_stride = row,
                      .head_stride = row * static_cast<int64_t>(count)};
    }
    group = {.position = first, .count = count, .planes = views};
    view.groups = {&group, 1};
    return &view;
  }

  const ModelSpec model;
  const uint64_t first, count;
  size_t slices = 0;
  std::vector<std::vector<uint16_t>> planes;
  std::vector<std::byte*> bases[2];
  PlaneView views[2];
  GroupView group;
  KvView view;
};

void Append(Branch& branch, const ModelSpec& model, uint64_t count) {
  ASSERT_OK_ASSIGN(const uint64_t length, branch.length());
  Kv kv(model, length, count);
  kv.Fill();
  const std::vector<TokenId> tokens = Tokens(count, length);
  ASSERT_OK(branch.AppendSync(MakeDelta(tokens, kv.View()), {}));
}

struct Got {
  std::vector<std::vector<uint16_t>> planes;
  uint64_t lossy_bytes = 0, bytes = 0;
};
Got Restored(const Branch& branch, const ModelSpec& model, uint64_t end) {
  Kv kv(model, 0, end);
  RestoreRequest request;
  request.end = end;
  request.into = kv.View();
  const auto result = branch.Restore(request);
  EXPECT_OK(result);
  if (!result.ok()) return {};
  return {kv.planes, result->lossy_bytes, result->bytes};
}

class LossyTest : public WorldTest {};

INSTANTIATE_TEST_SUITE_P(Worlds, LossyTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(LossyTest, TheLogIsExactAndTablesAreQuantisedOnce) {
  const ModelSpec model = Int8Model();
  Branch chat = Create(Register(model), "chat");
  for (int i = 0; i < 5; ++i) Append(chat, model, 60);
  Kv exact(model, 0, 310), sealed(model, 0, 310);
  exact.Fill();
  sealed.Fill();
  // Appends that begin in the same page are sealed together.
  for (const auto& [begin, end] : {std::pair(0, 120), {120, 180}, {180, 240}, {240, 300}}) {
    sealed.Quantise(static_cast<uint64_t>(begin), static_cast<uint64_t>(end));
  }
  ASSERT_NE(exact.planes, sealed.planes);
  const auto first = [](const Kv& kv, uint64_t end) {
    Kv some(kv.model, 0, end);
    for (size_t plane = 0; plane < 2; ++plane) {
      for (size_t slice = 0; slice < kv.slices; ++slice) {
        std::copy_n(&kv.planes[plane][slice * kv.count * kDim], end * kDim,
                    &some.planes[plane][slice * end * kDim]);
      }
    }
    return some.planes;
  };
  Got got = Restored(chat, model, 300);
  EXPECT_EQ(first(exact, 300), got.planes);
  EXPECT_EQ(0U, got.lossy_bytes);
  ASSERT_OK(store_.Compact());
  got = Restored(chat, model, 300);
  EXPECT_EQ(first(sealed, 300), got.planes);
  EXPECT_EQ(got.bytes, got.lossy_bytes);
  EXPECT_EQ(300 * model.token_bytes(), got.lossy_bytes);
  // Half the bytes, with headers, scales and the table's own.
  EXPECT_LT(store_.Metrics().table_bytes, 300 * model.token_bytes() * 6 / 10);

  ASSERT_OK_ASSIGN(Branch fork, chat.ForkAt(100, {.name = "fork"}));
  Append(chat, model, 10);
  got = Restored(chat, model, 310);
  EXPECT_EQ(sealed.planes, got.planes) << "the new positions are exact";
  EXPECT_EQ(300 * model.token_bytes(), got.lossy_bytes);
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_EQ(first(sealed, 100), Restored(fork, model, 100).planes);
    EXPECT_EQ(first(sealed, 300), Restored(chat, model, 300).planes);
    Reopen();
    chat = Find("chat");
    fork = Find("fork");
  }
  ASSERT_OK(store_.Compact());
  sealed.Quantise(300, 310);
  EXPECT_EQ(sealed.planes, Restored(chat, model, 310).planes);
  ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty());
}

TEST_P(LossyTest, WritingATableAnewChangesNoBit) {
  const ModelSpec model = Int8Model();
  const ModelId id = Register(model);
  Branch chat = Create(id, "chat"), other = Create(id, "other");
  Append(chat, model, 400);
  Append(other, model, 200);
  ASSERT_OK(store_.Compact());
  // Some rows of a page go, among them the largest of channels.
  ASSERT_OK(other.Rewind(150));
  const Got before = Restored(other, model, 150);
  EXPECT_EQ(before.bytes, before.lossy_bytes);
  ASSERT_OK(chat.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_GE(store_.Metrics().rewritten_tables, 1U);
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_EQ(before.planes, Restored(Find("other"), model, 150).planes);
    Reopen();
  }
}

TEST_P(LossyTest, OthersLoseNothing) {
  ModelSpec lossless = Int8Model();
  lossless.identity.name = "lossless";
  for (Plane& plane : lossless.groups[0].planes) plane.sealed_as = SealedAs::kLossless;
  ModelSpec keys = Int8Model();
  keys.identity.name = "keys";
  keys.groups[0].planes[1].sealed_as = SealedAs::kLossless;
  for (const ModelSpec& model : {lossless, keys}) {
    Branch chat = Create(Register(model), model.identity.name);
    Append(chat, model, 100);
    ASSERT_OK(store_.Compact());
    Reopen();
    Kv want(model, 0, 100);
    want.Fill();
    const Got got = Restored(Find(model.identity.name), model, 100);
    EXPECT_EQ(want.planes[1], got.planes[1]);
    EXPECT_EQ(model == lossless, want.planes[0] == got.planes[0]);
    EXPECT_EQ(model == lossless ? 0 : got.bytes / 2, got.lossy_bytes);
  }
}

// Two fragments of one table that would fit into one page: joined, channels of the one would get
// the larger scales of the other.
TEST(LossyJoinTest, WhatWasSealedApartStaysApart) {
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.segment_bytes = 64 << 20;
  options.hot_tail_bytes = 128 << 20;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  // 128 KiB per token, 256 in a source: the second one begins at 200, within the page of the first.
  const ModelSpec model = Int8Model(64, 8, 512);
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  for (int i = 0; i < 5; ++i) Append(chat, model, 100);
  ASSERT_OK(store.Compact());
  ASSERT_OK(chat.Rewind(240));
  const Got before = Restored(chat, model, 240);
  ASSERT_EQ(before.bytes, before.lossy_bytes);
  ASSERT_OK(store.Compact());
  EXPECT_EQ(1U, store.Metrics().rewritten_tables);
  EXPECT_TRUE(before.planes == Restored(chat, model, 240).planes);
  ASSERT_OK(store.Close());
}

TEST(LossyModelTest, OnlyWhatIsLossyIsEncoded) {
  const ModelSpec lossy = Int8Model();
  ModelSpec lossless = lossy;
  for (Plane& plane : lossless.groups[0].planes) plane.sealed_as = SealedAs::kLossless;
  const std::vector<std::byte> bytes = engine::EncodeModel(lossy);
  ASSERT_OK_ASSIGN(const ModelSpec back, engine::DecodeModel(bytes));
  EXPECT_EQ(lossy, back);
  constexpr size_t kFieldBytes = 16;
  EXPECT_EQ(engine::EncodeModel(lossless).size() + 2 * kFieldBytes, bytes.size());
}

}  // namespace
}  // namespace cairn::testing
