// SPDX-License-Identifier: Apache-2.0
//
// Property: each level of Verify finds the damage that it promises to, in every kind of file, names
// file and offset, and goes on to the next; a whole store has none at any level.
// Method: on the simulated disk bits are flipped under an open store, whose caches must not hide
// them; records are taken out of an index to see that the others miss them.
#include "engine/manifest/manifest.h"
#include "engine/tree/records/tree_records.h"
#include "sstable/snapshot_format.h"
#include "tests/engine/engine_test.h"
#include "wal/format.h"

namespace cairn::testing {
namespace {

class VerifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = TinyOptions();
    options_.world = std::make_shared<io::World>(sim_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(id, {.name = "chat"}));
    SamplerState sampler;
    sampler.generator = GeneratorKind::kPhilox;
    AppMetadata metadata;
    metadata.bytes.assign(5, std::byte{1});
    const std::vector<TokenId> tokens = Tokens(40);
    KvSet kv(model_, Layout::kContiguous, 0, 40);
    kv.Write(kSeed, 0, 40);
    Delta delta = MakeDelta(tokens, kv.View(0, 40));
    delta.sampler = &sampler;
    delta.metadata = &metadata;
    ASSERT_OK(chat.AppendSync(delta));
    ASSERT_OK_ASSIGN(Branch fork, chat.ForkAt(10, {.name = "fork"}));
    ASSERT_OK(AppendSome(fork, model_, 10, 5));
    ASSERT_OK(store_.Compact());
    ASSERT_OK(AppendSome(chat, model_, 40, 3, kSeed, Durability::kPower));
    ASSERT_OK(AppendSome(chat, model_, 43, 3, kSeed, Durability::kPower));
    ASSERT_OK(store_.Flush());
  }

  VerifyReport Verify(VerifyLevel level) {
    auto report = store_.Verify(level);
    EXPECT_OK(report);
    return report.ok() ? *report : VerifyReport();
  }
  // Expects this many damages at the three levels.
  void Expect(size_t headers, size_t index, size_t all) {
    EXPECT_EQ(headers, Verify(VerifyLevel::kHeaders).damages.size());
    EXPECT_EQ(index, Verify(VerifyLevel::kIndex).damages.size());
    EXPECT_EQ(all, Verify(VerifyLevel::kAll).damages.size());
  }
  std::string PathOf(const std::string& part) {
    for (const std::string& path : sim_.disk->Files()) {
      if (path.find(part) != std::string::npos) return path;
    }
    ADD_FAILURE() << part;
    return "";
  }
  void Flip(const std::string& path, uint64_t offset) {
    ASSERT_OK(sim_.disk->FlipBit(path, offset, 3));
  }
  std::vector<std::byte> Bytes(const std::string& path) { return *sim_.disk->ReadRaw(path); }

  io::SimWorld sim_ = io::MakeSimWorld(1);
  const ModelSpec model_ = TinyModel();
  Options options_;
  Store store_;
};

TEST_F(VerifyTest, AWholeStoreHasNoDamageAndIsCounted) {
  Expect(0, 0, 0);
  const VerifyReport headers = Verify(VerifyLevel::kHeaders), all = Verify(VerifyLevel::kAll);
  EXPECT_EQ(1U, headers.tables);
  EXPECT_GE(headers.index_tables, 1U);
  EXPECT_GE(headers.records, 2U);
  EXPECT_EQ(0U, headers.frames + headers.strips + headers.bytes);
  EXPECT_GT(all.frames, 10U);
  EXPECT_GE(all.strips, 4U);
}

TEST_F(VerifyTest, SmallFiles) {
  Flip(PathOf("MANIFEST-"), 30);
  Expect(1, 1, 1);
  Flip(PathOf("OPTIONS"), 80);
  const std::string text = "sync_method=prayer\n";
  ASSERT_OK(sim_.disk->WriteRaw(PathOf("OPTIONS"), 0, std::as_bytes(std::span(text))));
  const VerifyReport report = Verify(VerifyLevel::kHeaders);
  ASSERT_EQ(2U, report.damages.size());
  EXPECT_EQ("MANIFEST", report.damages[0].where);
  EXPECT_EQ("OPTIONS", report.damages[1].where);
}

TEST_F(VerifyTest, TheIndex) {
  const std::string path = PathOf(".index");
  const uint64_t size = Bytes(path).size();
  Flip(path, 100);  // The first data block.
  Expect(0, 1, 1);
  const VerifyReport report = Verify(VerifyLevel::kIndex);
  EXPECT_EQ(path, "store/" + report.damages[0].where);
  EXPECT_NE(std::string::npos, report.damages[0].what.find("offset 0")) << report.damages[0].what;
  Flip(path, 100);
  Flip(path, size - 4000);  // The footer.
  Expect(1, 1, 1);
}

