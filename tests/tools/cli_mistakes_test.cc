// SPDX-License-Identifier: Apache-2.0
//
// Property: a mistake at the command line is reported in the words of the command line, with the
// promised exit code, and leaves nothing behind. Method: one mistake after another, and a look at
// what the store holds afterwards.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/test_store.h"
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliMistakesTest : public CliTest {
 protected:
  size_t Branches() { return JsonOutput({"ls", store_})["branches"].size(); }
};

TEST_F(CliMistakesTest, JsonLinesWithoutTheirOptionAreRecognized) {
  Create();
  const std::string line = R"({"tokens":[1,2]})";
  ExpectError({"append", store_, "chat", "--create", line}, 2, "InvalidArgument", "--json-lines");
  const ToolResult piped = Cairn({"append", store_, "chat", "--create"}, " " + line + "\n");
  EXPECT_EQ(piped.exit_code, 2);
  EXPECT_NE(piped.errors.find("--json-lines"), std::string::npos) << piped.errors;
  const ToolResult other = Cairn({"append", store_, "chat", "--create"}, "one\n");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_EQ(other.errors.find("--json-lines"), std::string::npos) << other.errors;
  EXPECT_EQ(Branches(), 0u);
}

TEST_F(CliMistakesTest, ABadIdIsNamedByLineAndColumn) {
  Create();
  const auto said = [&](std::vector<std::string> more, const std::string& input) {
    std::vector<std::string> arguments = {"append", store_, "chat", "--create"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ToolResult result = Cairn(arguments, input);
    EXPECT_EQ(result.exit_code, 2);
    return result.errors;
  };
  EXPECT_NE(said({}, "1 2\n3, x7 4\n").find("line 2, column 4: \"x7\" is no token id"),
            std::string::npos);
  EXPECT_NE(said({}, "1\n\n\t4294967296\n").find("line 3, column 2: "), std::string::npos);
  EXPECT_NE(said({"--json-lines"}, "{\"tokens\":[1]}\n{\"tokens\":[1,2,-3]}\n")
                .find("line 2: \"tokens\"[2]: -3 is no token id"),
            std::string::npos);
  EXPECT_NE(said({"--json-lines"}, "{\"tokens\":[1}\n").find("line 1: the line, column 13, is not"),
            std::string::npos);
  EXPECT_NE(said({"1", "two"}, "").find("\"two\" is no token id"), std::string::npos);
  EXPECT_EQ(JsonOutput({"show", store_, "chat"})["length"], 1) << "the line before the bad one";
}

TEST_F(CliMistakesTest, AppendOfNothingCreatesNothing) {
  Create();
  ExpectError({"append", store_, "fresh", "--create"}, 2, "InvalidArgument", "nothing to append");
  ExpectError({"append", store_, "fresh", "--create", "--metadata", "1"}, 2, "InvalidArgument",
              "nothing to append");
  ExpectError({"append", store_, "fresh", "--create", "1", "--expected-length", "2"}, 6, "Conflict",
              "2 tokens");
  for (const char* line : {R"({"branch":"fresh"})", R"({"branch":"fresh","tokens":[]})"}) {
    const ToolResult result = Cairn({"append", store_, "--create", "--json-lines"}, line);
    EXPECT_EQ(result.exit_code, 2) << line;
    EXPECT_NE(result.errors.find("line 1: no token ids"), std::string::npos) << result.errors;
  }
  EXPECT_EQ(Branches(), 0u);
  EXPECT_EQ(JsonOutput({"models", store_})["models"].size(), 0u);
}

TEST_F(CliMistakesTest, MetadataGoesWithTokensFromStandardInput) {
  Create();
  Output({"append", store_, "chat", "--create", "--metadata", "[7]"}, 0, "1 2 3");
  EXPECT_EQ(JsonOutput({"show", store_, "chat"})["metadata"]["value"], json::array({7}));
}

TEST_F(CliMistakesTest, NumbersAreDecimalAndNeitherNegativeNorTooLarge) {
  Create();
  Output({"append", store_, "chat", "--create", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
  const std::vector<std::vector<std::string>> commands = {
      {"fork", store_, "chat", "--at"},
      {"rewind", store_, "chat", "--to"},
      {"cat", store_, "chat", "--begin"},
      {"cat", store_, "chat", "--end"},
      {"create", store_ + "2", "--segment-bytes"},
      {"append", store_, "chat", "1", "--expected-length"},
      {"dump-wal", store_, "--from"},
      {"dump-wal", store_, "--to"},
      {"ls", store_, "--limit"},
      {"tree", store_, "--width"}};
  for (const std::vector<std::string>& command : commands) {
    for (const char* number : {"-1", "18446744073709551616", "0x10", "1.5", ""}) {
      std::vector<std::string> arguments = command;
      arguments.push_back(number);
      ExpectError(arguments, 2, "InvalidArgument", command.back());
    }
  }
  ExpectError({"create", store_ + "2", "--segment-bytes", "99999999999GiB"}, 2, "InvalidArgument",
              "--segment-bytes");
  EXPECT_FALSE(fs::exists(store_ + "2"));
  EXPECT_EQ(Branches(), 1u);
  EXPECT_EQ(Output({"cat", store_, "chat", "--begin", "08"}), "9\n");
  Output({"dump-wal", store_, "--to", "18446744073709551615"});
  EXPECT_EQ(JsonOutput({"create", store_ + "2", "--segment-bytes", "256 KiB"})["segment_bytes"],
            256 << 10);
}

TEST_F(CliMistakesTest, StoreInMemoryIsRefused) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"create", ":memory:"},
                                                    {"append", ":memory:", "chat", "--create", "1"},
                                                    {"ls", ":memory:"}}) {
    ExpectError(arguments, 2, "InvalidArgument", "memory would end");
  }
  ExpectError({"ls", ""}, 2, "InvalidArgument", "path is empty");
}

