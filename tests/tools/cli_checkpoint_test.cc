// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn checkpoint` makes a copy that the other commands take for a store, says what it
// holds, and refuses places and stores that it cannot have without touching them.
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliCheckpointTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    copy_ = (root_ / "copy").string();
  }
  std::string copy_;
};

TEST_F(CliCheckpointTest, TheCopyIsAStoreOfItsOwn) {
  MakeFiveGroups();
  const std::string before = Output({"cat", store_, "chat"});
  const json made = JsonOutput({"checkpoint", store_, copy_});
  EXPECT_EQ(made["target"], copy_);
  EXPECT_EQ(made["sequence"], 7);  // A model, a branch, five appends.
  EXPECT_EQ(made["copied_tables"], 0);
  EXPECT_GT(made["copied_bytes"].get<uint64_t>(), 0u);
  EXPECT_EQ(Output({"cat", copy_, "chat"}), before);
  EXPECT_EQ(JsonOutput({"verify", copy_, "--all"})["ok"], true);
  Output({"append", copy_, "chat", "1"});
  EXPECT_NE(Output({"drop", store_, "chat"}).find(": dropped, it had "), std::string::npos);
  EXPECT_EQ(Output({"cat", copy_, "chat"}), before.substr(0, before.size() - 1) + " 1\n");
}

// A copy of three tokens took 65 MB on disk while 16 KiB were said to be copied, and stat called
// that 5592405.33 times the raw bytes.
TEST_F(CliCheckpointTest, ACopyOfThreeTokensIsSmallAndSoItIsSaid) {
  Output({"create", store_, "--segment-bytes", "64MiB"});
  Output({"append", store_, "chat", "--create", "1", "2", "3"});
  const json made = JsonOutput({"checkpoint", store_, copy_});
  uint64_t bytes = 0, files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(copy_)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    bytes += entry.file_size();
  }
  EXPECT_LT(bytes, 64u << 10);
  EXPECT_EQ(made["files"]["count"], files);
  EXPECT_EQ(made["files"]["bytes"], bytes);
  EXPECT_LT(made["own_allocated_bytes"].get<uint64_t>(), 128u << 10);
  const std::string stat = Output({"stat", copy_});
  EXPECT_EQ(stat.find("times the raw bytes"), std::string::npos) << stat;
  EXPECT_EQ(JsonOutput({"stat", copy_})["space"]["allocated_bytes"],
            made["files"]["allocated_bytes"]);
  EXPECT_EQ(Output({"cat", copy_, "chat"}), "1 2 3\n");
}

TEST_F(CliCheckpointTest, SealedTablesAreShared) {
  MakeFiveGroups();
  {
    Store store = OpenStore();
    ASSERT_TRUE(store.Compact().ok());
    ASSERT_TRUE(store.Close().ok());
  }
  const std::string text = Output({"checkpoint", store_, copy_});
  EXPECT_NE(text.find("up to sequence "), std::string::npos) << text;
  size_t tables = 0, shared = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(copy_) / "tables")) {
    ++tables;
    shared += fs::hard_link_count(entry.path()) == 2 ? 1 : 0;
  }
  EXPECT_GE(tables, 2u) << "of the index, and a snapshot table";
  EXPECT_EQ(shared, tables);
  EXPECT_NE(text.find(std::to_string(tables) + " tables linked (with those of the index)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(" of its own, "), std::string::npos) << text;
  const json stat = JsonOutput({"stat", copy_});
  EXPECT_GT(stat["space"]["shared_allocated_bytes"].get<uint64_t>(), 0u);
}

TEST_F(CliCheckpointTest, RefusesWhatIsTaken) {
  ExpectError({"checkpoint", store_, copy_}, 3, "NotFound", store_);
  MakeFiveGroups();
  ExpectError({"checkpoint", store_}, 2, "InvalidArgument", "TARGET");
  ExpectError({"checkpoint", store_, ""}, 2, "InvalidArgument", "empty");
  ExpectError({"checkpoint", store_, store_}, 6, "AlreadyExists", store_);
  fs::create_directory(copy_);
  std::ofstream(fs::path(copy_) / "thesis.txt") << "mine";
  ExpectError({"checkpoint", store_, copy_}, 1, "InvalidState", "thesis.txt");
  EXPECT_EQ(ReadFile(fs::path(copy_) / "thesis.txt"), "mine");
  ExpectError({"checkpoint", store_, copy_ + "/none/copy"}, 3, "NotFound", "none/copy");
  Store store = OpenStore();
  ExpectError({"checkpoint", store_, copy_ + "2"}, 5, "Locked", "LOCK");
  EXPECT_FALSE(fs::exists(copy_ + "2"));
  ASSERT_TRUE(store.Close().ok());
}

// The remains of an interrupted one are refused, by doctor as well.
TEST_F(CliCheckpointTest, OneThatWasNotFinishedIsNoStore) {
  MakeFiveGroups();
  Output({"checkpoint", store_, copy_});
  fs::remove(fs::path(copy_) / "MANIFEST-1");
  ExpectError({"create", copy_}, 4, "Corruption", "checkpoint was not finished");
  ExpectError({"ls", copy_}, 4, "Corruption", "no MANIFEST");
  EXPECT_NE(Output({"doctor", copy_, "--no-probe"}, 1).find("no MANIFEST"), std::string::npos);
}

}  // namespace
}  // namespace cairn::testing
