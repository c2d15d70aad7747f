// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn find` shows what a store has of a prompt, in the given namespaces, also beside a
// process that has the store; what it cannot look for it names.
// Method: the program on a store that it wrote itself.
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliFindTest : public CliTest {};

TEST_F(CliFindTest, FindWhatIsThereOfAPrompt) {
  Create();
  std::string prompt, other;
  for (int i = 0; i < 100; ++i) prompt += std::to_string(i) + (i % 10 == 9 ? "\n" : ",");
  ExpectError({"find", store_, "--tokens", "-"}, 3, "NotFound", "no model");
  Output({"append", store_, "chat", "--create", "--ns", "tenant"}, 0, prompt);
  EXPECT_EQ(Output({"find", store_, "--tokens", "-"}, 3, prompt), "nothing of 100 tokens\n");
  EXPECT_EQ(Output({"find", store_, "--tokens", "-"}, 3, "1,2,3"),
            "nothing of 3 tokens: prefixes of less than 64 tokens are not found\n");
  const json found =
      JsonOutput({"find", store_, "--tokens", "-", "--also", "tenant"}, 0, prompt + "7 7 7");
  EXPECT_EQ(found["tokens"], 103);
  EXPECT_EQ(found["matched"], 100);
  EXPECT_EQ(found["complete"], true);
  EXPECT_EQ(found["branch"], "chat");
  EXPECT_EQ(found["ns"], "tenant");
  // The branch is named, of several the newest that reaches so far; not the node.
  const std::vector<std::string> ask = {"find", store_, "--tokens", "-", "--ns", "tenant"};
  std::string text = Output(ask, 0, prompt);
  EXPECT_EQ(text.find("100 of 100 tokens, KV of 100, in tenant/chat (#"), 0u) << text;
  Output({"fork", store_, "tenant/chat", "--at", "70", "--name", "short"});
  Output({"fork", store_, "tenant/chat", "--name", "twin"});
  text = Output(ask, 0, prompt);
  EXPECT_NE(text.find(" in tenant/twin (#"), std::string::npos) << text;
  Output({"drop", store_, "tenant/chat"});
  text = Output(ask, 0, prompt);
  EXPECT_NE(text.find(" in tenant/twin (#"), std::string::npos) << text;
  Output({"rename", store_, "tenant/twin", "chat"});
  ExpectError({"find", store_, "--tokens", "-", "--ns", "\\y"}, 2, "InvalidArgument", "\\");
  {  // Beside a process that has the store.
    Store writer = OpenStore();
    ASSERT_TRUE(writer.FindBranch("chat", "tenant").ok());
    const json beside = JsonOutput({"find", store_, "--tokens", "-", "--ns", "tenant"}, 0, prompt);
    EXPECT_EQ(100, beside["matched"]);
    EXPECT_EQ(true, beside["complete"]);
    ASSERT_TRUE(writer.Close().ok());
  }
  ExpectError({"find", store_, "--tokens", store_ + "/none"}, 3, "NotFound", "--tokens");
  ExpectError({"find", store_, "--tokens", "-", "--model", "x"}, 3, "NotFound", "no model \"x\"");
}

}  // namespace
}  // namespace cairn::testing
