// SPDX-License-Identifier: Apache-2.0
//
// Property: a step attends to what is stored with models of several groups, of fp16, with rows of
// values that are wider than those of keys, and any number of query heads.
#include <array>
#include <cmath>

#include "tests/engine/shadow_test.h"

namespace cairn::testing {
namespace {

// The second of two groups: fp16, rows of values longer than those of keys, five query heads to a
// kv head.
class ShadowOfGroupTest : public GpuTest {
 protected:
  static constexpr uint32_t kLayers = 3, kHeads = 2, kChannels = 24, kQueries = 5;
  static constexpr std::array<uint32_t, 2> kRowBytes = {48, 80};
  static constexpr uint64_t kTokensMax = 2600;

  ShadowOfGroupTest() {
    model_.identity.name = "groups";
    model_.groups = {LayerGroup::FullAttention(2, 1, 8, Dtype::kBf16),
                     LayerGroup::FullAttention(kLayers, kHeads, kChannels, Dtype::kF16)};
    model_.groups[1].name = "second";
    model_.groups[1].planes[1].row_bytes = kRowBytes[1];
  }
  void SetUp() override {
    GpuTest::SetUp();
    kv_ = std::make_unique<KvBuffer>(model_, kTokensMax);
    SeededRandom random(7);
    for (uint32_t group = 0; group < 2; ++group) {
      const LayerGroup& of = model_.groups[group];
      for (uint32_t at = 0; at < of.layers * 2 * of.planes[0].heads; ++at) {
        for (uint64_t p = 0; p < kTokensMax; ++p) {
          const auto row = kv_->Row(group, at / (2 * of.planes[0].heads),
                                    at / of.planes[0].heads % 2, at % of.planes[0].heads, p);
          auto* const elements = reinterpret_cast<uint16_t*>(row.data());
          for (size_t i = 0; i < row.size() / 2; ++i) {
            const float x = static_cast<float>(random.Below(4001)) / 1000.0F - 2.0F;
            elements[i] = group == 0 ? ToBf16(x) : ToF16(x);
          }
        }
      }
    }
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK_ASSIGN(
        arena_,
        SparseArena::Make(store_, *gpu_, {.pinned_bytes = 4 << 20, .device_bytes = 32 << 20}));
    ASSERT_OK_ASSIGN(stream_, device_->NewStream(gpu::Priority::kHigh));
    ASSERT_OK_ASSIGN(queries_, gpu_->Allocate(kHeads * kQueries * kChannels * sizeof(uint16_t)));
  }
  void TearDown() override {
    arena_ = {};
    gpu_->Free(queries_);
    device_->Return(stream_);
  }
  void AppendTo(uint64_t end) {
    ASSERT_OK_ASSIGN(uint64_t at, chat_.length());
    while (at < end) {
      const uint64_t next = std::min(end, at + 300);
      const OwnedKvView view = kv_->View(at, next);
      const std::vector<TokenId> tokens(next - at, 7);
      ASSERT_OK(chat_.AppendSync({.tokens = tokens, .kv = view}));
      at = next;
    }
  }
  std::vector<uint16_t> Rows(uint32_t layer, uint32_t plane, uint32_t head, uint64_t begin,
                             uint64_t end) {
    std::vector<uint16_t> rows;
    for (uint64_t p = begin; p < end; ++p) {
      const auto row = kv_->Row(1, layer, plane, head, p);
      const auto* const at = reinterpret_cast<const uint16_t*>(row.data());
      rows.insert(rows.end(), at, at + row.size() / 2);
    }
    return rows;
  }
  static bool Same(const std::byte* got, const std::vector<uint16_t>& want) {
    return std::memcmp(got, want.data(), want.size() * 2) == 0;
  }

