// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn tree --html` and `--svg` show every branch or say how many they fold, are well
// formed and bounded whatever the store holds, run nothing that a name says, and count bytes as the
// store does. Method: the program on stores of forks, hostile names, KV in the log, in tables,
// evicted and approximate; the page's data is read as its script reads it.
#include <algorithm>
#include <cctype>

#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

size_t CountOf(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++count;
  return count;
}

// The first thing that makes it no XML, as far as elements, attributes and entities go; or nothing.
std::string FlawOf(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = 0; at < xml.size();) {
    if (xml[at] == '&') {
      const size_t end = xml.find(';', at);
      if (end == std::string::npos || end - at > 6) return "a bare & at " + std::to_string(at);
      at = end + 1;
    } else if (xml[at] != '<') {
      ++at;
    } else {
      const size_t end = xml.find('>', at);
      if (end == std::string::npos) return "a bare < at " + std::to_string(at);
      const std::string tag = xml.substr(at + 1, end - at - 1);
      at = end + 1;
      if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "half an attribute: " + tag;
      if (tag.starts_with('/')) {
        if (open.empty() || open.back() != tag.substr(1)) return "a stray " + tag;
        open.pop_back();
      } else if (!tag.ends_with('/')) {
        const std::string name = tag.substr(0, tag.find(' '));
        if (name.empty() || !std::all_of(name.begin(), name.end(), ::isalpha)) return "tag " + tag;
        open.push_back(name);
      }
    }
  }
  return open.empty() ? "" : open.back() + " stays open";
}

