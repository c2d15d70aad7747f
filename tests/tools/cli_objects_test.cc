// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn objects` puts, lists, shows, reads and deletes objects under any keys, and says
// what is wrong with what it is given. Method: the program on a store, as text and as JSON.
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliObjectsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    Output({"create", store_, "--segment-bytes", "1MiB"});
  }
};

TEST_F(CliObjectsTest, ComesAndGoes) {
  const std::string content = std::string("hello\0world\xff", 12) + std::string(9000, 'x');
  std::ofstream(root_ / "page", std::ios::binary) << content;
  const std::string file = (root_ / "page").string();
  EXPECT_EQ("page-7: 9012 bytes\n", Output({"objects", "put", store_, "page-7", file}));
  json put = JsonOutput({"objects", "put", store_, "a\\x00b", "-", "--depth", "3"}, 0, "xyz");
  EXPECT_EQ((json{{"key", "a\\x00b"}, {"bytes", 3}, {"stored", true}}), put);
  put = JsonOutput({"objects", "put", store_, "a\\x00b"}, 0, "else");
  EXPECT_EQ(false, put["stored"]);
  EXPECT_NE(std::string::npos, Output({"objects", "put", store_, "a\\x00b"}).find("was kept"));
  EXPECT_EQ(content, Output({"objects", "get", store_, "page-7"}));
  Output({"objects", "get", store_, "page-7", (root_ / "out").string()});
  EXPECT_EQ(content, ReadFile(root_ / "out"));
  EXPECT_EQ("xyz", Output({"objects", "get", store_, "a\\x00b"}));
  Output({"objects", "put", store_, "a\\x00b", "--replace"}, 0, "else");
  EXPECT_EQ("else", Output({"objects", "get", store_, "a\\x00b"}));
  EXPECT_EQ("656c7365", JsonOutput({"objects", "get", store_, "a\\x00b"})["hex"]);
  Output({"objects", "put", store_, "of another", "--ns", "t"}, 0, "1");

  const json stat = JsonOutput({"objects", "stat", store_, "page-7"});
  EXPECT_EQ(9012, stat["bytes"]);
  EXPECT_EQ(3, stat["pages"]);
  EXPECT_EQ("bytes", stat["class"]);
  EXPECT_NE(std::string::npos,
            Output({"objects", "stat", store_, "page-7"}).find("page-7: 9012 bytes, 3 pages"));
  const json all = JsonOutput({"objects", "stat", store_});
  ASSERT_EQ(2u, all["namespaces"].size());
  EXPECT_EQ("", all["namespaces"][0]["name"]);
  EXPECT_EQ(2, all["namespaces"][0]["objects"]);
  EXPECT_NE(std::string::npos, Output({"objects", "stat", store_}).find("(default)"));

  json list = JsonOutput({"objects", "ls", store_, "--limit", "1"});
  ASSERT_EQ(1u, list["objects"].size());
  EXPECT_EQ("a\\x00b", list["objects"][0]["key"]);
  list = JsonOutput({"objects", "ls", store_, "--cursor", list["cursor"]});
  ASSERT_EQ(1u, list["objects"].size());
  EXPECT_EQ("page-7", list["objects"][0]["key"]);
  EXPECT_NE(std::string::npos,
            Output({"objects", "ls", store_, "--limit", "1"}).find("more: --cursor 'a\\x00b'"));
  EXPECT_EQ("", Output({"objects", "rm", store_, "page-7"}));
  ExpectError({"objects", "rm", store_, "page-7"}, 3, "NotFound",
              "no object has the key \"page-7\"");
  ExpectError({"objects", "get", store_, "page-7"}, 3, "NotFound", "page-7");
  ExpectError({"objects", "stat", store_, "page-7"}, 3, "NotFound", "page-7");
  // They are no branches.
  EXPECT_EQ(0u, JsonOutput({"ls", store_})["branches"].size());
  EXPECT_EQ(0u, JsonOutput({"namespaces", store_})["namespaces"].size());
  Output({"verify", store_});
}

