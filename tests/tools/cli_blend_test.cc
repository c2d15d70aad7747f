// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn find --anywhere` shows what a prompt repeats at any position and which branches
// have it; `cairn compose` puts a prompt together and shows the same of it; both say what is wrong.
// Method: the program on a store that the library filled, as text and as JSON.
#include "cairn/kv_buffer.h"
#include "tests/support/status.h"
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliBlendTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ModelSpec model = ModelSpec::FullAttention("m", 1, 1, 4, Dtype::kBf16);
    model.groups[0].inv_freq = RotaryFrequencies(4, 10'000.0);
    Store store = OpenStore();
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK(store.SetNamespace("docs", {.index = Index::kChunks}));
    KvBuffer kv(model, 300);
    for (std::byte& byte : kv.bytes()) byte = std::byte{60};
    for (const auto& [name, first] : {std::pair("law/a", 1000), std::pair("law/b", 2000)}) {
      ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = name, .ns = "docs"}));
      std::vector<TokenId> ids;
      for (int i = 0; i < 300; ++i) ids.push_back(static_cast<TokenId>(first + i));
      ASSERT_OK(branch.AppendSync({.tokens = ids, .kv = kv.view()}));
    }
    ASSERT_OK(store.Close());
  }
  static std::string Ids(int begin, int end) {
    std::string text;
    for (int i = begin; i < end; ++i) text += std::to_string(i) + '\n';
    return text;
  }
};

TEST_F(CliBlendTest, FindAnywhereShowsThePlan) {
  const std::string prompt = Ids(1000, 1200) + Ids(0, 30) + Ids(2000, 2300) + Ids(0, 20);
  const std::vector<std::string> ask = {"find", store_, "--tokens",  "-",
                                        "--ns", "docs", "--anywhere"};
  const json plan = JsonOutput(ask, 0, prompt);
  EXPECT_EQ(550, plan["tokens"]);
  EXPECT_EQ(200 + 282, plan["load_tokens"]);
  EXPECT_EQ(true, plan["complete"]);
  EXPECT_EQ(246, plan["exact"]);
  ASSERT_EQ(4u, plan["segments"].size());
  EXPECT_EQ("prefix", plan["segments"][0]["match"]);
  EXPECT_EQ("law/a", plan["segments"][0]["branch"]);
  EXPECT_EQ("none", plan["segments"][1]["match"]);
  EXPECT_EQ("full", plan["segments"][2]["match"]);
  EXPECT_EQ("law/b", plan["segments"][2]["branch"]);
  EXPECT_EQ("docs", plan["segments"][2]["ns"]);
  EXPECT_EQ("load", plan["steps"][0]["do"]);
  EXPECT_EQ("compute", plan["steps"].back()["do"]);
  const std::string text = Output(ask, 0, prompt);
  EXPECT_NE(text.find("550 tokens: 482 loaded (7.5 KiB), 68 computed; exact up to 246\n  ====="),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("law\\x2fb (#"), std::string::npos) << text;
  std::vector<std::string> bare = ask;
  bare.insert(bare.end(), {"--option", "recompute_first=0", "--option", "blend_min_tokens=301"});
  EXPECT_EQ(200, JsonOutput(bare, 0, prompt)["load_tokens"]);
  EXPECT_EQ("none", JsonOutput(ask, 3, Ids(5000, 5100))["segments"][0]["match"]);
  bare.back() = "min=3";
  ExpectError(bare, 2, "InvalidArgument", "no option is called \"min\"");
  bare.back() = "min";
  ExpectError(bare, 2, "InvalidArgument", "has no '='");
}

TEST_F(CliBlendTest, ComposePutsDocumentsInARow) {
  const std::string question = (root_ / "question").string(), ids = (root_ / "ids").string();
  std::ofstream(question) << Ids(0, 20);
  const json plan = JsonOutput({"compose", store_, "law/b", "law/*", "--ns", "docs", "--separator",
                                "7,8", "--question", question, "--ids", ids});
  EXPECT_EQ(3 * 300 + 3 * 2 + 20, plan["tokens"]);
  ASSERT_EQ(3u, plan["documents"].size());
  EXPECT_EQ("law/a", plan["documents"][1]["name"]);
  EXPECT_EQ(302, plan["documents"][1]["begin"]);
  EXPECT_EQ("prefix", plan["segments"][0]["match"]);
  EXPECT_EQ(ReadFile(ids), Ids(2000, 2300) + Ids(7, 9) + Ids(1000, 1300) + Ids(7, 9) +
                               Ids(2000, 2300) + Ids(7, 9) + Ids(0, 20));
  EXPECT_EQ(580,
            JsonOutput({"compose", store_, "law/*", "--ns", "docs", "--header", "10"})["tokens"]);
  ExpectError({"compose", store_, "law/c", "--ns", "docs"}, 3, "NotFound", "document \"law/c\"");
  ExpectError({"compose", store_, "law/a", "--ns", "docs", "--separator", "x"}, 2,
              "InvalidArgument", "--separator");
  ExpectError({"compose", store_, "law/a", "--ns", "docs", "--question", ids + "/x"}, 3, "NotFound",
              "--question");
}

}  // namespace
}  // namespace cairn::testing
