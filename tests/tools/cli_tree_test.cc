// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn tree` draws every branch where it leaves another one, to scale, however many
// there are and however deep, and stores without any. Method: the program on stores of forks.
#include <algorithm>

#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliTreeTest : public CliTest {};

TEST_F(CliTreeTest, TreeIsDrawnToScale) {
  Create();
  const auto append = [&](const std::string& branch, int count) {
    std::string tokens;
    for (int i = 0; i < count; ++i) tokens += std::to_string(i) + " ";
    Output({"append", store_, branch, "--create"}, 0, tokens);
  };
  const auto fork = [&](const std::string& from, int at, const std::string& name) {
    Output({"fork", store_, from, "--at", std::to_string(at), "--name", name});
  };
  append("chat", 60);
  fork("chat", 30, "what-if");
  append("what-if", 15);
  fork("chat", 15, "retry");
  append("retry", 55);
  fork("retry", 20, "short");
  append("short", 3);
  fork("chat", 60, "twin");
  append("other", 10);
  EXPECT_EQ(Output({"tree", store_, "--width", "70"}),
            "tokens (model 1): 6 branches on 5 nodes, 143 tokens stored for 268\n"
            "○───────┬───────┬───────────────┬● chat  60 tokens\n"
            "        │       │               ╰● twin  60 tokens, left at 60\n"
            "        │       ╰───────● what-if  45 tokens, left at 30\n"
            "        ╰──┬─────────────────────────● retry  70 tokens, left at 15\n"
            "           ╰● short  23 tokens, left at 20\n"
            "○────● other  10 tokens\n");
  const std::string ascii = Output({"tree", store_, "other", "--width", "60", "--ascii"});
  EXPECT_NE(ascii.find("1 branch on 1 node, 10 tokens stored for 10\n"), std::string::npos);
  EXPECT_NE(ascii.find("\no---"), std::string::npos) << ascii;
  EXPECT_EQ(ascii.find("chat"), std::string::npos) << ascii;

  const json forests = JsonOutput({"tree", store_})["forests"];
  ASSERT_EQ(forests.size(), 1u);
  EXPECT_EQ(forests[0]["stored_tokens"], 143);
  ASSERT_EQ(forests[0]["trees"].size(), 2u);
  const json& root = forests[0]["trees"][0];
  EXPECT_EQ(root["begin"], 0);
  EXPECT_EQ(root["end"], 60);
  ASSERT_EQ(root["branches"].size(), 2u);  // chat and twin end on it.
  ASSERT_EQ(root["children"].size(), 2u);
  EXPECT_EQ(root["children"][0]["begin"], 15);
  EXPECT_EQ(root["children"][0]["children"][0]["begin"], 20);
  EXPECT_EQ(root["children"][1]["branches"][0]["name"], "what-if");
}

TEST_F(CliTreeTest, TreeOfNothingAndOfEmptyBranches) {
  Create();
  EXPECT_EQ(Output({"tree", store_}), "no branches\n");
  EXPECT_EQ(JsonOutput({"tree", store_})["forests"], json::array());
  {
    Store store = OpenStore();
    ModelSpec spec;
    spec.identity.name = "m";
    const auto model = store.RegisterModel(spec);
    ASSERT_TRUE(store.CreateBranch(*model, {.name = "new", .ns = "", .durability = {}}).ok());
    ASSERT_TRUE(store.Close().ok());
  }
  const std::string text = Output({"tree", store_});
  EXPECT_NE(text.find("● new  empty\n"), std::string::npos) << text;
  EXPECT_EQ(JsonOutput({"tree", store_})["forests"][0]["empty"].size(), 1u);
}

// Forks of forks, deeper than any stack of calls would like.
TEST_F(CliTreeTest, TreeOfALongChainOfForks) {
  constexpr int kDepth = 3000;
  {
    Store store = OpenStore();
    ModelSpec spec;
    spec.identity.name = "m";
    const auto model = store.RegisterModel(spec);
    auto branch = store.CreateBranch(*model, {.name = "", .ns = "", .durability = {}});
    const std::vector<TokenId> token = {1};
    for (int i = 1; i <= kDepth; ++i) {
      ASSERT_TRUE(branch->AppendSync({.tokens = token}, {.durability = Durability::kMemory}).ok());
      if (i == kDepth) break;
      branch = branch->ForkAt(static_cast<uint64_t>(i), {.durability = Durability::kMemory});
      ASSERT_TRUE(branch.ok());
    }
    ASSERT_TRUE(store.Close().ok());
  }
  const std::string text = Output({"tree", store_});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kDepth + 1);
}

}  // namespace
}  // namespace cairn::testing
