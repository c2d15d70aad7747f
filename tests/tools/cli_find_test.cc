// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn find` tells what a store has of a prompt, in the namespaces that it was told to
// look in, also beside a process that has the store; what it cannot look for it names.
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
