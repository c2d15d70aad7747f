// SPDX-License-Identifier: Apache-2.0
//
// Shadows on a simulated device.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/codec/float16.h"
#include "base/core/seeded_random.h"
#include "cairn/kv_buffer.h"
#include "cairn/shadow_session.h"
#include "tests/engine/gpu_test.h"
#include "tests/engine/shadow_oracle.h"

namespace cairn::testing {

class ShadowTest : public GpuTest {
 protected:
  static constexpr uint32_t kLayers = 2, kHeads = 2, kChannels = 16, kGroup = 3, kTokensMax = 6000;

  ShadowTest() {
    model_.identity.name = "shadow";
    model_.groups = {LayerGroup::FullAttention(kLayers, kHeads, kChannels, Dtype::kBf16)};
  }
  void SetUp() override {
    GpuTest::SetUp();
    kv_ = std::make_unique<KvBuffer>(model_, kTokensMax);
    SeededRandom random(7);
    auto* const elements = reinterpret_cast<uint16_t*>(kv_->bytes().data());
    for (size_t i = 0; i < kv_->bytes().size() / 2; ++i) {
      elements[i] = ToBf16(Drawn(&random));
    }
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
  }
  void TearDown() override {
    EndDevice();
    kv_ = nullptr;
  }
  void EndDevice() {
    arena_ = {};
    if (queries_ != nullptr) gpu_->Free(queries_);
    queries_ = nullptr;
    if (stream_.id != 0) device_->Return(stream_);
    stream_ = {};
  }

  static float Drawn(SeededRandom* random) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(random->Below(2001)) / 1000.0F - 1.0F;
    return sum;
  }
  // Appends from the buffer, up to this length.
  void AppendTo(Branch& branch, uint64_t end) {
    ASSERT_OK_ASSIGN(uint64_t at, branch.length());
    for (; at < end;) {
      const uint64_t next = std::min(end, at + 700);
      const OwnedKvView view = kv_->View(at, next);
      const std::vector<TokenId> tokens(next - at, 7);
      ASSERT_OK(branch.AppendSync({.tokens = tokens, .kv = view}));
      at = next;
    }
  }
  void MakeArena() {
    ASSERT_OK_ASSIGN(
        arena_,
        SparseArena::Make(store_, *gpu_, {.pinned_bytes = 4 << 20, .device_bytes = 64 << 20}));
    ASSERT_OK_ASSIGN(stream_, device_->NewStream(gpu::Priority::kHigh));
    ASSERT_OK_ASSIGN(queries_, gpu_->Allocate(kHeads * kGroup * kChannels * sizeof(float)));
  }
  static ShadowOptions OptionsOf(const ShadowSpec& spec) {
    return {.spec = spec, .query_heads = kHeads * kGroup, .append_tokens = 4};
  }
  static ShadowSpec Small(ShadowKeys keys = ShadowKeys::kInt4, uint32_t chunk = 4,
                          uint32_t bits = 4) {
    ShadowSpec spec;
    spec.keys = keys;
    spec.chunk_tokens = chunk;
    spec.landmark_bits = bits;
    spec.budget_tokens = 64;
    return spec;
  }
  uintptr_t stream() const { return gpu::SimDevice::HandleOf(stream_); }
  void Finish() {
    ASSERT_OK_ASSIGN(const gpu::Event event, device_->NewEvent());
    ASSERT_OK(device_->Record(stream_, event));
    ASSERT_OK(device_->Wait(event, io::kNoDeadline));
    device_->Return(event);
  }
  std::vector<uint16_t> Rows(uint32_t layer, uint32_t plane, uint32_t head, uint64_t begin,
                             uint64_t end) {
    std::vector<uint16_t> rows;
    for (uint64_t position = begin; position < end; ++position) {
      const auto row = kv_->Row(0, layer, plane, head, position);
      const auto* const at = reinterpret_cast<const uint16_t*>(row.data());
      rows.insert(rows.end(), at, at + kChannels);
    }
    return rows;
  }

  // One step of one layer, of drawn queries: all that it attends to is what the oracle says, of a
  // context of this many tokens.
  void Step(ShadowSession& session, const ShadowSpec& spec, uint32_t layer, uint64_t tokens,
            SeededRandom* random) {
    std::vector<float> queries(kHeads * kGroup * kChannels);
    for (float& q : queries) q = Drawn(random);
    ASSERT_OK(gpu_->CopyIn(queries_, reinterpret_cast<const std::byte*>(queries.data()),
                           queries.size() * sizeof(float)));
    ASSERT_OK(session.Select({.layer = layer,
                              .queries = queries_,
                              .is_fp32 = true,
                              .scale = 0.25F,
                              .stream = stream()}));
    ASSERT_OK(session.Fetch({.layer = layer, .stream = stream()}));
    ASSERT_OK(session.Rebuild(layer, stream()));
    ASSERT_OK_ASSIGN(const ShadowView view, session.View(layer));
    Finish();
    for (uint32_t head = 0; head < kHeads; ++head) {
      const ShadowOracle oracle(spec, false, kChannels, Rows(layer, 0, head, 0, tokens));
      const auto mine =
          std::span<const float>(queries).subspan(head * kGroup * kChannels, kGroup * kChannels);
      CompareSelected(view, oracle, layer, head, oracle.Select(mine, 0.25F));
      CompareResident(view, oracle, layer, head, tokens);
    }
  }

