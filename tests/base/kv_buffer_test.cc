// SPDX-License-Identifier: Apache-2.0
//
// Property: a view made of an engine's tensors names the bytes that the engine means. Method: the
// tensors are filled by loops that are written as the engine's shape is, and read back by the
// formula of cairn/kv_view.h.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "cairn/kv_buffer.h"
#include "tests/support/status.h"

namespace cairn {
namespace {

constexpr uint32_t kLayers = 2, kHeads = 3, kElements = 4, kPlanes = 2;

ModelSpec Model() {
  ModelSpec model;
  model.identity.name = "m";
  model.groups = {LayerGroup::FullAttention(kLayers, kHeads, kElements, Dtype::kBf16)};
  return model;
}

// The value of an element.
uint16_t Value(uint32_t layer, uint32_t plane, uint32_t head, uint64_t token, uint32_t element) {
  return static_cast<uint16_t>(
      (((layer * kPlanes + plane) * kHeads + head) * 64 + token) * kElements + element);
}

// The tensors of all layers, filled with Value of the token that stands in each place.
class Tensors {
 public:
  Tensors(TensorLayout layout, uint64_t blocks, uint32_t block_tokens)
      : layout_(layout), blocks_(blocks), block_tokens_(block_tokens) {
    const bool shared = layout >= TensorLayout::kVllmNhd;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      if (shared) {
        memory_.emplace_back();
        Fill(layer, 0, kPlanes, &memory_.back());
        continue;
      }
      for (uint32_t plane = 0; plane < kPlanes; ++plane) {
        memory_.emplace_back();
        Fill(layer, plane, plane + 1, &memory_.back());
      }
    }
    for (std::vector<uint16_t>& one : memory_) {
      firsts_.push_back(reinterpret_cast<std::byte*>(one.data()));
    }
  }
  std::span<std::byte* const> firsts() const { return firsts_; }

 private:
  void Fill(uint32_t layer, uint32_t begin, uint32_t end, std::vector<uint16_t>* to) const {
    const auto rows = [&](uint32_t plane, uint64_t block) {
      if (layout_ == TensorLayout::kLlamaCpp && plane == 1) {
        for (uint32_t head = 0; head < kHeads; ++head)
          for (uint32_t element = 0; element < kElements; ++element)
            for (uint32_t token = 0; token < block_tokens_; ++token)
              to->push_back(Value(layer, plane, head, token, element));
        return;
      }
      const bool heads_first = layout_ == TensorLayout::kHeadMajor ||
                               layout_ == TensorLayout::kVllmHnd ||
                               layout_ == TensorLayout::kFlashInferHnd;
      for (uint32_t outer = 0; outer < (heads_first ? kHeads : block_tokens_); ++outer)
        for (uint32_t inner = 0; inner < (heads_first ? block_tokens_ : kHeads); ++inner)
          for (uint32_t element = 0; element < kElements; ++element)
            to->push_back(Value(layer, plane, heads_first ? outer : inner,
                                block * block_tokens_ + (heads_first ? inner : outer), element));
    };
    const bool blocks_first =
        layout_ == TensorLayout::kFlashInferNhd || layout_ == TensorLayout::kFlashInferHnd;
    if (blocks_first) {
      for (uint64_t block = 0; block < blocks_; ++block)
        for (uint32_t plane = begin; plane < end; ++plane) rows(plane, block);
    } else {
      for (uint32_t plane = begin; plane < end; ++plane)
        for (uint64_t block = 0; block < blocks_; ++block) rows(plane, block);
    }
  }

