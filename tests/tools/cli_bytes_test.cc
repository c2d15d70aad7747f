// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn du` counts each byte as own or shared, by branch and namespace, and adds up;
// `cairn diff` finds where two branches leave each other, by nodes and by ids; `cairn log` lists
// the appends of a branch that the log has, and what left it as earlier. Method: the program on
// stores of forks, across namespaces, before and after sealing.
#include "tests/support/status.h"
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliBytesTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    Create();
  }
  // `count` ids from 0 on, or all `id`.
  void Append(const std::string& branch, int count, int id = -1) {
    std::string tokens;
    for (int i = 0; i < count; ++i) tokens += std::to_string(id < 0 ? i : id) + " ";
    Output({"append", store_, branch, "--create"}, 0, tokens);
  }
  void Fork(const std::string& from, int at, const std::string& name) {
    Output({"fork", store_, from, "--at", std::to_string(at), "--name", name});
  }
};

// Four bytes an id, in the log and, of ids that do not pack, in tables.
TEST_F(CliBytesTest, OwnAndSharedBytesAddUp) {
  Append("chat", 60);
  Fork("chat", 20, "what-if");
  Append("what-if", 5);
  Fork("what-if", 25, "twin");
  {
    Store store = OpenStore();
    ASSERT_OK_ASSIGN(const Branch chat, store.FindBranch("chat"));
    ASSERT_OK_ASSIGN(Branch guest, chat.ForkAt(40, {.name = "guest", .ns = "t"}));
    const std::vector<TokenId> ids(10, 7);
    ASSERT_OK(guest.AppendSync({.tokens = ids}));
    ASSERT_OK(store.CreateBranch(store.Models()[0].id, {.name = "new", .ns = "t"}));
    ASSERT_OK(store.Close());
  }
  const json du = JsonOutput({"du", store_});
  EXPECT_EQ(du["total_bytes"], 4 * (60 + 5 + 10));
  EXPECT_EQ(du["left_out"], 0);
  const std::map<std::string, std::pair<int, int>> expected = {{"chat", {20, 40}},
                                                               {"guest", {10, 40}},
                                                               {"what-if", {0, 25}},
                                                               {"twin", {0, 25}},
                                                               {"new", {0, 0}}};
  ASSERT_EQ(du["branches"].size(), expected.size());
  EXPECT_EQ(du["branches"][0]["name"], "chat");
  for (const json& branch : du["branches"]) {
    const auto& [own, shared] = expected.at(branch["name"]);
    EXPECT_EQ(branch["own_bytes"], 4 * own) << branch;
    EXPECT_EQ(branch["shared_bytes"], 4 * shared) << branch;
  }
  // The default namespace's: what-if's five, and chat from 40 on are its own; twenty are what-if's
  // and chat's, of which guest needs the first forty.
  const json& spaces = du["namespaces"];
  ASSERT_EQ(spaces.size(), 2u);
  EXPECT_EQ(spaces[0],
            (json{{"name", ""}, {"branches", 3}, {"own_bytes", 100}, {"shared_bytes", 160}}));
  EXPECT_EQ(spaces[1],
            (json{{"name", "t"}, {"branches", 2}, {"own_bytes", 40}, {"shared_bytes", 160}}));

  const std::string text = Output({"du", store_, "--limit", "2"});
  EXPECT_NE(text.find("\nchat     #2      60  80 B   160 B\n"), std::string::npos) << text;
  EXPECT_NE(text.find("and 3 branches; --limit shows more\n"), std::string::npos) << text;
  EXPECT_NE(text.find("300 B in all, each byte once\n"), std::string::npos) << text;
  const json of_t = JsonOutput({"du", store_, "--ns", "t"});
  EXPECT_EQ(of_t["branches"].size(), 2u);
  EXPECT_EQ(of_t["branches"][0]["own_bytes"], 40);
  EXPECT_EQ(of_t["total_bytes"], 200) << "what its branches need, not the whole store";
  ExpectError({"du", store_, "--limit", "0"}, 2, "InvalidArgument", "--limit");

  // When a branch goes, its own bytes go, and what only one other needs becomes that one's.
  Output({"drop", store_, "chat"});
  const json after = JsonOutput({"du", store_});
  EXPECT_EQ(after["total_bytes"], 4 * (40 + 5 + 10));
  EXPECT_EQ(after["branches"][0]["name"], "guest");
  EXPECT_EQ(after["branches"][0]["own_bytes"], 4 * 30);
}

TEST_F(CliBytesTest, NothingTakesNothing) {
  EXPECT_EQ(Output({"du", store_}), "no branches\n");
  EXPECT_EQ(JsonOutput({"du", store_})["total_bytes"], 0);
  ExpectError({"du", root_ / "absent"}, 3, "NotFound", "cairn create");
}

