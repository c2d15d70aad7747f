// SPDX-License-Identifier: Apache-2.0
//
// Property: what people look at is in words and shows what can be had back: KV that was evicted is
// not shown as if it existed; and the commands that the help calls safe beside a process that
// writes are, all of them and no others. Method: the program on stores that the library writes
// here, some of which stay open meanwhile; every command of the help is run.
#include <algorithm>

#include "tests/support/kv_pool.h"
#include "tests/support/test_store.h"
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliLookTest : public CliTest {
 protected:
  static constexpr uint64_t kEach = 8;  // Positions of 8 KiB of KV.

  // Namespace t has room for one branch's KV: the first branch's is evicted for the second.
  void MakeEvicted() {
    Store store = OpenStore();
    const ModelSpec spec = WideModel();
    const auto model = store.RegisterModel(spec);
    ASSERT_TRUE(model.ok());
    ASSERT_TRUE(store.SetNamespace("t", {.max_bytes = 100'000, .evict = Evict::kKv}).ok());
    KvSet kv(spec, Layout::kContiguous, 0, kEach);
    kv.Write(1, 0, kEach);
    const std::vector<TokenId> tokens = Tokens(kEach);
    for (const char* name : {"first", "second"}) {
      auto branch = store.CreateBranch(*model, {.name = name, .ns = "t"});
      ASSERT_TRUE(branch.ok());
      ASSERT_TRUE(branch->AppendSync({.tokens = tokens, .kv = kv.View(0, kEach)}).ok());
    }
    ASSERT_TRUE(store.Close().ok());
  }

  // The words of a line of the help: "  keep, namespaces, repair".
  static std::vector<std::string> ListBehind(const std::string& help, const std::string& line) {
    const size_t begin = help.find(line);
    EXPECT_NE(begin, std::string::npos) << help;
    std::istringstream words(help.substr(
        begin + line.size(), help.find('\n', begin + line.size()) - begin - line.size()));
    std::vector<std::string> list;
    for (std::string word; words >> word;) {
      if (word.ends_with(',')) word.pop_back();
      list.push_back(word);
    }
    return list;
  }
};

TEST_F(CliLookTest, EvictedKvIsNotShownAsIfItWereThere) {
  MakeEvicted();
  const json branches = JsonOutput({"ls", store_})["branches"];
  ASSERT_EQ(branches.size(), 2u);
  EXPECT_EQ(branches[0]["kv_lengths"], json::array({kEach}));
  EXPECT_EQ(branches[0]["restorable"], 0);
  EXPECT_EQ(branches[1]["restorable"], kEach);
  const std::string ls = Output({"ls", store_});
  EXPECT_NE(ls.find("\nt/first   #2       8  0 of 8  wide "), std::string::npos) << ls;
  EXPECT_NE(ls.find("\nt/second  #4       8       8  wide "), std::string::npos) << ls;
  EXPECT_EQ(ls.find("unnamed"), std::string::npos) << ls;

  const json show = JsonOutput({"show", store_, "first", "--ns", "t"});
  EXPECT_EQ(show["restorable"], 0);
  EXPECT_EQ(show["evicted_kv"], json::array({{{"group", 0}, {"begin", 0}, {"end", kEach}}}));
  const std::string text = Output({"show", store_, "first", "--ns", "t"});
  EXPECT_NE(text.find("kv missing attention [0, 8)\nrestorable up to 0\n"), std::string::npos)
      << text;
  const std::string whole = Output({"show", store_, "second", "--ns", "t"});
  EXPECT_EQ(whole.find("kv missing"), std::string::npos) << whole;
  EXPECT_NE(whole.find("kv         attention up to 8\nrestorable up to 8\n"), std::string::npos)
      << whole;

  const std::string tree = Output({"tree", store_});
  EXPECT_NE(tree.find("t/first  8 tokens, KV up to 0 of 8\n"), std::string::npos) << tree;
  EXPECT_NE(tree.find("t/second  8 tokens\n"), std::string::npos) << tree;
  const json head = JsonOutput({"tree", store_})["forests"][0]["trees"][0]["branches"][0];
  EXPECT_EQ(head["restorable"], 0);
}

TEST_F(CliLookTest, WithoutKvNothingIsRestorable) {
  Create();
  Output({"append", store_, "chat", "--create", "1", "2"});
  EXPECT_FALSE(JsonOutput({"ls", store_})["branches"][0].contains("restorable"));
  EXPECT_FALSE(JsonOutput({"show", store_, "chat"}).contains("restorable"));
  const std::string text = Output({"show", store_, "chat"});
  EXPECT_EQ(text.find("restorable"), std::string::npos) << text;
  EXPECT_EQ(text.find("\nkv "), std::string::npos) << text;
}

TEST_F(CliLookTest, ShowSpeaksInWords) {
  {
    Store store = OpenStore();
    const auto model = store.RegisterModel(TinyModel());
    ASSERT_TRUE(model.ok());
    auto branch = store.CreateBranch(
        *model, {.name = "chat", .keep = {.pinned = true, .priority = 7, .ttl_ns = 0}});
    ASSERT_TRUE(branch.ok());
    SamplerState sampler;
    sampler.generator = GeneratorKind::kPhilox;
    sampler.philox_seed = 42;
    sampler.temperature = 0.7F;
    const AppMetadata metadata{"text/plain", {std::byte{0xde}, std::byte{0xad}}};
    const ContentSpan span{.begin = 1, .end = 3, .hash = {1, 2}, .atomic = true};
    const std::vector<TokenId> tokens = {5, 6, 7, 8};
    Delta delta;
    delta.tokens = tokens;
    delta.sampler = &sampler;
    delta.metadata = &metadata;
    delta.spans = {&span, 1};
    ASSERT_TRUE(branch->AppendSync(delta).ok());
    ASSERT_TRUE(store.Close().ok());
  }
  const std::string text = Output({"show", store_, "chat"});
  for (const char* line :
       {"branch     chat\n", "\nkv         attention up to 0\n", "\nrestorable up to 0\n",
        "\nkeep       pinned, priority 7, no ttl\n", "\nused       2", "\n  [0, 4)  node 3, ",
        "\nspan       [1, 3) hash 00000000000000010000000000000002, atomic\n",
        "\nsampler    at 4: philox, seed 42, offset 0, temperature 0.7, top p 1, ",
        "\nmetadata   at 4: text/plain dead\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find_first_of("{}\""), std::string::npos) << text;
  const json show = JsonOutput({"show", store_, "chat"});
  EXPECT_EQ(show["keep"], (json{{"pinned", true}, {"priority", 7}, {"ttl_ns", 0}}));
  EXPECT_GE(show["used_at_ns"], show["created_at_ns"]);

  Output({"keep", store_, "chat", "--ttl", "36h"});
  EXPECT_NE(Output({"show", store_, "chat"}).find(", ttl 36 h\n"), std::string::npos);
  // Metadata stored as JSON is shown as JSON, and cut when it is long.
  Output({"append", store_, "chat", "9", "--metadata", R"({"turn": 2})"});
  const std::string with_json = Output({"show", store_, "chat"});
  EXPECT_NE(with_json.find("metadata   at 5: application/msgpack {\"turn\":2}\n"),
            std::string::npos)
      << with_json;
  Output({"append", store_, "chat", "9", "--metadata", "\"" + std::string(500, 'x') + "\""});
  EXPECT_NE(Output({"show", store_, "chat"}).find("xxx... (--json shows all)\n"),
            std::string::npos);
}

TEST_F(CliLookTest, BranchesWithoutANameAreFoundByWhatIsPrinted) {
  store_ = (root_ / "it's a store").string();
  Create();
  Output({"append", store_, "chat", "--create", "1", "2", "3"});
  Output({"fork", store_, "chat", "--at", "2"});
  const std::string ls = Output({"ls", store_}), before = "unnamed ones by id: cairn ";
  const size_t hint = ls.find(before);
  ASSERT_NE(hint, std::string::npos) << ls;
  // As it would be typed.
  const auto type = [&](const std::string& arguments) {
    const std::string out = (root_ / "out").string();
    std::ofstream(root_ / "line") << CAIRN_BIN_DIR "/cairn " << arguments << "\n";
    const int status =
        std::system(("sh " + (root_ / "line").string() + " > " + out + " 2>&1").c_str());
    return std::pair(WEXITSTATUS(status), ReadFile(out));
  };
  const auto [code, shown] = type(ls.substr(hint + before.size()));
  EXPECT_EQ(code, 0) << shown;
  EXPECT_TRUE(shown.starts_with("branch     (unnamed)\n")) << shown;

  // Without the quotes no branch is named at all.
  const auto [missing, errors] = type("show state #2");
  EXPECT_EQ(missing, 2);
  EXPECT_NE(errors.find("BRANCH is required (an id is quoted in a shell, as '#17')"),
            std::string::npos)
      << errors;
  ExpectError({"append", store_}, 2, "InvalidArgument", "an id is quoted in a shell");
  // A missing store's hint, too, works as it stands.
  const ToolResult none = Cairn({"ls", store_ + "2"});
  EXPECT_NE(none.errors.find("(cairn create '"), std::string::npos) << none.errors;
}

TEST_F(CliLookTest, TheHelpTellsWhatIsSafeBesideAWriter) {
  const std::string help = Output({"--help"});
  const std::vector<std::string> looks = ListBehind(help, "These commands only look:\n");
  const std::vector<std::string> unless_told =
      ListBehind(help, "and these, unless an option tells them to change something:\n");
  EXPECT_EQ(unless_told.size(), 5u);

  MakeFiveGroups();
  const std::map<std::string, std::vector<std::string>> arguments = {
      {"create", {}},
      {"verify", {"--all"}},
      {"compact", {}},
      {"checkpoint", {(root_ / "copy").string()}},
      {"export", {"chat", (root_ / "chat.safetensors").string()}},
      {"import", {"/dev/null"}},
      {"stat", {}},
      {"top", {"--count", "1"}},
      {"ls", {}},
      {"show", {"chat"}},
      {"cat", {"chat"}},
      {"models", {}},
      {"tree", {}},
      {"du", {}},
      {"diff", {"chat", "chat"}},
      {"log", {"chat"}},
      {"append", {"chat", "1"}},
      {"fork", {"chat"}},
      {"rewind", {"chat", "--to", "1"}},
      {"rename", {"chat", "other"}},
      {"drop", {"chat"}},
      {"find", {"--tokens", "/dev/null"}},
      {"compose", {"chat"}},
      {"keep", {"chat"}},
      {"namespaces", {}},
      {"objects", {}},
      {"shadow", {"chat"}},
      {"dump-wal", {}},
      {"repair", {}},
      {"doctor", {}}};
  std::istringstream lines(help.substr(help.find("Subcommands:\n") + 13));
  size_t commands = 0;
  Store writer = OpenStore();
  for (std::string line; std::getline(lines, line) && !line.empty(); ++commands) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    ASSERT_TRUE(arguments.contains(name)) << line;
    std::vector<std::string> call{name, store_};
    if (name == "objects") call.insert(call.begin() + 1, "ls");
    if (name == "shadow") call.insert(call.begin() + 1, "stat");
    call.insert(call.end(), arguments.at(name).begin(), arguments.at(name).end());
    const bool safe = std::count(looks.begin(), looks.end(), name) +
                          std::count(unless_told.begin(), unless_told.end(), name) ==
                      1;
    const ToolResult result = Cairn(call);
    // It looks where it cannot own, and there is nothing of no tokens; the model has no keys.
    const int expected = name == "find" ? 3 : name == "shadow" ? 2 : safe ? 0 : 5;
    EXPECT_EQ(result.exit_code, expected) << name << result.errors;
  }
  EXPECT_EQ(commands, arguments.size());
  for (const std::vector<std::string>& told :
       {std::vector<std::string>{"keep", store_, "chat", "--pin"},
        {"keep", store_, "chat", "--priority", "0"},
        {"objects", "rm", store_, "key"},
        {"namespaces", store_, "--set", "t", "--ttl", "1d"}}) {
    EXPECT_EQ(Cairn(told).exit_code, 5) << told[0];
  }
  EXPECT_EQ(Output({"keep", store_, "chat"}), "chat (#2): not pinned, priority 0, no ttl\n");
  EXPECT_EQ(JsonOutput({"keep", store_, "chat"})["keep"]["pinned"], false);
  ASSERT_TRUE(writer.Close().ok());
}

}  // namespace
}  // namespace cairn::testing
