// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn objects` puts, lists, shows, reads and deletes objects under any keys, and tells
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
  // Branches know nothing of them.
  EXPECT_EQ(0u, JsonOutput({"ls", store_})["branches"].size());
  EXPECT_EQ(0u, JsonOutput({"namespaces", store_})["namespaces"].size());
  Output({"verify", store_});
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
