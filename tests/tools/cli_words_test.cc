// SPDX-License-Identifier: Apache-2.0
//
// Property: the words that a user expects of a program work: its version and help in the ways that
// other programs have.
#include <gtest/gtest.h>

#include <string>

#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

using CliWords = CliTest;

TEST_F(CliWords, VersionAndHelp) {
  const std::string text = Output({"--version"});
  EXPECT_NE(text.find(Version()), std::string::npos) << text;
  EXPECT_EQ(Output({"version"}), text);
  const json as_json = JsonOutput({"--version"});
  EXPECT_EQ(as_json["version"], Version());
  EXPECT_EQ(as_json["format"], kFormatVersion);
  EXPECT_EQ(json::parse(Output({"--json", "version"})), as_json);
  EXPECT_EQ(Output({"help"}), Output({"--help"}));
  EXPECT_EQ(Output({"help", "append"}), Output({"append", "--help"}));
  ExpectError({"help", "frobnicate"}, 2, "InvalidArgument", "no command \"frobnicate\"");
  ExpectError({"frobnicate", "--help"}, 2, "InvalidArgument", "no command \"frobnicate\"");
}

}  // namespace
}  // namespace cairn::testing