class CliPictureTest : public CliTest {
 protected:
  std::string Html() { return Written("--html"); }
  std::string Svg() { return Written("--svg"); }
  std::string Written(const std::string& option, std::vector<std::string> more = {}) {
    const std::string file = (root_ / "picture").string();
    std::vector<std::string> arguments = {"tree", store_, option, file, "--force"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Output(arguments);
    return ReadFile(file);
  }
  // What the page's script reads.
  static json DataOf(const std::string& page) {
    const std::string begin = "id=\"data\">";
    const size_t at = page.find(begin) + begin.size();
    json data = json::parse(page.substr(at, page.find("</script>", at) - at), nullptr, false);
    EXPECT_FALSE(data.is_discarded());
    return data;
  }
  // The row of the page's data with this name.
  static size_t RowOf(const json& data, const std::string& name) {
    const auto& names = data["name"];
    const auto found = std::find(names.begin(), names.end(), name);
    EXPECT_NE(found, names.end()) << name;
    return static_cast<size_t>(found - names.begin());
  }
  static size_t Shapes(const std::string& svg) {
    return CountOf(svg, "<path") + CountOf(svg, "<circle") + CountOf(svg, "<text");
  }
  static ModelSpec TokensAlone() {
    ModelSpec spec;
    spec.identity.name = "tokens";
    return spec;
  }
};

TEST_F(CliPictureTest, BranchesLeaveEachOtherWhereTheyDo) {
  Create();
  const std::vector<std::string> ids = {"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"};
  std::vector<std::string> append = {"append", store_, "chat", "--create"};
  append.insert(append.end(), ids.begin(), ids.end());
  Output(append);
  Output({"fork", store_, "chat", "--at", "4", "--name", "what-if"});
  Output({"append", store_, "what-if", "7", "7"});
  Output({"fork", store_, "chat", "--at", "10", "--name", "twin"});
  const json data = DataOf(Html());
  EXPECT_EQ(data["name"], json({"chat", "twin", "what-if"}));
  EXPECT_EQ(data["up"], json({0, 1, 2}));
  EXPECT_EQ(data["at"], json({0, 10, 4}));
  EXPECT_EQ(data["len"], json({10, 10, 6}));
  EXPECT_EQ(data["kv"], json({"l10", "", "l2"}));
  EXPECT_EQ(data["nodes"], json({1, 0, 1}));
  EXPECT_EQ(data["nlen"], json({10, 2}));
  // Four bytes an id: chat and twin share ten; what-if has two of its own.
  EXPECT_EQ(data["own"], json({0, 0, 8}));
  EXPECT_EQ(data["shared"], json({40, 40, 16}));
  EXPECT_EQ(data["forests"][0]["rows"], 3);
  const std::string svg = Svg();
  EXPECT_EQ(FlawOf(svg), "") << svg;
  EXPECT_EQ(CountOf(svg, "<circle"), 3u);
  EXPECT_EQ(CountOf(svg, "class=\"stem\""), 2u);
  EXPECT_EQ(CountOf(svg, "<path class=\"log\""), 3u);  // Two lines, and the legend.
  const json told = JsonOutput({"tree", store_, "--html", root_ / "a", "--svg", root_ / "b"});
  EXPECT_EQ(told["branches"], 3);
  EXPECT_EQ(told["nodes"], 2);
  EXPECT_EQ(told["files"][1]["bytes"], fs::file_size(root_ / "b"));
}

TEST_F(CliPictureTest, NamesAreShownAndNeverRun) {
  const std::vector<std::string> names = {"</script><script>alert(1)</script>",
                                          "<svg onload=alert(1)>",
                                          "\"><img src=x onerror=alert(1)>",
                                          "&lt;b&gt; ]]> <!--",
                                          "@data@ @script@",
                                          "ev\x1b[31mil\n",
                                          "turned\xe2\x80\xaetxt",
                                          "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",
                                          "half \xc3",
                                          std::string(200, 'w')};
  {
    Store store = OpenStore();
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokensAlone()));
    for (const std::string& name : names) {
      ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model, {.name = name}));
      const std::vector<TokenId> ids(5, 7);
      ASSERT_OK(branch.AppendSync({.tokens = ids}));
    }
    ASSERT_OK(store.Close());
  }
  const std::string page = Html();
  EXPECT_EQ(CountOf(page, "<script"), 2u);
  EXPECT_EQ(CountOf(page, "</script"), 2u);
  EXPECT_EQ(CountOf(page, "<img"), 0u);
  EXPECT_EQ(CountOf(page, "<svg "), 1u);
  EXPECT_EQ(page.find('\x1b'), std::string::npos);
  EXPECT_EQ(page.find("\xe2\x80\xae"), std::string::npos);
  EXPECT_EQ(CountOf(page, "http:"), CountOf(page, "http://www.w3.org/2000/svg"));
  EXPECT_EQ(CountOf(page, "https:"), 0u);
  // The digest of the one script that the page lets run.
  EXPECT_NE(page.find("script-src 'sha256-"), std::string::npos);
  const json data = DataOf(page);
  for (const char* shown : {"<\\/script><script>alert(1)<\\/script>", "<svg onload=alert(1)>",
                            "ev\\x1b[31mil\\x0a", "turned\\xe2\\x80\\xaetxt",
                            "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d", "half \\xc3", "@data@ @script@"}) {
    std::string name = shown;
    // A slash of a name is escaped, since one separates the namespace.
    for (size_t at = 0; (at = name.find("<\\/")) != std::string::npos;) {
      name.replace(at, 3, "<\\x2f");
    }
    RowOf(data, name);
  }
  const std::string svg = Svg();
  EXPECT_EQ(FlawOf(svg), "") << svg;
  EXPECT_EQ(CountOf(svg, "<circle"), names.size());
}

// Of thousands of branches the SVG shows those of the upper levels, and counts the rest.
TEST_F(CliPictureTest, TheSvgIsBoundedAndThePageHasAll) {
  constexpr size_t kRoots = 700, kForks = 1500;
  {
    Store store = OpenStore();
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokensAlone()));
    const std::vector<TokenId> ids(20, 7);
    const BranchOptions unnamed{.durability = Durability::kMemory};
    Branch first;
    for (size_t i = 0; i < kRoots; ++i) {
      ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model, unnamed));
      ASSERT_OK(branch.AppendSync({.tokens = ids}, {.durability = Durability::kMemory}));
      if (i == 0) first = branch;
    }
    for (size_t i = 0; i < kForks; ++i) {
      ASSERT_OK_ASSIGN(Branch fork, first.ForkAt(1 + i % 20, unnamed));
      ASSERT_OK(fork.AppendSync({.tokens = ids}, {.durability = Durability::kMemory}));
    }
    ASSERT_OK(store.Close());
  }
  const std::string svg = Svg();
  EXPECT_EQ(FlawOf(svg), "");
  EXPECT_LE(Shapes(svg), 2000u);
  EXPECT_GT(CountOf(svg, "<circle"), 250u);
  // Roots first, those used last before others: the first one was forked last.
  EXPECT_EQ(CountOf(svg, ">+" + std::to_string(kForks) + " folded, 20</text>"), 1u);
  EXPECT_EQ(CountOf(svg, " more trees</text>"), 1u);
  const std::string page = Html();
  EXPECT_EQ(DataOf(page)["up"].size(), kRoots + kForks);
  EXPECT_LE(page.size(), svg.size() + 60'000 + 140 * (kRoots + kForks));
}

