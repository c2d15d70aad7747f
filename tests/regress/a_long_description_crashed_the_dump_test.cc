// SPDX-License-Identifier: Apache-2.0
//
// The bug: a model whose description was above 1 MiB was registered, and a check ended the process
// when it went into the index; and again after every opening. Method: the longest that may be
// registered goes there and comes back; a longer one, which the log may have from before, as well.
#include <limits>

#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"
#include "engine/tree/records/tree_keys.h"
#include "sstable/block_cache.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

// As long as every limit allows.
ModelSpec LongestModel() {
  ModelSpec spec = TokenModel();
  const std::string text(kMaxIdentityBytes, 'x');
  spec.identity = {.name = text,
                   .revision = text,
                   .weights_digest = text,
                   .tokenizer_digest = text,
                   .quantization = text,
                   .cache_dtype = text};
  spec.variant = {.name = text, .digest = text, .scale = 0.5};
  for (uint64_t i = 0; i < kMaxLayerGroups; ++i) {
    LayerGroup group = LayerGroup::FullAttention(1, 1, 1, Dtype::kBf16);
    group.name = std::string(kMaxGroupNameBytes, static_cast<char>('a' + i));
    group.planes.resize(kMaxPlanes, group.planes[0]);
    for (Plane& plane : group.planes) {
      plane.name = std::string(kMaxGroupNameBytes, 'p');
      plane.sealed_as = SealedAs::kInt8;
    }
    group.inv_freq.assign(kMaxInvFreq, 0.25F);
    spec.groups.push_back(group);
  }
  return spec;
}

TEST(ALongDescriptionCrashedTheDump, TheLongestIsOpenedAgain) {
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.segment_bytes = 2u << 20;  // A record holds it.
  options.hot_tail_bytes = 4u << 20;
  const ModelSpec spec = LongestModel();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ModelSpec longer = spec;
  longer.groups[3].inv_freq.push_back(1.0F);
  EXPECT_FAILS(store.RegisterModel(longer), StatusCode::kInvalidArgument, "groups[3].inv_freq");
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(spec));
  ASSERT_OK(store.Compact());
  ASSERT_OK(store.Close());
  ASSERT_OK_ASSIGN(store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelInfo info, store.GetModel(id));
  EXPECT_TRUE(spec == info.spec);
  ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty()) << report.damages[0].what;
}

// A model registered before there were limits: 2.5 MiB, and numbers that are none.
TEST(ALongDescriptionCrashedTheDump, ALongerOneOfBeforeComesBack) {
  ModelSpec spec = TinyModel();
  spec.groups[0].inv_freq.assign(640 << 10, 0.5F);
  spec.groups[0].inv_freq.back() = 0.125F;
  spec.groups[0].mscale = std::numeric_limits<float>::infinity();
  ASSERT_FALSE(spec.Validate().ok());
  const io::SimWorld machine = io::MakeSimWorld(1);
  io::World world = machine.world();
  sstable::BlockCache cache(1 << 20);
  sstable::TableCounters counters;
  sstable::LsmOptions options;
  options.tables.files = world.files.get();
  options.tables.directory = "/index";
  options.tables.cache = &cache;
  options.tables.counters = &counters;
  ASSERT_OK_ASSIGN(const std::shared_ptr<sstable::LsmIndex> index,
                   sstable::LsmIndex::Open(options, {}));
  engine::Tree tree, loaded;
  tree.SetIndex(index);
  loaded.SetIndex(index);
  std::vector<uint64_t> ids;
  for (const char* name : {"a", "b"}) {
    spec.identity.name = name;
    ASSERT_OK_ASSIGN(const engine::Op op, ResolveModel(tree, spec));
    engine::Transaction transaction;
    engine::TreeChanges changes(&tree, &transaction);
    ASSERT_OK(changes.Apply(op));
    transaction.Commit({.segment = 1, .epoch = 1, .offset = 4096, .bytes = 64}, 0);
    ids.push_back(op.other);
  }
  sstable::WriteBatch batch = index->NewBatch();
  ASSERT_OK(engine::TreeRecords::Flush(&tree, &batch));
  index->Apply(std::move(batch));
  ASSERT_OK(engine::TreeRecords::LoadRoots(&loaded));
  ASSERT_EQ(2u, loaded.models().size());
  EXPECT_TRUE(*tree.FindModel(ids[0]) == *loaded.FindModel(ids[0]));
  EXPECT_TRUE(*tree.FindModel(ids[1]) == *loaded.FindModel(ids[1]));
  engine::TreeRecords::Check(
      *index, UINT64_MAX, [](uint64_t, const engine::SealedRange&) {},
      [](const Status& damage) { ADD_FAILURE() << damage.ToString(); });
}

}  // namespace
}  // namespace cairn::testing