TEST_F(VerifyTest, SnapshotTablesPlaceByPlace) {
  const std::string path = PathOf(".snapshot");
  const std::vector<std::byte> bytes = Bytes(path);
  const auto footer =
      wal::LoadAs<sstable::SnapshotFooter>(bytes.data() + bytes.size() - io::kBlockBytes);
  const auto fragment_at = [&](uint64_t i) {
    return wal::LoadAs<sstable::FragmentEntry>(bytes.data() + footer.fragments_offset +
                                               i * sizeof(sstable::FragmentEntry));
  };
  // The first frame of the table, one within, and the last.
  const auto first = fragment_at(0), middle = fragment_at(footer.fragment_count / 2),
             last = fragment_at(footer.fragment_count - 1);
  for (const uint64_t at :
       {first.entries_offset, middle.entries_offset,
        last.entries_offset + last.entries_bytes() - sizeof(sstable::FrameEntry)}) {
    Flip(path, wal::LoadAs<sstable::FrameEntry>(bytes.data() + at).offset);
  }
  Expect(0, 0, 3);
  const VerifyReport report = Verify(VerifyLevel::kAll);
  for (const VerifyReport::Damage& damage : report.damages) {
    EXPECT_EQ(path, "store/" + damage.where);
    EXPECT_NE(std::string::npos, damage.what.find("offset ")) << damage.what;
  }
  Flip(path, first.entries_offset + 1);  // The entries of the first fragment: its frames are lost.
  Expect(0, 1, 3);
  Flip(path, footer.fragments_offset + 1);
  Expect(0, 1, 1);
  Flip(path, bytes.size() - 4000);
  Expect(1, 1, 1);
  ASSERT_OK(sim_.disk->Remove(path));
  Expect(1, 1, 1);
  const VerifyReport gone = Verify(VerifyLevel::kHeaders);
  EXPECT_EQ(path, "store/" + gone.damages[0].where);
  EXPECT_TRUE(gone.damages[0].what.starts_with("Corruption: ")) << gone.damages[0].what;
  EXPECT_TRUE(gone.damages[0].what.ends_with(": the file is gone")) << gone.damages[0].what;
}

// One style: by the path below the store's directory.
TEST_F(VerifyTest, FilesAreNamedByTheirPathInTheStore) {
  const std::string table = PathOf(".snapshot").substr(6), index = PathOf(".index").substr(6);
  std::string segment;  // The one with records.
  for (const std::string& path : sim_.disk->Files()) {
    if (!path.starts_with("store/log/0")) continue;
    const std::vector<std::byte> bytes = Bytes(path);
    for (uint64_t at = 0; at + 64 <= bytes.size(); at += 64) {
      const auto frame = wal::LoadAs<wal::RecordFrame>(bytes.data() + at);
      if (frame.magic != wal::kRecordMagic || frame.strip_count != 2) continue;
      if (segment.empty()) Flip(path, at + frame.payload_offset + 70);  // Damages the first.
      segment = path.substr(6);
    }
  }
  Flip(PathOf("MANIFEST-"), 30);
  Flip("store/" + table, Bytes("store/" + table).size() - 4000);
  Flip("store/" + index, Bytes("store/" + index).size() - 4000);
  std::vector<std::string> places;
  for (const VerifyReport::Damage& damage : Verify(VerifyLevel::kAll).damages) {
    places.push_back(damage.where.substr(0, damage.where.find(':')));
    EXPECT_EQ(std::string::npos, damage.what.find("/store/")) << damage.what;
  }
  EXPECT_EQ((std::vector<std::string>{"MANIFEST", segment, index, table}), places);
}

TEST_F(VerifyTest, TheLog) {
  std::vector<std::pair<std::string, uint64_t>> records;
  for (const std::string& path : sim_.disk->Files()) {
    if (!path.starts_with("store/log/0")) continue;
    const std::vector<std::byte> bytes = Bytes(path);
    for (uint64_t at = 0; at + 64 <= bytes.size(); at += 64) {
      const auto frame = wal::LoadAs<wal::RecordFrame>(bytes.data() + at);
      if (frame.magic == wal::kRecordMagic && frame.strip_count == 2)
        records.emplace_back(path, at);
    }
  }
  ASSERT_GE(records.size(), 3U);
  const auto flip_payload = [&](size_t i) {
    const auto& [path, at] = records[i];
    const auto frame = wal::LoadAs<wal::RecordFrame>(Bytes(path).data() + at);
    Flip(path, at + frame.payload_offset + 70);
  };
  for (size_t i = 0; i + 1 < records.size(); ++i) flip_payload(i);
  Expect(0, 0, records.size() - 1);
  // Damage of the last group ends the log for its reader; Verify notices it.
  flip_payload(records.size() - 1);
  Expect(1, 1, records.size());
  // A header: the payloads in front of it and the tables are gone on with.
  flip_payload(records.size() - 1);
  Flip(records.back().first, records.back().second + 20);
  Flip(PathOf(".snapshot"), Bytes(PathOf(".snapshot")).size() - 4000);
  Expect(2, 2, records.size() + 1);
}