class CliPictureKvTest : public CliPictureTest {
 protected:
  static constexpr uint64_t kEach = 8;  // Positions of 8 KiB of KV.

  // Namespace t has room for one branch's KV; that of "first" is evicted for "second". Of "third",
  // in the namespace u, half is approximate, and "fork" leaves it there.
  void MakeKv() {
    Store store = OpenStore();
    const ModelSpec spec = WideModel();
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
    ASSERT_OK(store.SetNamespace("t", {.max_bytes = 100'000, .evict = Evict::kKv}));
    KvSet kv(spec, Layout::kContiguous, 0, 2 * kEach);
    kv.Write(1, 0, 2 * kEach);
    const std::vector<TokenId> tokens = Tokens(kEach);
    const SamplerState sampler{.temperature = 0.5};
    const std::vector<ContentSpan> spans = {{.begin = 2, .end = 5, .hash = {1, 2}, .atomic = true}};
    for (const auto& [name, ns] : {std::pair("first", "t"), {"second", "t"}, {"third", "u"}}) {
      ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model, {.name = name, .ns = ns}));
      ASSERT_OK(branch.AppendSync(
          {.tokens = tokens, .kv = kv.View(0, kEach), .sampler = &sampler, .spans = spans}));
      if (std::string(name) != "third") continue;
      ASSERT_OK_ASSIGN(const Branch fork, branch.ForkAt(kEach, {.name = "fork", .ns = "u"}));
      ASSERT_OK(branch.AppendSync({.tokens = tokens, .kv = kv.View(kEach, kEach), .exact = false}));
    }
    ASSERT_OK(store.Close());
  }
  uint64_t BytesOf(const std::string& ns) {
    const json listed = JsonOutput({"namespaces", store_});
    for (const json& one : listed["namespaces"]) {
      if (one["name"] == ns) return one["bytes"];
    }
    ADD_FAILURE() << "no namespace " << ns;
    return 0;
  }
};

TEST_F(CliPictureKvTest, KvIsShownWhereItLies) {
  MakeKv();
  for (const bool sealed : {false, true}) {
    if (sealed) Output({"compact", store_});
    const json data = DataOf(Html());
    const std::string here = sealed ? "t" : "l";
    const size_t first = RowOf(data, "t/first"), second = RowOf(data, "t/second");
    const size_t third = RowOf(data, "u/third"), fork = RowOf(data, "u/fork");
    EXPECT_EQ(data["kv"][first], "e8");
    EXPECT_EQ(data["rest"][std::to_string(first)], 0);
    EXPECT_EQ(data["kv"][second], here + "8");
    EXPECT_EQ(data["kv"][third], here + "8a8");
    EXPECT_EQ(data["kv"][fork], "");
    EXPECT_EQ(data["at"][fork], 8);
    const auto bytes = [&](const char* kind, size_t row) {
      return data[kind][row].get<uint64_t>();
    };
    EXPECT_EQ(bytes("own", first) + bytes("own", second), BytesOf("t"));
    EXPECT_EQ(bytes("own", third) + bytes("shared", third), BytesOf("u"));
    EXPECT_EQ(bytes("own", fork), 0u);
    EXPECT_EQ(bytes("shared", fork), bytes("shared", third));
    EXPECT_GT(bytes("own", third), 0u);
    // The states and spans of their nodes.
    EXPECT_EQ(data["sam"][0], 1);
    EXPECT_EQ(data["spans"]["0"]["first"], json::array({{2, 5, 1}}));
    const std::string svg = Svg();
    EXPECT_EQ(FlawOf(svg), "");
    EXPECT_EQ(CountOf(svg, "<path class=\"evicted\""), 2u);  // One line, and the legend.
    EXPECT_EQ(CountOf(svg, "<path class=\"approximate\""), 2u);
    EXPECT_EQ(CountOf(svg, sealed ? "<path class=\"table\"" : "<path class=\"log\""), 3u);
  }
}

TEST_F(CliPictureKvTest, ANamespaceOrATreeAlone) {
  MakeKv();
  EXPECT_EQ(DataOf(Written("--html", {"--ns", "u"}))["name"], json({"u/third", "u/fork"}));
  EXPECT_EQ(DataOf(Written("--html", {"t/second"}))["name"], json({"t/second"}));
}

// A branch of one namespace drawn alone: what another namespace's branch needs too is not its own.
TEST_F(CliPictureTest, CharactersThatXmlDoesNotHaveAreReplaced) {
  Create();
  {
    Store store = OpenStore();
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokensAlone()));
    ASSERT_OK(store.CreateBranch(model, {.name = "a\xef\xbf\xbe"
                                                 "b\xef\xbf\xbf"}));
    ASSERT_OK(store.Close());
  }
  const std::string svg = Svg();
  EXPECT_EQ(svg.find("\xef\xbf\xbe"), std::string::npos);
  EXPECT_EQ(svg.find("\xef\xbf\xbf"), std::string::npos);
  EXPECT_NE(svg.find("a\xef\xbf\xbd"
                     "b\xef\xbf\xbd"),
            std::string::npos);
}

