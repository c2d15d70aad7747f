// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn verify` finds damage and names the place, other commands serve the rest, and
// `cairn repair` shows what it would lose before it does anything, mends what can be mended, and
// says what cannot. Method: bytes are flipped at places that `cairn dump-wal` names, and files are
// removed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "cairn/objects.h"
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliDamageTest : public CliTest {};

TEST_F(CliDamageTest, DamagedPayloadIsFoundAndTheRestIsServed) {
  MakeFiveGroups();
  EXPECT_EQ(JsonOutput({"verify", store_, "--all"})["ok"], true);
  const json record = AppendRecord(2);
  FlipByte(SegmentFile(record["segment"]), record["strips"][0]["offset"].get<uint64_t>() + 5);

  EXPECT_EQ(JsonOutput({"verify", store_})["ok"], true);  // Headers alone are whole.
  const json report = JsonOutput({"verify", store_, "--all"}, 4);
  EXPECT_EQ(report["ok"], false);
  ASSERT_EQ(report["damages"].size(), 1u);
  EXPECT_EQ(report["damages"][0]["sequence"], record["sequence"]);
  const std::string text = Output({"verify", store_, "--all"}, 4);
  EXPECT_NE(text.find("DAMAGED  "), std::string::npos) << text;
  EXPECT_NE(text.find("1 damaged place\n"), std::string::npos) << text;

  EXPECT_EQ(Output({"cat", store_, "chat", "--end", "20"}).substr(0, 6), "0 1 2 ");
  ExpectError({"cat", store_, "chat"}, 4, "Corruption", "offset");
  const std::string dump = Output({"dump-wal", store_, "--verify"}, 4);
  EXPECT_NE(dump.find("DAMAGED"), std::string::npos) << dump;
  // Nothing to cut: the store opens.
  EXPECT_EQ(JsonOutput({"repair", store_})["damaged"], false);
}

TEST_F(CliDamageTest, DamagedHeaderIsDumpedAround) {
  MakeFiveGroups();
  const json record = AppendRecord(2);
  FlipByte(SegmentFile(record["segment"]), record["offset"].get<uint64_t>() + 20);
  ExpectError({"ls", store_}, 4, "Corruption", "offset");
  const json report = JsonOutput({"verify", store_}, 4);
  EXPECT_EQ(report["ok"], false);
  ASSERT_EQ(report["damages"].size(), 1u);
  EXPECT_EQ(report["opened"], false);
  const std::string text = Output({"verify", store_}, 4);
  EXPECT_NE(text.find("nothing else was checked"), std::string::npos) << text;

  size_t records = 0, stops = 0;
  for (const json& line : JsonLines(Output({"dump-wal", store_, "--json"}, 4))) {
    records += line["type"] == "record" ? 1 : 0;
    if (line["type"] != "stop" || line["kind"] != "damaged") continue;
    ++stops;
    EXPECT_EQ(line["lost"], json::array({record["sequence"], record["sequence"]}));
    EXPECT_EQ(line["segment"], record["segment"]);
    EXPECT_GT(line["resumes_at"].get<uint64_t>(), line["offset"].get<uint64_t>());
  }
  EXPECT_EQ(records, 6u);
  EXPECT_EQ(stops, 1u);
}