  // Queries of the dtype, at a scale that is left out.
  void Step(ShadowSession& session, const ShadowSpec& spec, uint32_t layer, uint64_t tokens,
            SeededRandom* random) {
    std::vector<uint16_t> queries(kHeads * kQueries * kChannels);
    for (uint16_t& q : queries) q = ToF16(static_cast<float>(random->Below(4001)) / 1000.0F - 2.0F);
    ASSERT_OK(gpu_->CopyIn(queries_, reinterpret_cast<const std::byte*>(queries.data()),
                           queries.size() * 2));
    const uintptr_t stream = gpu::SimDevice::HandleOf(stream_);
    ASSERT_OK(session.Select({.layer = layer, .queries = queries_, .stream = stream}));
    ASSERT_OK(session.Rebuild(layer, stream));
    ASSERT_OK(session.Fetch({.layer = layer, .stream = stream}));
    ASSERT_OK_ASSIGN(const ShadowView view, session.View(layer));
    device_->RunAll();
    for (uint32_t head = 0; head < kHeads; ++head) {
      const ShadowOracle oracle(spec, true, kChannels, Rows(layer, 0, head, 0, tokens));
      std::vector<float> mine;
      for (uint32_t i = 0; i < kQueries * kChannels; ++i) {
        mine.push_back(FromF16(queries[head * kQueries * kChannels + i]));
      }
      const float scale = 1.0F / std::sqrt(static_cast<float>(kChannels));
      const std::vector<uint32_t> chosen = oracle.Select(mine, scale);
      ASSERT_EQ(chosen.size(), view.count);
      const uint32_t chunk = spec.chunk_tokens;
      for (uint32_t i = 0; i < view.count; ++i) {
        const size_t at = head * view.stride + i;
        ASSERT_EQ(chosen[i], view.chunks[at]);
        const auto in = [&](const SparseView::PlaneSlots& slots, int32_t slot) {
          return slots.base + head * slots.head_stride +
                 static_cast<uint64_t>(slot) * slots.piece_bytes;
        };
        ASSERT_EQ(chunk * kRowBytes[0], view.keys.piece_bytes);
        ASSERT_EQ(chunk * kRowBytes[1], view.values.piece_bytes);
        const uint64_t first = uint64_t{chosen[i]} * chunk;
        EXPECT_TRUE(Same(in(view.keys, view.key_slot_of[at]), oracle.Keys(chosen[i])));
        EXPECT_TRUE(Same(in(view.values, view.value_slot_of[at]),
                         Rows(layer, 1, head, first, first + chunk)));
      }
      std::vector<uint64_t> positions;
      for (uint32_t c = 0; c < oracle.plan.chunks; ++c) {
        if (!shadow::IsAlways(oracle.always.data(), c)) continue;
        for (uint32_t t = 0; t < chunk; ++t) positions.push_back(uint64_t{c} * chunk + t);
      }
      for (uint64_t p = oracle.plan.covered; p < tokens; ++p) positions.push_back(p);
      ASSERT_EQ(positions.size(), view.resident_tokens);
      for (size_t i = 0; i < positions.size(); ++i) {
        const uint64_t p = positions[i];
        EXPECT_TRUE(Same(view.resident_keys + head * view.resident_key_stride + i * kRowBytes[0],
                         Rows(layer, 0, head, p, p + 1)));
        EXPECT_TRUE(
            Same(view.resident_values + head * view.resident_value_stride + i * kRowBytes[1],
                 Rows(layer, 1, head, p, p + 1)));
      }
    }
  }

  ModelSpec model_;
  std::unique_ptr<KvBuffer> kv_;
  SparseArena arena_;
  gpu::Stream stream_;
  std::byte* queries_ = nullptr;
};

TEST_F(ShadowOfGroupTest, AttendsToWhatTheOracleChooses) {
  AppendTo(1500);
  SeededRandom random(1);
  for (const ShadowKeys keys : {ShadowKeys::kInt4, ShadowKeys::kInt8, ShadowKeys::kExact}) {
    SCOPED_TRACE(ShadowKeysName(keys));
    ShadowSpec spec;
    spec.keys = keys;
    spec.budget_tokens = 96;
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_,
                                                                {.spec = spec,
                                                                 .group = 1,
                                                                 .query_heads = kHeads * kQueries,
                                                                 .append_tokens = 0,
                                                                 .tokens_max = 2600}));
    for (uint32_t layer = 0; layer < kLayers; ++layer) Step(session, spec, layer, 1500, &random);
  }
  // A shadow of the other group is another table.
  EXPECT_FAILS(FindShadow(chat_, {}), StatusCode::kNotFound, "");
  ASSERT_OK(BuildShadow(chat_, {}));
  ASSERT_OK(FindShadow(chat_, {.group = 0}));
}

}  // namespace
}  // namespace cairn::testing
