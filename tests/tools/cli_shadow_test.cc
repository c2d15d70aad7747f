// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn shadow` makes, shows and drops the shadow of a branch, and says what is wrong
// with what it is given. Method: the program on a store that the library filled, as text and as
// JSON.
#include "base/codec/float16.h"
#include "base/core/seeded_random.h"
#include "cairn/kv_buffer.h"
#include "cairn/store.h"
#include "tests/support/status.h"
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliShadowTest : public CliTest {
 protected:
  static constexpr uint64_t kTokens = 1500;

  void SetUp() override {
    CliTest::SetUp();
    Output({"create", store_, "--segment-bytes", "4MiB"});
    ModelSpec model;
    model.identity.name = "m";
    model.groups = {LayerGroup::FullAttention(2, 2, 16, Dtype::kBf16)};
    model.groups[0].inv_freq = RotaryFrequencies(16, 10'000.0);
    KvBuffer kv(model, kTokens);
    SeededRandom random(1);
    auto* const elements = reinterpret_cast<uint16_t*>(kv.bytes().data());
    for (size_t i = 0; i < kv.bytes().size() / 2; ++i) {
      elements[i] = ToBf16(static_cast<float>(random.Below(1000)) / 500.0F - 1.0F);
    }
    Options options;
    options.segment_bytes = 4 << 20;
    ASSERT_OK_ASSIGN(Store store, Store::Open(store_, options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    for (const auto& [name, tokens] :
         {std::pair("chat", kTokens), std::pair("short", uint64_t{50})}) {
      ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = name}));
      const OwnedKvView view = kv.View(0, tokens);
      const std::vector<TokenId> ids(tokens, 7);
      ASSERT_OK(branch.AppendSync({.tokens = ids, .kv = view}));
    }
    ASSERT_OK(store.Close());
  }
};

TEST_F(CliShadowTest, ComesAndGoes) {
  ExpectError({"shadow", "stat", store_, "chat"}, 3, "NotFound", "");
  json info = JsonOutput({"shadow", "build", store_, "chat"});
  EXPECT_EQ(1500, info["tokens"]);
  EXPECT_EQ(1408, info["covered"]);
  EXPECT_EQ(352, info["chunks"]);
  EXPECT_EQ(2 + 2, info["always_chunks"]);  // 8 sinks; 0.3 % rounded up.
  EXPECT_EQ(46, info["budget_chunks"]);     // An eighth of the tokens.
  EXPECT_EQ(1408, info["tokens_read"]);
  EXPECT_EQ(0, JsonOutput({"shadow", "build", store_, "chat"})["tokens_read"]);
  info = JsonOutput({"shadow", "stat", store_, "chat"});
  EXPECT_EQ(0, info["tokens_read"]);
  EXPECT_GT(info["table_bytes"], 0);
  EXPECT_NE(std::string::npos,
            Output({"shadow", "stat", store_, "chat"})
                .find("1408 of 1500 tokens in 352 chunks of each head: 4 always attended to, 46 "
                      "selected in a step; a table of"));
  ExpectError({"shadow", "stat", store_, "chat", "--keys", "exact"}, 3, "NotFound", "");
  EXPECT_EQ(88, JsonOutput({"shadow",          "build", store_,       "chat",
                            "--keys",          "exact", "--chunk",    "16",
                            "--landmark-bits", "16",    "--local",    "32",
                            "--sinks",         "0",     "--outliers", "0.01",
                            "--group",         "0",     "--end",      "1500"})["chunks"]);
  EXPECT_EQ(1408, JsonOutput({"shadow", "build", store_, "chat", "--keys", "low_rank",
                              "--rank-energy", "0.5"})["tokens_read"]);
  Output({"verify", store_});
  EXPECT_EQ("", Output({"shadow", "drop", store_, "chat"}));
  ExpectError({"shadow", "drop", store_, "chat"}, 3, "NotFound", "");
  EXPECT_EQ("50 tokens are too few: attention is dense\n",
            Output({"shadow", "build", store_, "short"}));
}

TEST_F(CliShadowTest, SaysWhatIsWrong) {
  ExpectError({"shadow", "build", store_, "chat", "--chunk", "3"}, 2, "InvalidArgument",
              "chunk_tokens is 3");
  ExpectError({"shadow", "build", store_, "chat", "--end", "1501"}, 2, "InvalidArgument",
              "end is 1501");
  ExpectError({"shadow", "build", store_, "chat", "--keys", "low_rank"}, 2, "InvalidArgument",
              "rank");
  ExpectError({"shadow", "build", store_, "nobody"}, 3, "NotFound", "nobody");
}

}  // namespace
}  // namespace cairn::testing
