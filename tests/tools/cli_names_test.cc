// SPDX-License-Identifier: Apache-2.0
//
// Property: what a command prints for a branch or a namespace, every command takes for it, also
// for one that it makes; a word has one meaning or none; and no name can look like something else
// on a terminal. Method: branches with ordinary, nested and hostile names, made by the library;
// their labels are taken out of `ls` and given to the commands.
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliNames : public CliTest {
 protected:
  // A branch with as many tokens as there are branches before it, and one more.
  void Make(const std::vector<std::pair<std::string, std::string>>& ns_and_name) {
    Store store = OpenStore();
    ModelSpec spec;
    spec.identity.name = "tokens";
    const auto model = store.RegisterModel(spec);
    ASSERT_TRUE(model.ok());
    size_t tokens = 0;
    for (const auto& [ns, name] : ns_and_name) {
      auto branch = store.CreateBranch(*model, {.name = name, .ns = ns});
      ASSERT_TRUE(branch.ok()) << branch.status().ToString();
      const std::vector<TokenId> ids(++tokens, 7);
      ASSERT_TRUE(branch->AppendSync({.tokens = ids}).ok());
      ids_[{ns, name}] = static_cast<uint64_t>(branch->id());
    }
    ASSERT_TRUE(store.Close().ok());
  }
  // The text before the id in the lines of the table, by the id.
  std::map<std::string, std::string> LabelsById() {
    std::istringstream lines(Output({"ls", store_}));
    std::map<std::string, std::string> labels;
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && !line.starts_with("unnamed ones by id:")) {
      std::istringstream words(line);
      std::string label, word;
      for (words >> label; words >> word && !word.starts_with('#');) label += ' ' + word;
      labels[word] = label;
    }
    return labels;
  }
  std::map<std::pair<std::string, std::string>, uint64_t> ids_;
};

TEST_F(CliNames, WhatIsPrintedIsTaken) {
  Make({{"", "chat"},
        {"tenant", "chat"},
        {"a/b", "c/d"},
        {"", "x/y"},
        {"", ""},
        {"", "#1"},
        {"#n", "m"},
        {"", "ev\x1b[31mil\n"},
        {"line\nbreak", "quote\"back\\slash"},
        {"", "half \xc3"},
        {"", "turned\xe2\x80\xaetxt"},
        {"", "\xc3\xa9t\xc3\xa9"},
        {"", "ends/"},
        {"", "a\\x41"}});
  const std::map<std::string, std::string> labels = LabelsById();
  ASSERT_EQ(labels.size(), ids_.size());
  for (const auto& [key, id] : ids_) {
    const std::string by_id = "#" + std::to_string(id);
    ASSERT_TRUE(labels.contains(by_id)) << by_id;
    const std::string shown = Output({"tree", store_, by_id});
    const std::string& label = labels.at(by_id);
    EXPECT_NE(shown.find(label), std::string::npos) << shown;
    for (const std::string& word : {label, by_id}) {
      EXPECT_EQ(JsonOutput({"show", store_, word})["id"], id) << word;
      EXPECT_EQ(JsonOutput({"cat", store_, word})["tokens"].size(),
                JsonOutput({"show", store_, by_id})["length"]);
    }
    for (const char c : label) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << label;
  }
  EXPECT_EQ(labels.at("#" + std::to_string(ids_[{"tenant", "chat"}])), "tenant/chat");
  EXPECT_EQ(labels.at("#" + std::to_string(ids_[{"", "#1"}])), "\\x231");
}

TEST_F(CliNames, EveryCommandTakesThem) {
  Make({{"tenant", "chat"}});
  EXPECT_EQ(JsonOutput({"append", store_, "tenant/chat", "5", "6"})["ns"], "tenant");
  EXPECT_EQ(JsonOutput({"fork", store_, "tenant/chat", "--name", "twin"})["ns"], "tenant");
  EXPECT_EQ(JsonOutput({"rewind", store_, "tenant/twin", "--to", "2"})["length"], 2);
  EXPECT_EQ(JsonOutput({"keep", store_, "tenant/twin", "--pin"})["keep"]["pinned"], true);
  EXPECT_EQ(JsonOutput({"rename", store_, "tenant/twin", "other"})["name"], "other");
  EXPECT_EQ(Output({"drop", store_, "tenant/other"}).find("tenant/other"), 0u);
  EXPECT_EQ(JsonLines(Output({"append", store_, "--json-lines", "--json"}, 0,
                             "{\"branch\":\"tenant/chat\",\"tokens\":[1]}\n"))[0]["length"],
            4);
  // An id without its # is a name, and the message helps.
  ExpectError({"show", store_, "1"}, 3, "NotFound", "'#17'");
  ExpectError({"show", store_, "chat"}, 3, "NotFound", "chat");
  // With --ns a word is a name and nothing else.
  ExpectError({"show", store_, "tenant/chat", "--ns", ""}, 3, "NotFound", "tenant/chat");
  EXPECT_NE(Output({"dump-wal", store_}).find("\"tenant/chat\""), std::string::npos);
}