TEST_F(CliPictureTest, OwnBytesOfANamespaceAloneAreThoseOfDu) {
  Create();
  {
    Store store = OpenStore();
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokensAlone()));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
    ASSERT_OK(chat.AppendSync({.tokens = Tokens(100)}));
    ASSERT_OK(chat.ForkAt(60, {.name = "other", .ns = "tenant"}));
    ASSERT_OK(store.Close());
  }
  const json data = DataOf(Written("--html", {"--ns", ""}));
  EXPECT_EQ(data["own"], json({160}));
  EXPECT_EQ(data["shared"], json({240}));
}

TEST_F(CliPictureTest, EmptyHeldAndDamagedStores) {
  ExpectError({"tree", store_, "--html", root_ / "page"}, 3, "NotFound", "cairn create");
  Create();
  EXPECT_NE(Svg().find(">no branches</text>"), std::string::npos);
  EXPECT_EQ(DataOf(Html())["up"], json::array());
  fs::remove_all(store_);
  MakeFiveGroups();
  {
    const Store held = OpenStore();
    EXPECT_EQ(DataOf(Html())["name"], json({"chat"}));
  }
  fs::remove_all(store_);
  MakeFiveGroups();
  const json record = AppendRecord(2);
  FlipByte(SegmentFile(record["segment"]), record["offset"].get<uint64_t>() + 20);
  ExpectError({"tree", store_, "--html", root_ / "page"}, 4, "Corruption", "offset");
  EXPECT_FALSE(fs::exists(root_ / "page"));
}

TEST_F(CliPictureTest, AFileIsReplacedOnlyIfTold) {
  MakeFiveGroups();
  const std::string file = (root_ / "page").string();
  Output({"tree", store_, "--html", file});
  ExpectError({"tree", store_, "--html", file}, 6, "AlreadyExists", "--force");
  Output({"tree", store_, "--html", file, "--force"});
  ExpectError({"tree", store_, "--svg", root_ / "no" / "svg"}, 3, "NotFound", "svg");
  // What exists is seen before anything is written.
  ExpectError({"tree", store_, "--html", root_ / "new", "--svg", file}, 6, "AlreadyExists", "page");
  EXPECT_FALSE(fs::exists(root_ / "new"));
  ExpectError({"tree", store_, "--html", root_ / "new", "--svg", root_ / "new"}, 2,
              "InvalidArgument", "same file");
}

}  // namespace
}  // namespace cairn::testing