TEST_F(CliBytesTest, DiffFindsWhereBranchesLeaveEachOther) {
  Append("chat", 60);
  Fork("chat", 20, "what-if");
  Append("what-if", 5, 9);
  json diff = JsonOutput({"diff", store_, "chat", "what-if"});
  EXPECT_EQ(diff["shared"], 20);
  EXPECT_EQ(diff["equal_ids"], 20);
  EXPECT_EQ(diff["a"]["name"], "chat");
  EXPECT_EQ(diff["a"]["behind"]["tokens"], 40);
  EXPECT_EQ(diff["a"]["behind"]["bytes"], 160);
  EXPECT_EQ(diff["a"]["behind"]["positions"], (json{{"log", 40}}));
  EXPECT_EQ(diff["a"]["behind"]["next_ids"], json({20, 21, 22, 23, 24, 25, 26, 27}));
  EXPECT_EQ(diff["b"]["behind"]["tokens"], 5);
  EXPECT_EQ(diff["b"]["behind"]["next_ids"], json({9, 9, 9, 9, 9}));
  EXPECT_EQ(Output({"diff", store_, "chat", "what-if"}),
            "stored once up to 20\n"
            "ids equal up to   20\n"
            "chat (#2)\n"
            "  behind   40 tokens, 160 B: 40 log\n"
            "  ids      20 21 22 23 24 25 26 27 ...\n"
            "what-if (#4)\n"
            "  behind   5 tokens, 20 B: 5 log\n"
            "  ids      9 9 9 9 9\n");
  // Alike, and not forked: the same ids lie twice.
  Append("alike", 30);
  diff = JsonOutput({"diff", store_, "chat", "alike"});
  EXPECT_EQ(diff["shared"], 0);
  EXPECT_EQ(diff["equal_ids"], 30);
  EXPECT_EQ(diff["b"]["behind"]["next_ids"], json::array());
  // One that is the other's beginning, and a branch with itself.
  Fork("chat", 10, "begin");
  diff = JsonOutput({"diff", store_, "begin", "chat"});
  EXPECT_EQ(diff["shared"], 10);
  EXPECT_EQ(diff["a"]["behind"]["tokens"], 0);
  EXPECT_EQ(diff["b"]["behind"]["tokens"], 50);
  EXPECT_EQ(JsonOutput({"diff", store_, "chat", "chat"})["shared"], 60);
}

TEST_F(CliBytesTest, DiffRefusesWhatDoesNotCompare) {
  Append("chat", 3);
  {
    Store store = OpenStore();
    ModelSpec spec;
    spec.identity.name = "other";
    ASSERT_OK_ASSIGN(const ModelId other, store.RegisterModel(spec));
    ASSERT_OK(store.CreateBranch(other, {.name = "foreign"}));
    ASSERT_OK(store.Close());
  }
  ExpectError({"diff", store_, "chat", "foreign"}, 6, "ModelMismatch", "do not compare");
  ExpectError({"diff", store_, "chat", "absent"}, 3, "NotFound", "absent");
  ExpectError({"diff", store_, "chat"}, 2, "InvalidArgument", "B is required");
}

TEST_F(CliBytesTest, LogListsTheAppendsOfABranch) {
  Append("chat", 60);
  Append("chat", 7);
  Fork("chat", 20, "what-if");
  Append("what-if", 5);
  Output({"rewind", store_, "chat", "--to", "64"});
  const json log = JsonOutput({"log", store_, "chat"});
  EXPECT_EQ(log["earlier"], json::array());
  ASSERT_EQ(log["appends"].size(), 2u);
  EXPECT_EQ(log["appends"][0]["begin"], 0);
  EXPECT_EQ(log["appends"][0]["end"], 60);
  EXPECT_EQ(log["appends"][1]["begin"], 60);
  EXPECT_EQ(log["appends"][1]["end"], 64);  // The rewind took the rest back.
  EXPECT_EQ(log["appends"][1]["tokens"], 4);
  EXPECT_EQ(log["appends"][0]["lies_in"], "log");
  EXPECT_EQ(log["appends"][0]["durable"], true);
  EXPECT_EQ(log["appends"][0]["raw_bytes"], 240);
  EXPECT_GT(log["appends"][1]["time_ns"], log["appends"][0]["time_ns"]);
  // Also those of the branch that it was forked from, as far as they are its own.
  const json forked = JsonOutput({"log", store_, "what-if"});
  ASSERT_EQ(forked["appends"].size(), 2u);
  EXPECT_EQ(forked["appends"][0]["end"], 20);
  EXPECT_EQ(forked["appends"][0]["tokens"], 20);
  EXPECT_EQ(forked["appends"][1]["begin"], 20);
  const json last = JsonOutput({"log", store_, "what-if", "--limit", "1"});
  EXPECT_EQ(last["left_out"], 1);
  EXPECT_EQ(last["appends"][0]["begin"], 20);

  Output({"compact", store_});
  Append("chat", 2);
  const json sealed = JsonOutput({"log", store_, "chat"});
  ASSERT_EQ(sealed["earlier"].size(), 1u);
  EXPECT_EQ(sealed["earlier"][0], (json{{"begin", 0}, {"end", 64}, {"lies_in", "table"}}));
  ASSERT_EQ(sealed["appends"].size(), 1u);
  EXPECT_EQ(sealed["appends"][0]["begin"], 64);
  const std::string text = Output({"log", store_, "chat"});
  EXPECT_NE(
      text.find("\nearlier                         -  [0, 64)        64    -  yes      table\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("[64, 66)        2  8 B  yes      log\n"), std::string::npos) << text;
}

TEST_F(CliBytesTest, LogOfNothing) {
  Append("chat", 3);
  Output({"rewind", store_, "chat", "--to", "0"});
  EXPECT_EQ(Output({"log", store_, "chat"}), "no appends\n");
  ExpectError({"log", store_, "absent"}, 3, "NotFound", "absent");
}

}  // namespace
}  // namespace cairn::testing