TEST_F(CliDamageTest, DumpWalReadsALogWithoutManifest) {
  MakeFiveGroups();
  for (const auto& entry : fs::directory_iterator(store_)) {
    if (entry.path().filename().string().starts_with("MANIFEST-")) FlipByte(entry.path(), 20);
  }
  ExpectError({"ls", store_}, 4, "Corruption", "MANIFEST");
  const ToolResult result = Cairn({"dump-wal", store_, "--json"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.errors.find("MANIFEST"), std::string::npos) << result.errors;
  size_t records = 0;
  for (const json& line : JsonLines(result.output)) records += line["type"] == "record" ? 1 : 0;
  EXPECT_EQ(records, 7u);
}

TEST_F(CliDamageTest, RepairShowsFirstAndCutsWhenTold) {
  MakeFiveGroups();
  EXPECT_EQ(Output({"repair", store_}),
            store_ +
                ": opens as it is, so there is nothing to cut; damaged payload and tables, or "
                "tables that are missing, are found by: cairn verify --all " +
                store_ + "\n");
  const json record = AppendRecord(2);
  const fs::path segment = SegmentFile(record["segment"]);
  FlipByte(segment, record["offset"].get<uint64_t>() + 20);

  const Bytes before = AllFiles();
  const json plan = JsonOutput({"repair", store_}, 4);
  EXPECT_EQ(plan["repaired"], false);
  EXPECT_EQ(plan["kept"]["last_sequence"], record["sequence"].get<int>() - 1);
  ASSERT_EQ(plan["kept"]["branches"].size(), 1u);
  EXPECT_EQ(plan["kept"]["branches"][0]["length"], 20);
  ASSERT_EQ(plan["damages"].size(), 1u);
  ASSERT_EQ(plan["cut"].size(), 2u);
  EXPECT_EQ(plan["cut"][0]["sequence"], record["sequence"].get<int>() + 1);
  const std::string text = Output({"repair", store_}, 4);
  EXPECT_NE(text.find("nothing was changed"), std::string::npos) << text;
  EXPECT_NE(text.find("chat (#"), std::string::npos) << text;
  EXPECT_TRUE(AllFiles() == before) << "a dry run changed the store";

  const std::string damaged = ReadFile(segment);
  const json done = JsonOutput({"repair", store_, "--yes"});
  EXPECT_EQ(done["repaired"], true);
  ASSERT_EQ(done["copies"].size(), 1u);
  EXPECT_TRUE(ReadFile(done["copies"][0].get<std::string>()) == damaged);
  EXPECT_EQ(JsonOutput({"verify", store_, "--all"})["ok"], true);
  EXPECT_EQ(JsonOutput({"repair", store_})["damaged"], false);
  EXPECT_EQ(JsonOutput({"show", store_, "chat"})["length"], 20);
  Output({"append", store_, "chat", "100", "--expected-length", "20"});
  EXPECT_EQ(Output({"cat", store_, "chat", "--begin", "18"}), "18 19 100\n");
}

TEST_F(CliDamageTest, RepairOfAStoreThatLosesAllItsBranches) {
  MakeFiveGroups();
  for (const json& line : JsonLines(Output({"dump-wal", store_, "--json"}))) {
    if (line["type"] != "record" || line["kind"] != "create") continue;
    FlipByte(SegmentFile(line["segment"]), line["offset"].get<uint64_t>() + 20);
  }
  EXPECT_EQ(JsonOutput({"repair", store_}, 4)["kept"]["branches"], json::array());
  const json done = JsonOutput({"repair", store_, "--yes", "--no-keep"});
  EXPECT_EQ(done["copies"], json::array());
  EXPECT_EQ(JsonOutput({"verify", store_, "--all"})["ok"], true);
  EXPECT_EQ(JsonOutput({"ls", store_})["branches"], json::array());
  Output({"append", store_, "fresh", "--create", "1"});
}

// One before the damage, one in it, and behind it one that is deleted again, one that replaces
// another, and a large one, which lies in several records.
TEST_F(CliDamageTest, RepairTellsOfObjects) {
  {
    Store store = OpenStore();
    Objects objects(store);
    const auto id = objects.RegisterClass({.name = "bytes", .page_bytes = 4096});
    ASSERT_TRUE(id.ok());
    const auto put = [&](std::string_view key, std::string_view ns, size_t bytes) {
      const std::vector<std::byte> value(bytes);
      const ObjectPut one{.key = key, .value = value};
      const auto done = objects.PutBatch({&one, 1}, {.ns = ns,
                                                     .object_class = *id,
                                                     .if_present = IfPresent::kReplace,
                                                     .durability = Durability::kPower});
      EXPECT_TRUE(done.ok() && (*done)[0].stored) << key;
    };
    const std::string_view gone = "gone", with_nul("a\0b", 3);
    put("first", "", 1);
    put("damaged", "t", 1);
    put(gone, "t", 1);
    EXPECT_TRUE(objects.Delete({&gone, 1}, "t", Durability::kPower).ok());
    put(with_nul, "t", 1);
    put(with_nul, "t", 2);
    put("large", "", 140'000);
    ASSERT_TRUE(store.Close().ok());
  }
  EXPECT_EQ(JsonOutput({"verify", store_})["objects"], 4);
  EXPECT_NE(Output({"verify", store_}).find("; it holds 4 objects\n"), std::string::npos);

  json record;
  for (const json& line : JsonLines(Output({"dump-wal", store_, "--json"}))) {
    if (line["type"] == "record" && line.dump().find("damaged") != std::string::npos) record = line;
  }
  ASSERT_TRUE(record.is_object());
  FlipByte(SegmentFile(record["segment"]), record["offset"].get<uint64_t>() + 20);
  const json report = JsonOutput({"repair", store_}, 4);
  EXPECT_EQ(report["kept"]["objects"], json::array({{{"ns", ""}, {"objects", 1}}}));
  const json& cut = report["cut_objects"];
  ASSERT_EQ(cut.size(), 2u) << cut;
  EXPECT_EQ(cut[0]["ns"], "t");
  EXPECT_EQ(cut[0]["key"], "a\\x00b");
  EXPECT_EQ(cut[1]["ns"], "");
  EXPECT_EQ(cut[1]["key"], "large");
  EXPECT_GT(cut[1]["sequence"].get<int>(), cut[0]["sequence"].get<int>());
  const std::string text = Output({"repair", store_}, 4);
  EXPECT_NE(text.find("0 branches, 1 object\n"), std::string::npos) << text;
  EXPECT_NE(text.find("cut with them: 2 objects\n  a\\x00b of namespace \"t\"\n  large\n"),
            std::string::npos)
      << text;
  Output({"repair", store_, "--yes"});
  EXPECT_EQ(JsonOutput({"objects", "ls", store_})["objects"].size(), 1u);
  EXPECT_EQ(JsonOutput({"verify", store_, "--all"})["objects"], 1);
}

TEST_F(CliDamageTest, RepairOffersNoCutOfALogThatIsMissing) {
  MakeFiveGroups();
  fs::remove_all(fs::path(store_) / "log");
  ExpectError({"repair", store_}, 4, "Corruption", "the whole log is missing");
  ExpectError({"repair", store_, "--yes"}, 4, "Corruption", "the whole log is missing");
}

TEST_F(CliDamageTest, RepairTellsWhatItCannotMend) {
  MakeFiveGroups();
  fs::path manifest;
  for (const auto& entry : fs::directory_iterator(store_)) {
    if (entry.path().filename().string().starts_with("MANIFEST-")) manifest = entry.path();
  }
  FlipByte(manifest, 20);
  ExpectError({"repair", store_}, 4, "Corruption", manifest.filename().string());
  ExpectError({"repair", store_, "--yes"}, 4, "Corruption", "cannot mend this");
}

TEST_F(CliDamageTest, RepairMendsAnIndexThatLostATable) {
  MakeFiveGroups();
  Output({"compact", store_});
  std::vector<fs::path> index;  // Has the tree's, and that of prefixes.
  for (const auto& entry : fs::recursive_directory_iterator(store_)) {
    if (entry.path().extension() == ".index") index.push_back(entry.path());
  }
  for (const fs::path& path : index) FlipByte(path, fs::file_size(path) - 4000);
  ExpectError({"ls", store_}, 4, "Corruption", ".index");
  const Bytes before = AllFiles();
  const json plan = JsonOutput({"repair", store_}, 4);
  EXPECT_NE(plan["gone"].get<std::string>().find(".index"), std::string::npos) << plan;
  EXPECT_TRUE(AllFiles() == before) << "a dry run changed the store";
  EXPECT_EQ(JsonOutput({"repair", store_, "--yes"})["repaired"], true);
  EXPECT_EQ(JsonOutput({"repair", store_})["damaged"], false);
  EXPECT_EQ(JsonOutput({"verify", store_, "--all"})["ok"], true);
  size_t moved = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(store_) / "lost")) {
    moved += entry.path().extension() == ".index" ? 1 : 0;
  }
  EXPECT_GE(moved, 1u);
}