  void CompareSelected(const ShadowView& view, const ShadowOracle& oracle, uint32_t layer,
                       uint32_t head, const std::vector<uint32_t>& chosen) {
    ASSERT_EQ(chosen.size(), view.count);
    const uint32_t tokens = oracle.spec.chunk_tokens;
    for (uint32_t i = 0; i < view.count; ++i) {
      const size_t at = head * view.stride + i;
      ASSERT_EQ(chosen[i], view.chunks[at]) << "head " << head << ", chunk " << i;
      const auto same = [&](const SparseView::PlaneSlots& slots, int32_t slot,
                            const std::vector<uint16_t>& want) {
        const std::byte* const got =
            slots.base + head * slots.head_stride + static_cast<uint64_t>(slot) * slots.piece_bytes;
        return want.size() * 2 == slots.piece_bytes &&
               std::memcmp(got, want.data(), want.size() * 2) == 0;
      };
      const uint64_t first = uint64_t{chosen[i]} * tokens;
      EXPECT_TRUE(skip_keys_ || same(view.keys, view.key_slot_of[at], oracle.Keys(chosen[i])))
          << "keys";
      EXPECT_TRUE(
          same(view.values, view.value_slot_of[at], Rows(layer, 1, head, first, first + tokens)))
          << "values";
    }
  }
  void CompareResident(const ShadowView& view, const ShadowOracle& oracle, uint32_t layer,
                       uint32_t head, uint64_t tokens) {
    std::vector<uint64_t> positions;
    std::vector<uint32_t> chunks;
    for (uint32_t i = 0; i < oracle.plan.sink_chunks; ++i) chunks.push_back(i);
    chunks.insert(chunks.end(), oracle.outliers.begin(), oracle.outliers.end());
    if (extended_) Reorder(view, oracle, layer, head, &chunks);
    for (const uint32_t chunk : chunks) {
      for (uint32_t t = 0; t < oracle.spec.chunk_tokens; ++t) {
        positions.push_back(uint64_t{chunk} * oracle.spec.chunk_tokens + t);
      }
    }
    for (uint64_t p = oracle.plan.covered; p < tokens; ++p) positions.push_back(p);
    ASSERT_EQ(positions.size(), view.resident_tokens);
    for (size_t i = 0; i < positions.size(); ++i) {
      const std::vector<uint16_t> key = Rows(layer, 0, head, positions[i], positions[i] + 1);
      const std::vector<uint16_t> value = Rows(layer, 1, head, positions[i], positions[i] + 1);
      EXPECT_EQ(0, std::memcmp(view.resident_keys + head * view.resident_key_stride + i * 32,
                               key.data(), 32));
      EXPECT_EQ(0, std::memcmp(view.resident_values + head * view.resident_value_stride + i * 32,
                               value.data(), 32));
    }
  }

  // Those that come later lie where there was room.
  void Reorder(const ShadowView& view, const ShadowOracle& oracle, uint32_t layer, uint32_t head,
               std::vector<uint32_t>* chunks) {
    const uint32_t tokens = oracle.spec.chunk_tokens;
    std::vector<uint32_t> left = *chunks, found;
    for (size_t at = 0; at < chunks->size(); ++at) {
      const std::byte* const row =
          view.resident_keys + head * view.resident_key_stride + at * tokens * 32;
      const auto is_there = [&](uint32_t chunk) {
        const uint64_t first = uint64_t{chunk} * tokens;
        const auto rows = Rows(layer, 0, head, first, first + tokens);
        return std::memcmp(row, rows.data(), rows.size() * 2) == 0;
      };
      const auto it = std::find_if(left.begin(), left.end(), is_there);
      ASSERT_NE(it, left.end()) << "at " << at;
      found.push_back(*it);
      left.erase(it);
    }
    *chunks = found;
  }

  bool extended_ = false;
  bool skip_keys_ = false;  // Step does not compare the keys of selected chunks: the caller does.
  ModelSpec model_;
  std::unique_ptr<KvBuffer> kv_;
  SparseArena arena_;
  gpu::Stream stream_;
  std::byte* queries_ = nullptr;
};

}  // namespace cairn::testing
