// SPDX-License-Identifier: Apache-2.0
//
// Property: no table of a shadow is of another content than the branch that finds it, and one that
// holds what it should not is made again.
#include "engine/sessions/shadow/shadow_builder.h"
#include "engine/sessions/shadow/shadow_shape.h"
#include "engine/sessions/shadow/shadow_table.h"
#include "engine/store/store_core.h"
#include "tests/engine/shadow_test.h"

namespace cairn::testing {
namespace {

class ShadowTableTest : public ShadowTest {
 protected:
  engine::ShadowDeps Deps() { return chat_.core()->MakeSparseDeps(nullptr); }
  // Other rows from there on.
  void Redraw(uint64_t begin, uint64_t end) {
    SeededRandom random(99);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t plane = 0; plane < 2; ++plane) {
        for (uint32_t head = 0; head < kHeads; ++head) {
          for (uint64_t p = begin; p < end; ++p) {
            auto* const row =
                reinterpret_cast<uint16_t*>(kv_->Row(0, layer, plane, head, p).data());
            for (uint32_t c = 0; c < kChannels; ++c) row[c] = ToBf16(Drawn(&random));
          }
        }
      }
    }
  }
};

// The parts of a shorter shadow are taken over. Between the moment that it is found and the one
// that the branch's content is leased, the branch may be rewound, and have other content there.
TEST_F(ShadowTableTest, PartsAreNotTakenOverFromWhatWasRewoundMeanwhile) {
  AppendTo(chat_, 1100);
  ASSERT_OK(BuildShadow(chat_, {.spec = Small()}));
  AppendTo(chat_, 2500);
  EndDevice();
  Start({.seed = 3});
  Find();
  MakeArena();
  ASSERT_OK_ASSIGN(const engine::ShadowShape shape,
                   engine::ShapeOfBranch(Deps(), chat_.id(), 0, Small(), UINT64_MAX));
  io::SimFault slow;
  slow.delay_ns = 1'000'000'000;
  slow.when = [](const io::SimOperation& of) {
    return of.op == io::SimOp::kRead && of.path.ends_with(".snapshot");
  };
  sim_.disk->AddFault(slow);
  {
    const auto other = sim_.scheduler->StartThread("rewinds", [this] {
      sim_.scheduler->Sleep(100'000'000);
      EXPECT_OK(chat_.Rewind(10));
      Redraw(10, 2500);
      AppendTo(chat_, 2500);
    });
    const auto made = engine::MakeShadowTable(Deps(), chat_.id(), shape);
    EXPECT_TRUE(made.ok() || made.status().code() == StatusCode::kConflict);
  }
  SeededRandom random(17);
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(Small())));
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    Step(session, Small(), layer, 2500, &random);
    if (HasFailure()) break;
  }
}

// Right checksums over wrong contents are a bug of the writer; such a table is made again.
TEST_F(ShadowTableTest, ATableWithoutItsFirstPartIsMadeAgain) {
  AppendTo(chat_, 2500);
  MakeArena();
  ASSERT_OK_ASSIGN(const engine::ShadowShape shape,
                   engine::ShapeOfBranch(Deps(), chat_.id(), 0, Small(), UINT64_MAX));
  const auto write = [&](const engine::DerivedTables::Owner& owner,
                         sstable::SnapshotWriter* table) -> Status {
    const engine::ShadowPartLayout part = engine::PartsOf(shape)[1];
    engine::BeginPart(shape, static_cast<uint64_t>(owner.node), part, table);
    const std::vector<std::byte> frame(part.bytes());
    for (size_t row = 0; row < shape.rows(); ++row) {
      CAIRN_RETURN_IF_ERROR(table->AddFrame(frame, static_cast<uint32_t>(frame.size())));
    }
    return engine::WriteHead(shape, static_cast<uint64_t>(owner.node), table);
  };
  ASSERT_OK(Deps().derived->Make(chat_.id(), shape.plan.covered, shape.kind(), write));
  SeededRandom random(18);
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(Small())));
  Step(session, Small(), 0, 2500, &random);
}

// More chunks that are always attended to than there are.
TEST_F(ShadowTableTest, ATableOfMoreChunksIsMadeAgain) {
  AppendTo(chat_, 600);
  MakeArena();
  ASSERT_OK_ASSIGN(const engine::ShadowShape shape,
                   engine::ShapeOfBranch(Deps(), chat_.id(), 0, Small(), UINT64_MAX));
  const auto write = [&](const engine::DerivedTables::Owner& owner,
                         sstable::SnapshotWriter* table) -> Status {
    const auto node = static_cast<uint64_t>(owner.node);
    for (const engine::ShadowPartLayout& part : engine::PartsOf(shape)) {
      engine::BeginPart(shape, node, part, table);
      const std::vector<std::byte> frame(part.bytes());
      for (size_t row = 0; row < shape.rows(); ++row) {
        CAIRN_RETURN_IF_ERROR(table->AddFrame(frame, static_cast<uint32_t>(frame.size())));
      }
    }
    engine::ShadowShape more = shape;
    more.plan.outlier_chunks = 60;
    engine::BeginAlways(more, node, table);
    std::vector<std::byte> rows(more.always_chunks() * (4 + 4 * (32 + 32)));
    for (uint32_t i = 0; i < shape.always_chunks(); ++i) std::memcpy(&rows[i * 4], &i, 4);
    for (size_t row = 0; row < shape.rows(); ++row) {
      CAIRN_RETURN_IF_ERROR(table->AddFrame(rows, static_cast<uint32_t>(rows.size())));
    }
    return engine::WriteHead(shape, node, table);
  };
  ASSERT_OK(Deps().derived->Make(chat_.id(), shape.plan.covered, shape.kind(), write));
  SeededRandom random(19);
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(Small())));
  Step(session, Small(), 0, 600, &random);
}

// Frames of the widest rows that a chunk of 16 tokens can have are more than a table takes.
TEST_F(GpuTest, AShadowOfWideRowsIsMadeOrRefused) {
  ModelSpec model;
  model.identity.name = "wide";
  model.groups = {LayerGroup::FullAttention(1, 1, 16400, Dtype::kBf16)};
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
  ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
  const KvBuffer kv(model, 1120);
  for (uint64_t at = 0; at < 1120; at += 16) {
    const std::vector<TokenId> tokens(16, 7);
    const OwnedKvView view = kv.View(at, at + 16);
    ASSERT_OK(chat_.AppendSync({.tokens = tokens, .kv = view}));
  }
  ShadowSpec spec;
  spec.chunk_tokens = 16;
  spec.sink_tokens = 1024;
  const auto made = BuildShadow(chat_, {.spec = spec});
  EXPECT_TRUE(made.ok() || made.status().code() == StatusCode::kInvalidArgument)
      << made.status().ToString();
}

}  // namespace
}  // namespace cairn::testing
