// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn export` writes what `cairn import` makes again, in another store and under any
// name; parts and whole forests too; and both say what is wrong.
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliExportTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    other_ = (root_ / "other").string();
    file_ = (root_ / "chat.safetensors").string();
    MakeFiveGroups();
    Output({"create", other_, "--segment-bytes", "256KiB"});
  }
  std::string other_, file_;
};

TEST_F(CliExportTest, ABranchMovesToAnotherStore) {
  const std::string ids = Output({"cat", store_, "chat"});
  const json made = JsonOutput({"export", store_, "chat", file_});
  EXPECT_EQ(made["end"], 50);
  EXPECT_EQ(made["file_bytes"], fs::file_size(file_));
  EXPECT_EQ(made["base_snapshot_id"], "");
  const json brought = JsonOutput({"import", other_, file_});
  EXPECT_EQ(brought["branch"]["name"], "chat");
  EXPECT_EQ(brought["end"], 50);
  EXPECT_EQ(Output({"cat", other_, "chat"}), ids);
  Output({"import", other_, file_, "--name", "archive/old"});
  EXPECT_EQ(Output({"cat", other_, "archive/old"}), ids);
  Output({"import", other_, file_, "--ns", "archive"});
  EXPECT_EQ(Output({"cat", other_, "archive/chat"}), ids);
  Output({"import", other_, file_, "--name", "third", "--ns", "archive", "--model", "tokens"});
  EXPECT_EQ(Output({"cat", other_, "archive/third"}), ids);
  const std::string text = Output({"export", store_, "chat", file_, "--force"});
  EXPECT_NE(text.find("positions [0, 50)"), std::string::npos) << text;
  EXPECT_NE(text.find(made["snapshot_id"].get<std::string>()), std::string::npos) << text;
}

TEST_F(CliExportTest, PartsAreImportedInOrder) {
  const std::string part = (root_ / "part.safetensors").string();
  const json first = JsonOutput({"export", store_, "chat", file_, "--at", "30"});
  const json second =
      JsonOutput({"export", store_, "chat", part, "--from", "30", "--kv-from", "0"});
  EXPECT_EQ(first["snapshot_id"], second["base_snapshot_id"]);
  EXPECT_NE(
      Output({"export", store_, "chat", part, "--from", "30", "--force"}).find("goes on from"),
      std::string::npos);
  ExpectError({"import", other_, part}, 3, "NotFound", first["snapshot_id"]);
  Output({"import", other_, file_});
  EXPECT_NE(Output({"import", other_, part}).find("positions [30, 50)"), std::string::npos);
  EXPECT_EQ(Output({"cat", other_, "chat"}), Output({"cat", store_, "chat"}));
}

TEST_F(CliExportTest, AForestMovesAsAWhole) {
  const std::string all = (root_ / "all.msgpack").string();
  Output({"fork", store_, "chat", "--at", "20", "--name", "fork"});
  const json made = JsonOutput({"export", store_, all, "--tree"});
  EXPECT_EQ(made["branches"], 2);
  EXPECT_EQ(made["tokens"], 50);
  EXPECT_NE(Output({"import", other_, all, "--tree"}).find("2 branches of 1 model, 50 tokens"),
            std::string::npos);
  EXPECT_EQ(Output({"cat", other_, "fork"}), Output({"cat", store_, "fork"}));
  EXPECT_EQ(JsonOutput({"export", store_, all, "--tree", "--ns", "none", "--force"})["branches"],
            0);
}

TEST_F(CliExportTest, MistakesAreNamed) {
  ExpectError({"export", store_, "chat"}, 2, "InvalidArgument", "FILE is required");
  ExpectError({"export", store_, "chat", file_, "--tree"}, 2, "InvalidArgument", "--tree");
  ExpectError({"export", store_, file_, "--tree", "--from", "3"}, 2, "InvalidArgument", "--tree");
  ExpectError({"export", store_, "none", file_}, 3, "NotFound", "none");
  ExpectError({"export", store_, "chat", file_, "--at", "51"}, 2, "InvalidArgument", "50 tokens");
  ExpectError({"import", other_, file_}, 3, "NotFound", file_);
  Output({"export", store_, "chat", file_});
  ExpectError({"export", store_, "chat", file_}, 6, "AlreadyExists", "exists");
  ExpectError({"import", other_, file_, "--tree"}, 2, "InvalidArgument", "no exported forest");
  ExpectError({"import", other_, file_, "--tree", "--name", "x"}, 2, "InvalidArgument", "--tree");
  ExpectError({"import", other_, file_, "--model", "x"}, 3, "NotFound", "x");
  Output({"import", other_, file_});
  ExpectError({"import", other_, file_}, 6, "AlreadyExists", "chat");
  FlipByte(file_, fs::file_size(file_) - 3);
  ExpectError({"import", other_, file_, "--name", "y"}, 4, "Corruption", "digest");
}

}  // namespace
}  // namespace cairn::testing