// Equal rows of ls stood for two branches.
TEST_F(CliNames, AWordHasOneMeaning) {
  Make({{"", "a/b"}, {"a", "b"}, {"", "A"}, {"", "\\x41"}, {"(default)", "x"}});
  const std::map<std::string, std::string> labels = LabelsById();
  EXPECT_EQ(labels.at("#" + std::to_string(ids_[{"", "a/b"}])), "a\\x2fb");
  EXPECT_EQ(labels.at("#" + std::to_string(ids_[{"a", "b"}])), "a/b");
  EXPECT_EQ(JsonOutput({"show", store_, "a\\x2fb"})["length"], 1);
  EXPECT_EQ(JsonOutput({"show", store_, "a/b"})["length"], 2);
  EXPECT_EQ(JsonOutput({"show", store_, "a/b", "--ns", ""})["length"], 1);
  EXPECT_EQ(JsonOutput({"show", store_, "a/b", "--ns", "(default)"})["length"], 1);
  EXPECT_EQ(JsonOutput({"show", store_, "b", "--ns", "a"})["length"], 2);
  EXPECT_EQ(JsonOutput({"show", store_, "A"})["length"], 3);
  EXPECT_EQ(JsonOutput({"show", store_, "\\x41"})["length"], 3);
  EXPECT_EQ(JsonOutput({"show", store_, "\\x5cx41"})["length"], 4);
  EXPECT_EQ(JsonOutput({"show", store_, "\\x28default)/x"})["length"], 5);
  Output({"drop", store_, "a/b"});
  ExpectError({"drop", store_, "a/b"}, 3, "NotFound", "the default namespace has 'a\\x2fb'");
  EXPECT_EQ(JsonOutput({"ls", store_, "--ns", ""})["branches"].size(), 3u);
}

TEST_F(CliNames, WordsWithoutOneMeaningAreRefused) {
  Make({{"", "chat"}});
  ExpectError({"show", store_, "a/b/c"}, 2, "InvalidArgument", "several slashes");
  ExpectError({"show", store_, "/c"}, 2, "InvalidArgument", "between namespace and name");
  ExpectError({"show", store_, "c/"}, 2, "InvalidArgument", "between namespace and name");
  ExpectError({"show", store_, "a\\b"}, 2, "InvalidArgument", "behind \\ come x");
  ExpectError({"append", store_, "a/b/c", "--create", "1"}, 2, "InvalidArgument",
              "several slashes");
  ExpectError({"fork", store_, "chat", "--name", "other/chat"}, 2, "InvalidArgument",
              "stays there");
  ExpectError({"rename", store_, "chat", "other/chat"}, 2, "InvalidArgument", "stays there");
}

// `append --create NS/NAME` made a branch with a slash in the default namespace.
TEST_F(CliNames, WhatIsMadeIsFoundByTheSameWord) {
  Create();
  for (const char* word : {"tenant/chat", "a\\x2fb", "n\\x2fs/c\\x2fd"}) {
    json made = JsonOutput({"append", store_, word, "--create", "1"});
    EXPECT_EQ(JsonOutput({"append", store_, word, "--create", "2"})["id"], made["id"]) << word;
    EXPECT_NE(Output({"ls", store_}).find(std::string(word) + " "), std::string::npos) << word;
  }
  const json shown = JsonOutput({"show", store_, "tenant/chat"});
  EXPECT_EQ(shown["ns"], "tenant");
  EXPECT_EQ(shown["name"], "chat");
  EXPECT_EQ(JsonOutput({"fork", store_, "tenant/chat", "--name", "tenant/twin"})["name"], "twin");
  EXPECT_EQ(JsonOutput({"rename", store_, "tenant/twin", "x\\x2fy"})["name"], "x/y");
  EXPECT_EQ(JsonOutput({"show", store_, "tenant/x\\x2fy"})["ns"], "tenant");
  // In a JSON line with "ns" both are plain; what is reported goes into a line again.
  const std::string line = R"({"branch":"p/q\\x41","ns":"u/v","tokens":[1]})";
  std::vector<json> lines =
      JsonLines(Output({"append", store_, "--create", "--json-lines", "--json"}, 0, line + "\n"));
  EXPECT_EQ(lines[0]["branch"], "p/q\\x41");
  lines[0].erase("id");
  lines[0].erase("length");
  lines[0]["tokens"] = {2};
  lines = JsonLines(Output({"append", store_, "--json-lines", "--json"}, 0, lines[0].dump()));
  EXPECT_EQ(lines[0]["length"], 2);
  EXPECT_EQ(JsonOutput({"show", store_, "u\\x2fv/p\\x2fq\\x5cx41"})["length"], 2);
}

TEST_F(CliNames, NamespacesByWhatIsPrinted) {
  Make({{"line\nbreak", "x"}});
  const std::string text = Output({"namespaces", store_});
  EXPECT_NE(text.find("line\\x0abreak"), std::string::npos) << text;
  EXPECT_EQ(JsonOutput({"ls", store_, "--ns", "line\\x0abreak"})["branches"].size(), 1u);
  EXPECT_EQ(JsonOutput({"namespaces", store_, "--set", "line\\x0abreak", "--ttl",
                        "7d"})["namespaces"][0]["name"],
            "line\nbreak");
  EXPECT_EQ(JsonOutput({"show", store_, "x", "--ns", "line\\x0abreak"})["length"], 1);
}

TEST_F(CliNames, MessagesEscapeThem) {
  Make({{"", "x"}});
  const ToolResult refused = Cairn({"show", store_, "no\nsuch\" branch"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.errors.find("\"no\\x0asuch\\x22 branch\""), std::string::npos)
      << refused.errors;
}

}  // namespace
}  // namespace cairn::testing