// Records that are intact each and do not fit each other.
TEST_F(VerifyTest, TheTreesRecordsAgainstEachOther) {
  ASSERT_OK(store_.Compact());
  ASSERT_OK(store_.Close());
  io::World world = sim_.world();
  ASSERT_OK_ASSIGN(const engine::Manifest manifest, engine::ReadManifest(*world.files, "/store"));
  sstable::BlockCache cache(1 << 20);
  sstable::TableCounters counters;
  sstable::TableContext context;
  context.files = world.files.get();
  context.directory = "/store/tables";
  context.store = manifest.store;
  context.cache = &cache;
  context.counters = &counters;
  const auto damages_without = [&](const std::function<bool(std::string_view)>& taken,
                                   const std::string& added = "") {
    auto index = sstable::LsmIndex::Open({context, {}}, manifest.index);
    EXPECT_OK(index);
    sstable::WriteBatch batch = (*index)->NewBatch();
    {
      const auto scan = (*index)->NewScan();
      for (scan->Seek(""); scan->valid(); scan->Next()) {
        if (!taken(scan->key())) continue;
        EXPECT_OK(batch.Delete(scan->key()));
      }
    }
    if (!added.empty()) {
      EXPECT_OK(batch.Put(added, ""));
    }
    (*index)->Apply(std::move(batch));
    std::string all;
    engine::TreeRecords::Check(
        **index, manifest.counted_from, [](uint64_t, const engine::SealedRange&) {},
        [&](const Status& status) { all += status.ToString() + "\n"; });
    return all;
  };
  constexpr size_t kIdKey = 9;
  EXPECT_EQ("", damages_without([](std::string_view) { return false; }));
  const auto has = [&](const std::string& what,
                       const std::function<bool(std::string_view)>& taken) {
    const std::string all = damages_without(taken);
    EXPECT_NE(std::string::npos, all.find(what)) << all;
  };
  has("model is missing", [](std::string_view key) { return key[0] == 'M'; });
  has("table ", [](std::string_view key) { return key[0] == 'T'; });
  has("lane 1 has a gap", [](std::string_view key) {
    return key.size() > kIdKey && key[kIdKey] == 0 && key[kIdKey + 1] == 1;
  });
  has("a chunk without its node",
      [](std::string_view key) { return key[0] == 'N' && key.size() == kIdKey; });
  has("its node is missing", [](std::string_view key) { return key[0] == 'N'; });
  has("its parent is missing", [first = std::string()](std::string_view key) mutable {
    if (key[0] != 'N') return false;
    if (first.empty()) first = key.substr(0, kIdKey);  // Older than its children.
    return key.starts_with(first);
  });
  has("nothing needs it", [](std::string_view key) { return key[0] == 'R'; });
  has("it ends at 46, what needs it at 10", [first = true](std::string_view key) mutable {
    return key[0] == 'R' && std::exchange(first, false);  // The farthest of the first node.
  });
  has("its node does not know of it", [](std::string_view key) { return key[0] == 'R'; });
  has("its parent does not know of it", [](std::string_view key) { return key[0] == 'R'; });
  std::string node;  // The first.
  damages_without([&](std::string_view key) {
    if (key[0] == 'N' && node.empty()) node = key.substr(1);
    return false;
  });
  for (const auto& [added, what] : {std::pair("D" + node, "its node says something else"),
                                    std::pair(std::string("D12345678"), "its node is missing"),
                                    std::pair(std::string("D1"), "no such kind")}) {
    const std::string all = damages_without([](std::string_view) { return false; }, added);
    EXPECT_NE(std::string::npos, all.find(what)) << all;
  }
  has("cannot be found by number", [](std::string_view key) { return key[0] == 'H'; });
  has("its branch is missing", [](std::string_view key) { return key[0] == 'B'; });
}

}  // namespace
}  // namespace cairn::testing
