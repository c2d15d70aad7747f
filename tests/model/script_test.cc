// SPDX-License-Identifier: Apache-2.0
//
// The tools of the model test are right themselves: a script that is printed is read back as it
// was, one that fails is shrunk to what makes it fail, and a store that is wrong is noticed.
#include "tests/model/script.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tests/model/runner.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kSeed = 20'261'121;

bool Has(const Script& script, OpKind kind) {
  return std::any_of(script.begin(), script.end(),
                     [kind](const ScriptOp& op) { return op.kind == kind; });
}

TEST(ScriptTest, WhatIsPrintedIsReadBack) {
  for (const Profile& profile : Profiles()) {
    const Script script = GenerateScript(kSeed, profile, 1'000);
    EXPECT_EQ(script, GenerateScript(kSeed, profile, 1'000)) << "from a seed";
    EXPECT_NE(script, GenerateScript(kSeed + 1, profile, 1'000));
    const auto read = ParseScript("# a comment\n\n" + ToString(script));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(script, *read);
  }
  EXPECT_EQ("create 1 0 0 4\ncompact\n",
            ToString({{.kind = OpKind::kCreate, .a = 1, .d = 4}, {.kind = OpKind::kCompact}}));
}

TEST(ScriptTest, WhatNobodyPrintsIsRefused) {
  for (const char* text : {"remember 1\n", "append 1 2 3 4 5\n", "append x\n", "append -1 x\n"}) {
    EXPECT_FALSE(ParseScript(text).has_value()) << text;
  }
}

TEST(ScriptTest, EveryKindIsGeneratedByEveryProfile) {
  for (const Profile& profile : Profiles()) {
    const Script script = GenerateScript(kSeed, profile, 50'000);
    for (size_t kind = 0; kind < kOpKinds; ++kind) {
      EXPECT_TRUE(Has(script, static_cast<OpKind>(kind)))
          << profile.name << " without " << OpKindName(static_cast<OpKind>(kind));
    }
  }
}

TEST(ScriptTest, AFailureIsShrunkToWhatMakesIt) {
  // A fork after a rewind to a position beyond 2.
  const auto fails = [](const Script& script) {
    const auto rewind = std::find_if(script.begin(), script.end(), [](const ScriptOp& op) {
      return op.kind == OpKind::kRewind && op.b > 2;
    });
    return rewind != script.end() && Has(Script(rewind, script.end()), OpKind::kFork);
  };
  const Script script = GenerateScript(kSeed, Profiles()[0], 1'000);
  ASSERT_TRUE(fails(script));
  int looks = 0;
  const Script shrunk = Shrink(script, [&](const Script& shorter) {
    ++looks;
    return fails(shorter);
  });
  EXPECT_EQ("rewind 0 3\nfork\n", ToString(shrunk));
  EXPECT_LT(looks, 5'000);
}

// The store is right, so the expectation is made wrong: the same script is taken for a failure when
// it was refused something.
TEST(ScriptTest, AStoreIsShrunkFor) {
  const OptionSet& set = OptionSets()[0];
  const auto fails = [&](const Script& script) { return RunScript(script, set).refused != 0; };
  const Script script = GenerateScript(kSeed, Profiles()[4], 200);
  ASSERT_TRUE(fails(script));
  EXPECT_LE(Shrink(script, fails).size(), 3u) << "a branch, perhaps dropped, and what it refuses";
}

TEST(ScriptTest, AScriptCanBePasted) {
  const auto script = ParseScript(R"(
create 0 1 0 4
append 0 7 0 12
fork 0 5 2 1
rewind 0 2
append 0 3
compact
drop 1
reopen
read 0 0 1000
)");
  ASSERT_TRUE(script.has_value());
  for (const OptionSet& set : OptionSets()) {
    if (set.world != "simulated") continue;
    EXPECT_EQ("", FailureOf(*script, set)) << set.name;
  }
}

TEST(ScriptTest, AProcessThatEndsIsAFailure) {
  EXPECT_EQ("", FailureInChild([] { return std::string(); }));
  EXPECT_EQ("so", FailureInChild([] { return std::string("so"); }));
  EXPECT_EQ("it ended early", FailureInChild([]() -> std::string { _exit(3); }));
  EXPECT_EQ("it ended with Killed", FailureInChild([] {
              raise(SIGKILL);
              return std::string();
            }));
}

}  // namespace
}  // namespace cairn::testing