  const TensorLayout layout_;
  const uint64_t blocks_;
  const uint32_t block_tokens_;
  std::vector<std::vector<uint16_t>> memory_;
  std::vector<std::byte*> firsts_;
};

// The element by the formula.
uint16_t Read(const GroupView& view, uint32_t layer, uint32_t plane, uint32_t head,
              uint64_t position, uint32_t element) {
  uint64_t block = 0, slot = 0;
  const BlockTable& table = view.table;
  const auto entry = [&](uint64_t i) {
    return static_cast<uint64_t>(table.is_64_bit ? static_cast<const int64_t*>(table.entries)[i]
                                                 : static_cast<const int32_t*>(table.entries)[i]);
  };
  if (table.kind == TableKind::kNone) {
    const uint64_t i = position - view.position;
    block = view.tokens_per_block == 0 ? 0 : i / view.tokens_per_block;
    slot = view.tokens_per_block == 0 ? i : i % view.tokens_per_block;
  } else if (table.kind == TableKind::kBlocks) {
    const uint64_t i = position - table.table_position;
    block = entry(i / view.tokens_per_block);
    slot = i % view.tokens_per_block;
  } else {
    const uint64_t s = entry(position - table.table_position);
    block = s / view.tokens_per_block;
    slot = s % view.tokens_per_block;
  }
  const PlaneView& of = view.planes[plane];
  const int64_t step = of.element_stride == 0 ? 2 : of.element_stride;
  uint16_t value = 0;
  std::memcpy(&value,
              of.layer_bases[layer] + static_cast<int64_t>(block) * of.block_stride +
                  static_cast<int64_t>(slot) * of.token_stride + head * of.head_stride +
                  element * step,
              sizeof(value));
  return value;
}

// `token_of`: where in the tensors a position stands.
void ExpectNames(const KvView& view, const std::vector<uint64_t>& token_of) {
  ASSERT_EQ(view.groups.size(), 1u);
  const GroupView& group = view.groups[0];
  ASSERT_EQ(group.count, token_of.size());
  for (uint32_t layer = 0; layer < kLayers; ++layer)
    for (uint32_t plane = 0; plane < kPlanes; ++plane)
      for (uint32_t head = 0; head < kHeads; ++head)
        for (uint64_t i = 0; i < group.count; ++i)
          for (uint32_t element = 0; element < kElements; ++element)
            ASSERT_EQ(Read(group, layer, plane, head, group.position + i, element),
                      Value(layer, plane, head, token_of[i], element))
                << "layer " << layer << ", plane " << plane << ", head " << head << ", position "
                << group.position + i << ", element " << element;
}

std::vector<uint64_t> Row(uint64_t first, size_t count) {
  std::vector<uint64_t> row(count);
  std::iota(row.begin(), row.end(), first);
  return row;
}

constexpr TensorLayout kAll[] = {TensorLayout::kTokenMajor,   TensorLayout::kHeadMajor,
                                 TensorLayout::kLlamaCpp,     TensorLayout::kVllmNhd,
                                 TensorLayout::kVllmHnd,      TensorLayout::kFlashInferNhd,
                                 TensorLayout::kFlashInferHnd};

TEST(OwnedKvViewTest, NamesTheBytesOfARowOfTokens) {
  for (const TensorLayout layout : kAll) {
    SCOPED_TRACE(TensorLayoutName(layout));
    const Tensors tensors(layout, 1, 10);
    const auto view = OwnedKvView::Make(Model(),
                                        {{.layout = layout,
                                          .tensors = tensors.firsts(),
                                          .tokens = 10,
                                          .position = 100,
                                          .count = 7,
                                          .first_token = 2}},
                                        KvUse::kRestore);
    ASSERT_OK(view);
    ExpectNames(*view->view(), Row(2, 7));
  }
}

TEST(OwnedKvViewTest, NamesTheBytesOfBlocks) {
  for (const TensorLayout layout : kAll) {
    if (layout == TensorLayout::kLlamaCpp) continue;
    SCOPED_TRACE(TensorLayoutName(layout));
    const Tensors tensors(layout, 5, 4);
    GroupTensors of{.layout = layout,
                    .tensors = tensors.firsts(),
                    .blocks = 5,
                    .tokens_per_block = 4,
                    .position = 8,
                    .count = 9,
                    .first_token = 8};
    const auto in_order = OwnedKvView::Make(Model(), {of}, KvUse::kRestore);
    ASSERT_OK(in_order);
    ExpectNames(*in_order->view(), Row(8, 9));

    OwnedKvView by_table;
    {
      std::vector<int32_t> blocks = {4, 0, 3};
      of.first_token = 0;
      of.position = 9;  // The second of block 4.
      of.table = {.kind = TableKind::kBlocks,
                  .entries = blocks.data(),
                  .count = blocks.size(),
                  .table_position = 8};
      ASSERT_OK_ASSIGN(by_table, OwnedKvView::Make(Model(), {of}, KvUse::kAppend));
      blocks.assign(3, 1);  // It has its own.
    }
    ExpectNames(*by_table.view(), {17, 18, 19, 0, 1, 2, 3, 12, 13});
  }
}

TEST(OwnedKvViewTest, NamesTheBytesOfSlots) {
  const std::vector<int64_t> slots = {7, 0, 9, 3};
  for (const TensorLayout layout : kAll) {
    SCOPED_TRACE(TensorLayoutName(layout));
    const Tensors tensors(layout, 1, 10);
    auto view = OwnedKvView::Make(
        Model(),
        {{.layout = layout,
          .tensors = tensors.firsts(),
          .tokens = 10,
          .count = 4,
          .table =
              {.kind = TableKind::kSlots, .entries = slots.data(), .count = 4, .is_64_bit = true}}},
        KvUse::kRestore);
    ASSERT_OK(view);
    const OwnedKvView moved = std::move(*view);
    ExpectNames(*moved.view(), {7, 0, 9, 3});
  }
}

TEST(OwnedKvViewTest, RefusesWhatDoesNotFitByName) {
  const Tensors tensors(TensorLayout::kTokenMajor, 1, 10);
  const GroupTensors good{.tensors = tensors.firsts(), .tokens = 10, .count = 10};
  const auto refuses = [&](const char* what, const auto& change) {
    GroupTensors bad = good;
    change(&bad);
    EXPECT_FAILS(OwnedKvView::Make(Model(), {bad}, KvUse::kRestore), StatusCode::kInvalidArgument,
                 what);
  };
  ASSERT_OK(OwnedKvView::Make(Model(), {good}, KvUse::kRestore));
  refuses("the model has 1 groups", [](auto* of) { of->group = 1; });
  refuses("no such layout", [](auto* of) { of->layout = static_cast<TensorLayout>(7); });
  refuses("3 tensors; all 2 layers have 4", [](auto* of) { of->tensors = of->tensors.first(3); });
  refuses("4 tensors; all 2 layers have 2", [](auto* of) { of->layout = TensorLayout::kVllmNhd; });
  refuses("describes layers [1, 3)", [](auto* of) { of->layer_begin = 1; });
  refuses("describes no layer", [](auto* of) { of->tensors = {}; });
  refuses("tokens and blocks are 0", [](auto* of) { of->tokens = 0; });
  refuses("blocks is 0", [](auto* of) { of->tokens_per_block = 4; });
  refuses("tokens_per_block is 0", [](auto* of) { of->blocks = 4; });
  refuses("tokens [1, 1 + 10) of 10", [](auto* of) { of->first_token = 1; });
  refuses("too large", [](auto* of) { of->tokens = UINT64_MAX; });
  refuses("tokens_per_block must be 0", [](auto* of) {
    of->layout = TensorLayout::kLlamaCpp;
    of->tokens_per_block = 4;
  });
  refuses("no multiple", [](auto* of) {
    *of = {
        .tensors = of->tensors, .blocks = 2, .tokens_per_block = 5, .count = 2, .first_token = 2};
  });
  const std::vector<int32_t> slots = {3, 10};
  refuses("table entry 1 is 10", [&](auto* of) {
    of->count = 2;
    of->table = {.kind = TableKind::kSlots, .entries = slots.data(), .count = 2};
  });
  refuses("table.count is too large", [&](auto* of) {
    of->count = 1;
    of->table = {.kind = TableKind::kSlots, .entries = slots.data(), .count = UINT64_MAX};
  });
  std::vector<std::byte*> some(tensors.firsts().begin(), tensors.firsts().end());
  some[2] = nullptr;
  refuses("tensor 2 is null", [&](auto* of) { of->tensors = some; });

  ModelSpec latent = Model();
  latent.groups = {LayerGroup::Mla(kLayers, 64, 16, Dtype::kBf16)};
  if (latent.groups[0].planes.size() > 1) {
    GroupTensors one = good;
    one.layout = TensorLayout::kVllmNhd;
    one.tensors = one.tensors.first(kLayers);
    EXPECT_FAILS(OwnedKvView::Make(latent, {one}, KvUse::kRestore), StatusCode::kInvalidArgument,
                 "other heads or rows");
  }
}

// The model is one that nobody has validated.
TEST(OwnedKvViewTest, RefusesAGroupWithoutPlanes) {
  ModelSpec bare = Model();
  bare.groups[0].planes.clear();
  EXPECT_FAILS(OwnedKvView::Make(bare, {{.tokens = 10, .count = 10}}, KvUse::kRestore),
               StatusCode::kInvalidArgument, "has no planes");
  const GroupView group;
  EXPECT_FAILS(ValidateKvView(bare, {.groups = {&group, 1}}, KvUse::kRestore),
               StatusCode::kInvalidArgument, "has no planes");
}

TEST(OwnedKvViewTest, NamesOneLayer) {
  const Tensors tensors(TensorLayout::kHeadMajor, 1, 10);
  const GroupTensors second{.layout = TensorLayout::kHeadMajor,
                            .tensors = tensors.firsts().subspan(kPlanes),
                            .layer_begin = 1,
                            .tokens = 10,
                            .count = 10};
  const auto view = OwnedKvView::Make(Model(), {second}, KvUse::kRestore);
  ASSERT_OK(view);
  const GroupView& group = view->view()->groups[0];
  EXPECT_EQ(group.layer_begin, 1u);
  EXPECT_EQ(Read(group, 0, 1, 2, 3, 1), Value(1, 1, 2, 3, 1));
  EXPECT_FAILS(OwnedKvView::Make(Model(), {second}, KvUse::kAppend), StatusCode::kInvalidArgument,
               "an append needs all");
}

TEST(OwnedKvViewTest, AnEmptyOneHasNoGroup) {
  EXPECT_TRUE(OwnedKvView().view()->groups.empty());
  const auto none = OwnedKvView::Make(Model(), std::span<const GroupTensors>(), KvUse::kAppend);
  ASSERT_OK(none);
  EXPECT_TRUE(none->view()->groups.empty());
}

TEST(KvBufferTest, HasTheRowsOfEveryGroup) {
  ModelSpec model = Model();
  model.groups.push_back(LayerGroup::Recurrent(2, 32));
  model.groups.push_back(LayerGroup::SlidingWindow(1, 2, 4, Dtype::kF16, 3, 1));
  model.groups[0].name = "full";
  ASSERT_OK(model.Validate());
  KvBuffer kv(model, 5);
  EXPECT_EQ(kv.bytes().size(), 5 * model.groups[0].token_bytes() + model.groups[1].token_bytes() +
                                   5 * model.groups[2].token_bytes());
  for (const std::byte byte : kv.bytes()) ASSERT_EQ(byte, std::byte{0});
  ASSERT_OK(ValidateKvView(model, *kv.view(), KvUse::kRestore));
  ASSERT_OK(ValidateKvView(model, *kv.view(), KvUse::kAppend));

  uint16_t next = 0;
  for (uint32_t layer = 0; layer < kLayers; ++layer)
    for (uint32_t plane = 0; plane < kPlanes; ++plane)
      for (uint32_t head = 0; head < kHeads; ++head)
        for (uint64_t position = 0; position < 5; ++position) {
          const std::span<std::byte> row = kv.Row(0, layer, plane, head, position);
          ASSERT_EQ(row.size(), kElements * sizeof(uint16_t));
          for (uint32_t element = 0; element < kElements; ++element, ++next) {
            std::memcpy(&row[element * sizeof(next)], &next, sizeof(next));
          }
        }
  const OwnedKvView part = kv.View(1, 4);  // Without the state, which is behind.
  ASSERT_EQ(part.view()->groups.size(), 2u);
  const KvBuffer moved = std::move(kv);
  for (const GroupView* const group : {&moved.view()->groups[0], &part.view()->groups[0]})
    for (uint64_t position = group->position; position < group->position + group->count; ++position)
      ASSERT_EQ(Read(*group, 1, 1, 2, position, 3),
                (((1 * kPlanes + 1) * kHeads + 2) * 5 + position) * kElements + 3);
  EXPECT_EQ(moved.view()->groups[1].position, 4u);
  EXPECT_TRUE(KvBuffer(model, 0).view()->groups.empty());
}

}  // namespace
}  // namespace cairn