TEST_F(CliMistakesTest, NamesThatWouldBeReadAsIdsAreRefused) {
  Create();
  Output({"append", store_, "chat", "--create", "1"});
  for (const std::string name : {"#3", "#99", "#x"}) {
    ExpectError({"rename", store_, "chat", name}, 2, "InvalidArgument", name);
    ExpectError({"fork", store_, "chat", "--name", name}, 2, "InvalidArgument", name);
    ExpectError({"append", store_, name, "--create", "1"}, 2, "InvalidArgument", "#");
  }
  ExpectError({"rename", store_, "chat", "#3"}, 2, "InvalidArgument", "the branch of that id");
  ExpectError({"append", store_, "#99", "1"}, 3, "NotFound", "#99");
  EXPECT_EQ(Branches(), 1u);
  const auto id = JsonOutput({"show", store_, "chat"})["id"].get<uint64_t>();
  const std::string by_id = "#" + std::to_string(id);
  EXPECT_EQ(JsonOutput({"append", store_, by_id, "--create", "2"})["length"], 2);
}

TEST_F(CliMistakesTest, LongInputIsShownByItsBeginning) {
  Create();
  const std::string euros = [] {
    std::string text;
    for (int i = 0; i < 70'000; ++i) text += "\u20ac";
    return text;
  }();
  const std::string shown = euros.substr(0, 80 * 3) + "...";
  const ToolResult line = Cairn({"append", store_, "a", "--json-lines"}, euros + "\n");
  EXPECT_EQ(line.exit_code, 2);
  EXPECT_NE(line.errors.find("is not JSON: " + shown + "\n"), std::string::npos)
      << line.errors.substr(0, 1000);
  for (const std::string& input :
       {"\"" + euros + "\"", "{\"" + euros + "\":1}", std::string(200'000, '\x80')}) {
    const ToolResult result = Cairn({"append", store_, "a", "--json-lines"}, input);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_LT(result.errors.size(), 2000u);
  }
  EXPECT_LT(Cairn({"append", store_, "a"}, euros).errors.size(), 400u);
  EXPECT_LT(Cairn({"append", store_, "a"}, "{" + euros).errors.size(), 400u);
}

TEST_F(CliMistakesTest, DumpWalKnowsItsSegments) {
  MakeFiveGroups();
  ExpectError({"dump-wal", store_, "--segment", "99"}, 3, "NotFound",
              "has no segment 99 (0000000000000063.log)");
  ExpectError({"dump-wal", store_, "--segment", "0x63"}, 3, "NotFound",
              "has no segment 99 (0000000000000063.log)");
  for (const char* number : {"1", "0x1", "0x0000000000000001"}) {
    EXPECT_NE(
        Output({"dump-wal", store_, "--segment", number}).find("segment 0000000000000001.log"),
        std::string::npos);
  }
  for (const char* number : {"-1", "18446744073709551616", "0x10000000000000000", "0x", "0x-1",
                             "0xg", "1a", "1.5", ""}) {
    ExpectError({"dump-wal", store_, "--segment", number}, 2, "InvalidArgument", "--segment");
  }
}

TEST_F(CliMistakesTest, JsonMayComeBeforeTheCommand) {
  MakeFiveGroups();
  const ToolResult before = Cairn({"--json", "stat", store_});
  EXPECT_EQ(before.exit_code, 0) << before.errors;
  EXPECT_EQ(json::parse(before.output)["store"], store_);
  const ToolResult both = Cairn({"--json", "stat", store_, "--prometheus"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_EQ(json::parse(both.errors)["error"]["code"], "InvalidArgument");
  const ToolResult unknown = Cairn({"--json", "nope"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(json::parse(unknown.errors)["error"]["message"], "there is no command \"nope\"");
}

TEST_F(CliMistakesTest, ALockedStoreSaysWhoHasItAndWhoMayLook) {
  MakeFiveGroups();
  const Store held = OpenStore();
  const std::string holder = "held by process " + std::to_string(getpid());
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"create", store_}, {"append", store_, "chat", "1"}}) {
    ExpectError(arguments, 5, "Locked", holder);
    ExpectError(arguments, 5, "Locked", "the process that has the store open");
  }
  Output({"ls", store_});
}

TEST_F(CliMistakesTest, MessagesNameWhatTheUserCanChange) {
  const std::string none = "no store at " + store_ + " (cairn create " + store_ + " makes one)";
  for (const char* command : {"ls", "stat", "verify", "dump-wal", "repair"}) {
    ExpectError({command, store_}, 3, "NotFound", none);
  }
  ExpectError({"append", store_, "chat", "1"}, 3, "NotFound", none);
  ExpectError({"create", store_, "--segment-bytes", "1000"}, 2, "InvalidArgument",
              "--segment-bytes is 1000");
  Create();
  Output({"append", store_, "chat", "--create", "1"});
  ExpectError({"append", store_, "chat", "1", "--expected-length", "7"}, 6, "Conflict",
              "--expected-length is 7");
  const ToolResult line =
      Cairn({"append", store_, "chat", "--json-lines"}, R"({"tokens":[1],"expected_length":7})");
  EXPECT_EQ(line.exit_code, 6);
  EXPECT_NE(line.errors.find("line 1: expected_length is 7"), std::string::npos) << line.errors;
}

TEST_F(CliMistakesTest, SegmentOfAnotherStoreIsDamage) {
  MakeFiveGroups();
  const std::string own = store_;
  store_ = (root_ / "other").string();
  MakeFiveGroups();
  const fs::path foreign = SegmentFile(1);
  store_ = own;
  fs::copy_file(foreign, SegmentFile(1), fs::copy_options::overwrite_existing);
  for (const char* command : {"ls", "stat", "cat"}) {
    std::vector<std::string> arguments = {command, store_};
    if (arguments[0] == "cat") arguments.push_back("chat");
    ExpectError(arguments, 4, "Corruption", "another store");
  }
  ExpectError({"append", store_, "chat", "1"}, 4, "Corruption", "another store");
  const json report = JsonOutput({"verify", store_}, 4);
  EXPECT_EQ(report["ok"], false);
  ASSERT_EQ(report["damages"].size(), 1u);
  EXPECT_NE(report["damages"][0]["what"].get<std::string>().find("another store"),
            std::string::npos);
  const std::string dump = Output({"dump-wal", store_}, 4);
  EXPECT_NE(dump.find("another store"), std::string::npos) << dump;
  EXPECT_EQ(Cairn({"repair", store_}).exit_code, 4);
  EXPECT_NE(Output({"doctor", store_, "--no-probe"}, 1).find("another store"), std::string::npos);
}

// --- The other programs

TEST(OtherToolsMistakesTest, UsageErrorsAreExitCodeTwo) {
  const auto expect = [](const std::string& program, const std::vector<std::string>& arguments,
                         const std::string& in_errors) {
    const ToolResult result = RunTool(program, arguments);
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    EXPECT_NE(result.errors.find(in_errors), std::string::npos) << result.errors;
  };
  expect("cairn-bench", {}, "the name of a benchmark");
  expect("cairn-bench", {"nope"}, "no benchmark \"nope\"");
  expect("cairn-bench", {"fork", "--colour"}, "--colour");
  expect("cairn-bench", {"rewind", "--steps", "-1"}, "--steps");
  const TempDirectory directory;  // Others run beside it, in cairn-bench.tmp.
  const std::string scratch = directory.path() + "/scratch";
  expect("cairn-bench", {"append-token", "--kv-bytes", "77", "--dir", scratch}, "not 77");
  expect("cairn-demo", {"--nope"}, "--nope");
  expect("cairn-demo", {"--tokens", "3"}, "--tokens");
  expect("cairn-demo", {"--seed", "-1"}, "--seed");
  expect("cairn-demo", {"--backend", "floppy"}, "{auto,threads,uring}");
  expect("cairn-demo", {"--tokens", "1000000"}, "positions");
  EXPECT_FALSE(fs::exists(scratch)) << "a refused run left its scratch directory";
}

TEST(OtherToolsMistakesTest, HelpIsNoError) {
  EXPECT_EQ(RunTool("cairn-bench", {"--help"}).exit_code, 0);
  const ToolResult help = RunTool("cairn-demo", {"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.output.find("--backend TEXT:{auto,threads,uring}=auto"), std::string::npos)
      << help.output;
}

}  // namespace
}  // namespace cairn::testing