// A store of objects looked empty in ls and tree, and stat and top counted branches and tokens.
TEST_F(CliObjectsTest, AreShownAndCountedAsObjects) {
  for (const std::string key : {"a", "b", "c"}) {
    Output({"objects", "put", store_, key, "--page-bytes", "4096"}, 0, std::string(9000, 'x'));
  }
  Output({"objects", "put", store_, "d", "--ns", "t/u"}, 0, "1");
  for (const bool with_branch : {false, true}) {
    if (with_branch) Output({"append", store_, "chat", "--create", "1", "2", "3", "4", "5"});
    const json stat = JsonOutput({"stat", store_});
    EXPECT_EQ(4, stat["objects"]);
    EXPECT_EQ(with_branch ? 1 : 0, stat["branches"]);
    EXPECT_EQ(with_branch ? 1 : 0, stat["nodes"]);
    EXPECT_EQ(with_branch ? 5 : 0, stat["tokens"]);
    const json top = JsonLines(Output({"top", store_, "--count", "1", "--json"}))[0];
    EXPECT_EQ(4, top["objects"]);
    EXPECT_EQ(with_branch ? 1 : 0, top["branches"]);
    EXPECT_EQ(with_branch ? 5 : 0, top["tokens"]);
    for (const char* command : {"ls", "tree"}) {
      const json listed = JsonOutput({command, store_})["objects"];
      ASSERT_EQ(2u, listed.size()) << command;
      EXPECT_EQ("", listed[0]["name"]);
      EXPECT_EQ(3, listed[0]["objects"]);
      EXPECT_EQ("t/u", listed[1]["name"]);
      const std::string text = Output({command, store_});
      EXPECT_NE(std::string::npos, text.find("\nt\\x2fu ")) << text;
      EXPECT_EQ(with_branch, text.find("chat") != std::string::npos) << text;
    }
  }
  EXPECT_EQ(1u, JsonOutput({"ls", store_, "--ns", "t/u"})["objects"].size());
  EXPECT_EQ("1", Output({"objects", "get", store_, "d", "--ns", "t\\x2fu"}));
}

// On a terminal alone. Method: script makes one; the pipe pauses in its middle.
TEST_F(CliObjectsTest, PutShowsItsProgress) {
  if (std::system("script --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no script here";
  const std::string slowly = "(head -c 1500000 /dev/zero; sleep 0.5; head -c 1500000 /dev/zero) | ";
  const std::string put = std::string(CAIRN_BIN_DIR) + "/cairn objects put " + store_ + " big";
  const std::string seen = (root_ / "seen").string();
  ASSERT_EQ(
      0, std::system(
             ("script -qec '" + slowly + put + "' " + seen + " > /dev/null < /dev/null").c_str()));
  EXPECT_NE(std::string::npos, ReadFile(seen).find(" read")) << ReadFile(seen);
  const ToolResult piped = Cairn({"objects", "put", store_, "small"}, "x");
  EXPECT_EQ("", piped.errors);
  EXPECT_EQ(3000000, JsonOutput({"objects", "stat", store_, "big"})["bytes"]);
}

TEST_F(CliObjectsTest, Mistakes) {
  ExpectError({"objects", "put", store_, "a\\b"}, 2, "InvalidArgument", "behind \\ come x");
  ExpectError({"objects", "get", store_, "a\\x1"}, 2, "InvalidArgument", "behind \\ come x");
  ExpectError({"objects", "get", store_, std::string(257, 'k')}, 2, "InvalidArgument", "257 bytes");
  ExpectError({"objects", "put", store_, "a", (root_ / "none").string()}, 3, "NotFound",
              "cannot be read");
  ExpectError({"objects", "put", store_, "a", "--page-bytes", "63"}, 2, "InvalidArgument", "63");
  ExpectError({"objects", "put", store_, "a", "--depth", "4294967296"}, 2, "InvalidArgument",
              "4294967296");
  ExpectError({"objects", "put", store_}, 2, "InvalidArgument", "KEY");
  ExpectError({"objects", "ls", (root_ / "none").string()}, 3, "NotFound", "none");
  ExpectError({"objects"}, 2, "InvalidArgument", "subcommand");
}

}  // namespace
}  // namespace cairn::testing