TEST_F(CliDamageTest, VerifyNamesFilesOfAStoreThatDoesNotOpen) {
  MakeFiveGroups();
  const json record = AppendRecord(2);
  FlipByte(SegmentFile(record["segment"]), record["offset"].get<uint64_t>() + 20);
  const json report = JsonOutput({"verify", store_}, 4);
  ASSERT_EQ(report["damages"].size(), 1u);
  EXPECT_EQ(report["damages"][0]["where"],
            "log/" + SegmentFile(record["segment"]).filename().string());
  const std::string what = report["damages"][0]["what"];
  EXPECT_TRUE(what.starts_with("Corruption: offset ")) << what;

  fs::remove_all(store_);
  MakeFiveGroups();
  Output({"compact", store_});
  std::vector<fs::path> tables;
  for (const auto& entry : fs::directory_iterator(fs::path(store_) / "tables")) {
    if (entry.path().extension() == ".index") tables.push_back(entry.path());
  }
  for (const fs::path& table : tables) fs::remove(table);
  const std::string text = Output({"verify", store_}, 4);
  EXPECT_TRUE(text.starts_with("DAMAGED  tables/")) << text;
  EXPECT_NE(text.find(".index: Corruption: "), std::string::npos) << text;
}

TEST_F(CliDamageTest, VerifyLooksAtTablesByLevel) {
  MakeFiveGroups();
  {
    Store store = OpenStore();
    ASSERT_TRUE(store.Compact().ok());
    ASSERT_TRUE(store.Close().ok());
  }
  fs::path table;
  for (const auto& entry : fs::directory_iterator(fs::path(store_) / "tables")) {
    if (entry.path().extension() == ".snapshot") table = entry.path();
  }
  EXPECT_EQ(JsonOutput({"verify", store_, "--index"})["level"], "index");
  const json whole = JsonOutput({"verify", store_, "--all"});
  EXPECT_EQ(whole["tables"], 1);
  EXPECT_GE(whole["index_tables"].get<int>(), 1);
  EXPECT_GE(whole["frames"].get<int>(), 1);
  FlipByte(table, 14);  // In the first frame, a block of token ids.
  EXPECT_EQ(JsonOutput({"verify", store_, "--index"})["ok"], true);
  const json damaged = JsonOutput({"verify", store_, "--all"}, 4);
  ASSERT_EQ(damaged["damages"].size(), 1u);
  EXPECT_EQ(damaged["damages"][0]["where"], "tables/" + table.filename().string());
  FlipByte(table, fs::file_size(table) - 4000);  // The footer.
  EXPECT_EQ(JsonOutput({"verify", store_}, 4)["damages"].size(), 1u);
  fs::remove(table);
  const std::string gone = Output({"verify", store_}, 4);
  EXPECT_TRUE(gone.starts_with("DAMAGED  tables/" + table.filename().string() + ": Corruption: "))
      << gone;
  EXPECT_NE(gone.find(": the file is gone\n"), std::string::npos) << gone;
  EXPECT_EQ(gone.find(store_ + "/"), std::string::npos) << gone;
}

TEST_F(CliDamageTest, RepairDoesNotTouchAStoreInUse) {
  Store store = OpenStore();
  const Bytes before = AllFiles();
  EXPECT_EQ(JsonOutput({"repair", store_, "--yes"})["repaired"], false);
  EXPECT_EQ(AllFiles().size(), before.size());
  ASSERT_TRUE(store.Close().ok());
}

}  // namespace
}  // namespace cairn::testing
