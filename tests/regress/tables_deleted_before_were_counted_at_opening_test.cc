// SPDX-License-Identifier: Apache-2.0
//
// The bug: a store that had deleted dead tables and had not flushed its index since counted them
// again when it was opened, as if their files existed. It could be above max_bytes then, with room
// on the disk: it gave its spare segments away and refused data until the background had deleted
// these tables once more.
// Method: a store is filled with tables twice, the first ones dropped and gone, and opened again.
// The counted bytes are compared with the disk.
#include "engine/config/constants.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class TablesDeletedBefore : public ::testing::TestWithParam<uint64_t> {
 protected:
  // Counts the log and tables; the small files are a constant.
  uint64_t BytesOnDisk() const {
    uint64_t bytes = engine::kSmallFilesBytes;
    for (const std::string& file : machine_.disk->Files()) {
      const bool counted = file.starts_with("store/log/") || file.starts_with("store/tables/");
      if (counted) bytes += machine_.disk->Info(file)->allocated_bytes;
    }
    return bytes;
  }
  void Fill(Store* store, ModelId id, std::vector<Branch>* full) {
    Status added;
    while (added.ok()) {
      auto made = store->CreateBranch(id);
      added = made.status();
      if (made.ok()) full->push_back(*made);
      for (uint64_t at = 0; added.ok() && at < 32; at += 8) {
        added = AppendSome(*made, model_, at, 8).status();
      }
    }
    EXPECT_EQ(StatusCode::kNoSpace, added.code()) << added.ToString();
  }
  void DropAll(std::vector<Branch>* full) {
    for (Branch& one : *full) ASSERT_OK(one.Drop());
    full->clear();
  }

  const io::SimWorld machine_ = io::MakeSimWorld(GetParam());
  const ModelSpec model_ = WideModel();
};

INSTANTIATE_TEST_SUITE_P(Seeds, TablesDeletedBefore, ::testing::Range<uint64_t>(1, 4));

TEST_P(TablesDeletedBefore, WereCountedAtOpening) {
  std::vector<std::string> events;
  auto listener = std::make_shared<EventListener>();
  listener->on_event = [&](const std::string& line) { events.push_back(line); };
  Options options = TinyOptions();
  options.max_bytes = 8 << 20;
  options.listener = listener;
  options.world = std::make_shared<io::World>(machine_.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model_));
  std::vector<Branch> full;
  Fill(&store, id, &full);
  ASSERT_OK(store.Compact());
  ASSERT_GT(store.Metrics().table_bytes, options.max_bytes / 2);
  DropAll(&full);
  for (int i = 0; i < 500 && BytesOnDisk() > options.max_bytes / 2; ++i) {
    machine_.scheduler->Sleep(10'000'000);
  }
  ASSERT_LT(BytesOnDisk(), options.max_bytes / 2) << "they were not deleted";
  Fill(&store, id, &full);
  EXPECT_EQ(BytesOnDisk(), store.Metrics().physical_bytes);

  events.clear();
  ASSERT_OK(store.Close());
  ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
  EXPECT_EQ(BytesOnDisk(), store.Metrics().physical_bytes);
  EXPECT_LE(store.Metrics().physical_bytes, options.max_bytes);
  for (const std::string& line : events) EXPECT_FALSE(line.starts_with("max_bytes is")) << line;
}

}  // namespace
}  // namespace cairn::testing
