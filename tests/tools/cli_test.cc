// SPDX-License-Identifier: Apache-2.0
//
// Property: every subcommand of `cairn` does what its help says, prints JSON of the promised shape,
// ends with the promised exit code, and those that only look change no byte of the store.
// Method: the program itself on stores in a temporary directory. Their content was written by the
// program or, where it cannot (KV, samplers, spans, a live writer), by the library here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/kv_pool.h"
#include "tests/support/test_store.h"
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

ModelSpec SmallModel() {
  ModelSpec spec;
  spec.identity = {.name = "small",
                   .revision = "r1",
                   .weights_digest = "",
                   .tokenizer_digest = "",
                   .quantization = "",
                   .cache_dtype = "f16"};
  spec.groups.push_back(LayerGroup::FullAttention(2, 2, 8, Dtype::kF16));
  return spec;
}

// --- Help and usage

TEST_F(CliTest, HelpTeachesEveryCommandWithExamples) {
  const std::string help = Output({"--help"});
  for (const char* command :
       {"create", "stat",       "top",  "verify",     "ls",      "show", "cat",      "models",
        "tree",   "append",     "fork", "rewind",     "rename",  "drop", "dump-wal", "repair",
        "doctor", "checkpoint", "keep", "namespaces", "compact", "find"}) {
    EXPECT_NE(help.find(std::string("\n  ") + command + " "), std::string::npos) << command;
    const std::string own = Output({command, "--help"});
    EXPECT_NE(own.find("Examples:\n  cairn " + std::string(command)), std::string::npos) << own;
    EXPECT_NE(own.find("--json"), std::string::npos) << own;
  }
  EXPECT_NE(help.find("Exit codes:"), std::string::npos);
}

TEST_F(CliTest, UsageErrorsAreExitCodeTwo) {
  Create();
  ExpectError({"ls"}, 2, "InvalidArgument", "STORE");
  ExpectError({"frobnicate"}, 2, "InvalidArgument", "no command \"frobnicate\"");
  ExpectError({}, 2, "InvalidArgument", "subcommand");
  ExpectError({"ls", store_, "--limit", "0"}, 2, "InvalidArgument", "limit");
  ExpectError({"rewind", store_, "x"}, 2, "InvalidArgument", "--to");
  ExpectError({"show", store_, "#x"}, 2, "InvalidArgument", "#");
  ExpectError({"append", store_, "x", "12z"}, 2, "InvalidArgument", "12z");
  ExpectError({"append", store_, "x", "4294967296"}, 2, "InvalidArgument", "4294967296");
  ExpectError({"append", store_, "1", "--metadata", "{"}, 2, "InvalidArgument", "--metadata");
  ExpectError({"ls", store_, "--cursor", "nonsense"}, 2, "InvalidArgument", "--cursor");
  ExpectError({"create", store_ + "2", "--segment-bytes", "1000"}, 2, "InvalidArgument",
              "--segment-bytes");
  EXPECT_FALSE(fs::exists(store_ + "2"));
}

TEST_F(CliTest, FullOutputDeviceIsAnError) {
  Create();
  Output({"append", store_, "chat", "--create", "1"});
  const std::string command =
      std::string(CAIRN_BIN_DIR) + "/cairn cat " + store_ + " chat > /dev/full 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
}

// --- Stores

TEST_F(CliTest, CreateMakesAStoreOnce) {
  const json created = JsonOutput({"create", store_, "--segment-bytes", "512KiB"});
  EXPECT_EQ(created["segment_bytes"], 512 << 10);
  EXPECT_TRUE(created["sync_method"] == "fdatasync" || created["sync_method"] == "dsync");
  ExpectError({"create", store_}, 6, "AlreadyExists", store_);
  EXPECT_EQ(JsonOutput({"stat", store_})["segment_bytes"], 512 << 10);
}

TEST_F(CliTest, NoStoreIsNotFoundAndAForeignDirectoryIsLeftAlone) {
  for (const char* command : {"ls", "stat", "verify", "tree", "models", "dump-wal", "repair"}) {
    ExpectError({command, store_}, 3, "NotFound", store_);
  }
  ExpectError({"append", store_, "x", "1"}, 3, "NotFound", store_);
  fs::create_directory(store_);
  std::ofstream(fs::path(store_) / "thesis.txt") << "mine";
  ExpectError({"create", store_}, 1, "InvalidState", "thesis.txt");
  ExpectError({"ls", store_}, 3, "NotFound", store_);
  EXPECT_EQ(AllFiles().size(), 1u);
}

TEST_F(CliTest, NewerFormatIsRefusedByName) {
  Create();
  for (const auto& entry : fs::directory_iterator(store_)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("MANIFEST-")) continue;
    std::string bytes = ReadFile(entry.path());
    bytes[8] = 2;  // The format version stands behind eight bytes of magic.
    std::ofstream(entry.path(), std::ios::binary) << bytes;
  }
  ExpectError({"ls", store_}, 7, "UnsupportedFormat", "format version 2");
  ExpectError({"append", store_, "x", "1"}, 7, "UnsupportedFormat", "format version 2");
}

TEST_F(CliTest, SecondWriterIsLockedOutAndReadersAreNot) {
  Store store = OpenStore();
  ModelSpec spec;
  spec.identity.name = "tokens";
  const auto model = store.RegisterModel(spec);
  auto branch = store.CreateBranch(*model, {.name = "live", .ns = "", .durability = {}});
  const std::vector<TokenId> tokens = {1, 2, 3};
  ASSERT_TRUE(branch->AppendSync({.tokens = tokens}).ok());
  ExpectError({"append", store_, "live", "4"}, 5, "Locked", "LOCK");
  ExpectError({"drop", store_, "live"}, 5, "Locked", "LOCK");
  ASSERT_TRUE(store.Flush().ok());  // A reader beside the writer shows durable content.
  EXPECT_EQ(Output({"cat", store_, "live"}), "1 2 3\n");
  EXPECT_EQ(JsonOutput({"ls", store_})["branches"].size(), 1u);
  EXPECT_EQ(JsonOutput({"verify", store_, "--all"})["ok"], true);
  ASSERT_TRUE(branch->AppendSync({.tokens = tokens}).ok());
  ASSERT_TRUE(store.Flush().ok());
  EXPECT_EQ(Output({"cat", store_, "live"}), "1 2 3 1 2 3\n");
  ASSERT_TRUE(store.Close().ok());
}

TEST_F(CliTest, StatCountsWhatIsThere) {
  MakeFiveGroups();
  Output({"fork", store_, "chat", "--at", "5", "--name", "twin"});
  const json stat = JsonOutput({"stat", store_});
  EXPECT_EQ(stat["branches"], 2);
  EXPECT_EQ(stat["nodes"], 1);
  EXPECT_EQ(stat["models"], 1);
  EXPECT_EQ(stat["last_sequence"], 8);  // Model, branch, five appends, fork.
  EXPECT_EQ(stat["store_id"].get<std::string>().size(), 32u);
  EXPECT_EQ(stat["format_version"], kFormatVersion);
  EXPECT_GE(stat["files"]["segments"]["count"].get<int>(), 2);
  EXPECT_EQ(stat["files"]["segments"]["bytes"].get<uint64_t>() % 4096, 0u) << "closed";
  EXPECT_TRUE(stat["metrics"]["save"].contains("p99_ns"));
  const std::string text = Output({"stat", store_});
  EXPECT_NE(text.find("branches         2\n"), std::string::npos) << text;
}

// --- Branches

TEST_F(CliTest, AppendFromArgumentsAndStandardInput) {
  Create();
  ExpectError({"append", store_, "chat", "1"}, 3, "NotFound", "--create");
  EXPECT_EQ(Output({"append", store_, "chat", "--create", "1", "2", "3"}), "chat: 3 tokens\n");
  EXPECT_EQ(Output({"append", store_, "chat"}, 0, "4 5,6\n\n 4294967295\t\n"), "chat: 7 tokens\n");
  EXPECT_EQ(Output({"cat", store_, "chat"}), "1 2 3 4 5 6 4294967295\n");
  for (const char* durability : {"memory", "process", "power"}) {
    Output({"append", store_, "chat", "9", "--durability", durability});
  }
  ExpectError({"append", store_, "chat", "9", "--durability", "hope"}, 2, "InvalidArgument",
              "durability");
  ExpectError({"append", store_, "chat", "9", "--expected-length", "7"}, 6, "Conflict", "10");
  const json report = JsonOutput({"append", store_, "chat", "9", "--expected-length", "10"});
  EXPECT_EQ(report["branch"], "chat");
  EXPECT_EQ(report["length"], 11);
  EXPECT_EQ(
      Output({"cat", store_, "#" + std::to_string(report["id"].get<uint64_t>()), "--begin", "6"}),
      "4294967295 9 9 9 9\n");
}

TEST_F(CliTest, AppendJsonLinesToManyBranches) {
  Create();
  const std::string input =
      R"({"branch":"a","tokens":[1,2],"metadata":{"who":"ann","n":[1,2.5,null]}})"
      "\n\n"
      R"({"branch":"b","ns":"tenant","tokens":[3],"model":"other"})"
      "\n"
      R"({"branch":"a","tokens":[4],"expected_length":2})"
      "\n";
  const std::string output =
      Output({"append", store_, "--create", "--json-lines", "--json"}, 0, input);
  const std::vector<json> lines = JsonLines(output);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1]["ns"], "tenant");
  EXPECT_EQ(lines[2]["length"], 3);
  EXPECT_EQ(Output({"cat", store_, "a"}), "1 2 4\n");
  EXPECT_EQ(Output({"cat", store_, "b", "--ns", "tenant"}), "3\n");
  const json show = JsonOutput({"show", store_, "a"});
  EXPECT_EQ(show["metadata"]["position"], 2);
  EXPECT_EQ(show["metadata"]["content_type"], "application/msgpack");
  EXPECT_EQ(show["metadata"]["value"], json::parse(R"({"who":"ann","n":[1,2.5,null]})"));
  EXPECT_EQ(show["sampler"], nullptr);
  EXPECT_EQ(JsonOutput({"models", store_})["models"].size(), 2u);

  // The first bad line ends it, by its number; what came before stays.
  const std::vector<std::pair<std::string, int>> bad = {
      {"no json", 2},
      {R"({"branch":"a","tokens":[-1]})", 2},
      {R"({"branch":"a","tokens":"1"})", 2},
      {R"({"branch":"a","tokens":[1],"extra":1})", 2},
      {R"({"tokens":[1]})", 2},
      {R"({"branch":"a","tokens":[1],"expected_length":0})", 6},
      {R"({"branch":"new","tokens":[1]})", 3}};
  uint64_t length = 3;
  for (const auto& [line, exit_code] : bad) {
    const ToolResult result =
        Cairn({"append", store_, "--json-lines"}, "{\"branch\":\"a\",\"tokens\":[7]}\n" + line +
                                                      "\n" + "{\"branch\":\"a\",\"tokens\":[8]}\n");
    EXPECT_EQ(result.exit_code, exit_code) << line << result.errors;
    EXPECT_NE(result.errors.find("line 2: "), std::string::npos) << result.errors;
    EXPECT_EQ(JsonOutput({"show", store_, "a"})["length"], ++length) << line;
  }
  ExpectError({"append", store_, "a", "1", "--json-lines"}, 2, "InvalidArgument", "--json-lines");
}

TEST_F(CliTest, ForkRewindRenameDrop) {
  Create();
  Output({"append", store_, "chat", "--create", "--ns", "t", "1", "2", "3", "4"});
  const json twin =
      JsonOutput({"fork", store_, "chat", "--ns", "t", "--at", "2", "--name", "twin"});
  EXPECT_EQ(twin["name"], "twin");
  EXPECT_EQ(twin["ns"], "t");
  EXPECT_EQ(twin["length"], 2);
  const json unnamed = JsonOutput({"fork", store_, "chat", "--ns", "t"});
  EXPECT_EQ(unnamed["name"], "");
  EXPECT_EQ(unnamed["length"], 4);
  const std::string id = "#" + std::to_string(unnamed["id"].get<uint64_t>());
  EXPECT_EQ(Output({"cat", store_, id}), "1 2 3 4\n");
  EXPECT_EQ(JsonOutput({"rewind", store_, id, "--to", "1"})["length"], 1);
  EXPECT_EQ(Output({"cat", store_, "chat", "--ns", "t"}), "1 2 3 4\n");
  EXPECT_EQ(JsonOutput({"rename", store_, id, "named"})["name"], "named");
  ExpectError({"rename", store_, "named", "--ns", "t", "twin"}, 6, "AlreadyExists", "twin");
  ExpectError({"fork", store_, "twin", "--ns", "t", "--at", "3"}, 2, "InvalidArgument", "3");
  EXPECT_EQ(JsonOutput({"drop", store_, "twin", "--ns", "t"})["length"], 2);
  ExpectError({"show", store_, "twin", "--ns", "t"}, 3, "NotFound", "twin");
  ExpectError({"drop", store_, "#999"}, 3, "NotFound", "999");
  ExpectError({"cat", store_, "chat", "--ns", "t", "--end", "5"}, 2, "InvalidArgument", "--end 5");
}

TEST_F(CliTest, KeepAndNamespaces) {
  Create();
  Output({"append", store_, "chat", "--create", "--ns", "t", "1", "2"});
  const json kept =
      JsonOutput({"keep", store_, "chat", "--ns", "t", "--pin", "--priority", "7", "--ttl", "2h"});
  EXPECT_EQ(kept["keep"], (json{{"pinned", true}, {"priority", 7}, {"ttl_ns", 7'200'000'000'000}}));
  EXPECT_EQ(Output({"keep", store_, "chat", "--ns", "t", "--unpin", "--ttl", "0s"}),
            "t/chat (#2): not pinned, priority 7, no ttl\n");
  EXPECT_EQ(JsonOutput({"show", store_, "chat", "--ns", "t"})["evicted_kv"], json::array());
  ExpectError({"keep", store_, "chat", "--ns", "t", "--ttl", "7"}, 2, "InvalidArgument", "ttl");
  ExpectError({"keep", store_, "none"}, 3, "NotFound", "none");

  const json set = JsonOutput({"namespaces", store_, "--set", "t", "--max-bytes", "1MiB", "--evict",
                               "kv", "--persist", "turn-end", "--ttl", "1d", "--index", "chunks"});
  EXPECT_EQ(set["namespaces"], json::array({{{"name", "t"},
                                             {"branches", 1},
                                             {"bytes", 8},
                                             {"max_bytes", 1 << 20},
                                             {"evict", "kv"},
                                             {"persist", "turn-end"},
                                             {"ttl_ns", 86'400'000'000'000},
                                             {"index", "chunks"}}}));
  const json unset =
      JsonOutput({"namespaces", store_, "--set", "t", "--max-bytes", "0", "--evict", "default"});
  EXPECT_EQ(unset["namespaces"][0]["max_bytes"], nullptr);
  EXPECT_EQ(unset["namespaces"][0]["evict"], nullptr);
  EXPECT_EQ(unset["namespaces"][0]["persist"], "turn-end");
  EXPECT_EQ(unset["namespaces"][0]["index"], "chunks");
  const std::string text = Output({"namespaces", store_});
  EXPECT_NE(text.find("turn-end"), std::string::npos) << text;
  // A policy set back to nothing, in a namespace without branches, is not listed any more.
  Output({"namespaces", store_, "--set", "scratch", "--ttl", "12h"});
  const json reset = JsonOutput({"namespaces", store_, "--set", "scratch", "--ttl", "0s"});
  EXPECT_EQ(reset["namespaces"], json::array({{{"name", "scratch"},
                                               {"branches", 0},
                                               {"bytes", nullptr},
                                               {"max_bytes", nullptr},
                                               {"evict", nullptr},
                                               {"persist", "always"},
                                               {"ttl_ns", 0},
                                               {"index", "prefix"}}}));
  EXPECT_EQ(Output({"namespaces", store_, "--ns", "scratch"}),
            "NAMESPACE  BRANCHES  HOLDS  CAP  EVICT  PERSIST  INDEX   TTL\n"
            "scratch           0      -    -  -      always   prefix  -\n");
  ExpectError({"namespaces", store_, "--evict", "kv"}, 2, "InvalidArgument", "--set");
  ExpectError({"namespaces", store_, "--set", "t", "--evict", "all"}, 2, "InvalidArgument", "all");
}

TEST_F(CliTest, ListsByNamespacePrefixAndPage) {
  Create();
  std::string lines;
  for (const char* ns : {"", "x", "y z"}) {
    for (const char* name : {"a1", "a2", "b/1"}) {
      lines += json{{"branch", name}, {"ns", ns}, {"tokens", {1}}}.dump() + "\n";
    }
  }
  Output({"append", store_, "--create", "--json-lines"}, 0, lines);
  EXPECT_EQ(JsonOutput({"ls", store_})["branches"].size(), 9u);
  EXPECT_EQ(JsonOutput({"ls", store_, "--ns", ""})["branches"].size(), 3u);
  EXPECT_EQ(JsonOutput({"ls", store_, "--prefix", "a"})["branches"].size(), 6u);
  EXPECT_EQ(JsonOutput({"ls", store_, "--ns", "x", "--prefix", "b"})["branches"].size(), 1u);

  for (const int limit : {1, 2, 3, 4, 8, 9}) {
    std::vector<std::string> seen;
    std::string cursor;
    int pages = 0;
    do {
      std::vector<std::string> arguments = {"ls", store_, "--limit", std::to_string(limit)};
      if (!cursor.empty()) arguments.insert(arguments.end(), {"--cursor", cursor});
      const json page = JsonOutput(arguments);
      EXPECT_LE(page["branches"].size(), static_cast<size_t>(limit));
      for (const json& branch : page["branches"]) {
        seen.push_back(branch["ns"].get<std::string>() + "|" + branch["name"].get<std::string>());
      }
      cursor = page["cursor"];
    } while (!cursor.empty() && ++pages < 20);
    EXPECT_EQ(seen, (std::vector<std::string>{"|a1", "|a2", "|b/1", "x|a1", "x|a2", "x|b/1",
                                              "y z|a1", "y z|a2", "y z|b/1"}))
        << limit;
  }
  const std::string text = Output({"ls", store_, "--limit", "2"});
  EXPECT_TRUE(text.starts_with("BRANCH  ID  TOKENS  KV  MODEL   UPDATED\n")) << text;
  EXPECT_NE(text.find("more: --cursor "), std::string::npos) << text;
}

TEST_F(CliTest, ShowsUpToWhereAHybridModelCanBeRestored) {
  {
    Store store = OpenStore();
    const ModelSpec spec = EveryRuleModel();
    const auto model = store.RegisterModel(spec);
    ASSERT_TRUE(model.ok());
    auto branch = store.CreateBranch(*model, {.name = "chat"});
    ASSERT_TRUE(branch.ok());
    const std::vector<TokenId> tokens = Tokens(1);
    KvSet kv(spec, Layout::kContiguous, 0, 1);
    kv.Write(7, 0, 1);
    ASSERT_TRUE(branch->AppendSync({.tokens = tokens, .kv = kv.View(0, 1)}).ok());
    ASSERT_TRUE(branch->AppendSync({.tokens = tokens}).ok());
    ASSERT_TRUE(store.Close().ok());
  }
  EXPECT_EQ(JsonOutput({"show", store_, "chat"})["restorable"], 1);
  const std::string text = Output({"show", store_, "chat"});
  EXPECT_NE(text.find("restorable up to 1\n"), std::string::npos) << text;
}

TEST_F(CliTest, ShowsWhatTheLibraryWrote) {
  {
    Store store = OpenStore();
    const auto model = store.RegisterModel(SmallModel());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    auto branch = store.CreateBranch(*model, {.name = "ev\x1b[31mil", .ns = "", .durability = {}});
    ASSERT_TRUE(branch.ok());
    const std::vector<TokenId> tokens = {5, 6, 7, 8};
    SamplerState sampler;
    sampler.generator = GeneratorKind::kPhilox;
    sampler.philox_seed = 42;
    sampler.philox_offset = 7;
    sampler.temperature = 0.5;
    sampler.last_logits = {1.0F, 2.0F};
    const AppMetadata metadata{"text/plain", {std::byte{0xde}, std::byte{0xad}}};
    const ContentSpan span{.begin = 1, .end = 3, .hash = {1, 2}, .atomic = true};
    Delta delta;
    delta.tokens = tokens;
    delta.sampler = &sampler;
    delta.metadata = &metadata;
    delta.spans = {&span, 1};
    ASSERT_TRUE(branch->AppendSync(delta).ok());
    ASSERT_TRUE(store.Close().ok());
  }
  const json listed = JsonOutput({"ls", store_})["branches"][0];
  const json show = JsonOutput({"show", store_, "#" + std::to_string(listed["id"].get<int>())});
  EXPECT_EQ(show["name"], "ev\x1b[31mil");
  EXPECT_EQ(show["model_name"], "small");
  EXPECT_EQ(show["length"], 4);
  EXPECT_EQ(show["kv_lengths"], json::array({0}));
  ASSERT_EQ(show["path"].size(), 1u);
  EXPECT_EQ(show["path"][0]["begin"], 0);
  EXPECT_EQ(show["path"][0]["end"], 4);
  EXPECT_EQ(show["path"][0]["owner"], show["id"]);
  ASSERT_EQ(show["spans"].size(), 1u);
  EXPECT_EQ(show["spans"][0]["hash"], "00000000000000010000000000000002");
  EXPECT_EQ(show["spans"][0]["atomic"], true);
  EXPECT_EQ(show["sampler"]["generator"], "philox");
  EXPECT_EQ(show["sampler"]["seed"], 42);
  EXPECT_EQ(show["sampler"]["temperature"], 0.5);
  EXPECT_EQ(show["sampler"]["last_logits"], 2);
  EXPECT_EQ(show["metadata"]["content_type"], "text/plain");
  EXPECT_EQ(show["metadata"]["hex"], "dead");
  const json model = JsonOutput({"models", store_})["models"][0];
  EXPECT_EQ(model["name"], "small");
  EXPECT_EQ(model["groups"][0]["planes"].size(), 2u);
  EXPECT_EQ(model["token_bytes"], 2 * 2 * 2 * 8 * 2);
  // No escape sequence of a name reaches the terminal.
  for (const char* command : {"ls", "tree"}) {
    const std::string text = Output({command, store_});
    EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
    EXPECT_NE(text.find("ev\\x1b[31mil"), std::string::npos) << text;
  }
}

TEST_F(CliTest, LossIsShown) {
  Create();
  {
    Store store = OpenStore();
    ModelSpec spec;
    spec.identity.name = "small";
    spec.groups.push_back(LayerGroup::FullAttention(2, 2, 8, Dtype::kBf16));
    spec.groups[0].planes[0].sealed_as = SealedAs::kInt8;
    const auto model = store.RegisterModel(spec);
    ASSERT_TRUE(model.ok());
    ASSERT_TRUE(store.CreateBranch(*model, {.name = "chat", .ns = "", .durability = {}}).ok());
    ASSERT_TRUE(store.Close().ok());
  }
  const json planes = JsonOutput({"models", store_})["models"][0]["groups"][0]["planes"];
  EXPECT_EQ(planes[0]["sealed_as"], "int8");
  EXPECT_EQ(planes[1]["sealed_as"], "lossless");
  EXPECT_EQ(JsonOutput({"show", store_, "chat"})["lossy"],
            json::array({"attention, k sealed as int8"}));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"models", store_}, {"show", store_, "chat"}}) {
    EXPECT_NE(Output(command).find("k sealed as int8"), std::string::npos);
  }
}

TEST_F(CliTest, ModelsAreDescribed) {
  Create();
  {
    Store store = OpenStore();
    ModelSpec spec;
    spec.identity.name = "small";
    spec.groups = {LayerGroup::FullAttention(2, 2, 8, Dtype::kBf16), LayerGroup::Recurrent(1, 64)};
    spec.groups[0].planes[0].rotary.width = 8;
    spec.groups[0].planes[0].rotary.sections = {2, 1, 1};
    spec.groups[1].planes[0].state_parts = 4;
    spec.logical = {{.name = "attention",
                     .layers = 2,
                     .heads = 8,
                     .layer_end = 2,
                     .head_begin = 4,
                     .head_end = 6},
                    {.name = "recurrent",
                     .layers = 1,
                     .heads = 4,
                     .layer_end = 1,
                     .head_end = 4,
                     .replicated = true}};
    ASSERT_TRUE(store.RegisterModel(spec).ok());
    ASSERT_TRUE(store.Close().ok());
  }
  const json model = JsonOutput({"models", store_})["models"][0];
  const json planes = model["groups"][0]["planes"];
  EXPECT_EQ(planes[0]["rotary"], (json{{"state", "applied"},
                                       {"pairing", "halves"},
                                       {"first", 0},
                                       {"width", 8},
                                       {"sections", {2, 1, 1}},
                                       {"interleaved", false}}));
  EXPECT_EQ(planes[1]["rotary"], (json{{"state", "none"}}));
  EXPECT_FALSE(planes[0].contains("state_parts"));
  EXPECT_EQ(model["groups"][1]["planes"][0]["state_parts"], 4);
  EXPECT_EQ(model["logical"].size(), 2u);
  EXPECT_EQ(model["logical"][0]["head_begin"], 4);
  EXPECT_EQ(model["logical"][1]["replicated"], true);
  const std::string text = Output({"models", store_});
  EXPECT_NE(text.find("heads 4..6 of 8, k rotated in halves"), std::string::npos) << text;
  EXPECT_NE(text.find("replicated"), std::string::npos) << text;
}

// --- The log

TEST_F(CliTest, DumpWalShowsEveryRecord) {
  MakeFiveGroups();
  const std::vector<json> lines = JsonLines(Output({"dump-wal", store_, "--tokens", "--json"}));
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0]["type"], "segment");
  uint64_t sequence = 0;
  std::vector<std::string> kinds;
  for (const json& line : lines) {
    if (line["type"] != "record") continue;
    EXPECT_EQ(line["sequence"], ++sequence);
    kinds.push_back(line["kind"]);
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"model", "create", "append", "append", "append",
                                             "append", "append"}));
  const json record = AppendRecord(1);
  EXPECT_EQ(record["ops"][0]["lanes"][0]["lane"], "tokens");
  EXPECT_EQ(record["ops"][0]["lanes"][0]["begin"], 10);
  EXPECT_EQ(record["ops"][0]["lanes"][0]["count"], 10);
  EXPECT_EQ(record["strips"][0]["bytes"], 40);
  EXPECT_EQ(lines.back()["type"], "stop");
  EXPECT_EQ(lines.back()["kind"], "end");

  const std::vector<json> some = JsonLines(
      Output({"dump-wal", store_, "--from", "4", "--to", "4", "--tokens", "--verify", "--json"}));
  size_t records = 0;
  for (const json& line : some) {
    if (line["type"] != "record") continue;
    ++records;
    EXPECT_EQ(line["tokens"], json::parse("[10,11,12,13,14,15,16,17,18,19]"));
    EXPECT_FALSE(line.contains("damage"));
  }
  EXPECT_EQ(records, 1u);
  const std::string text = Output({"dump-wal", store_, "--tokens"});
  EXPECT_NE(text.find("model 1 \"tokens\""), std::string::npos) << text;
  EXPECT_NE(text.find("(new root): tokens 0..10  [tokens 40 B]"), std::string::npos) << text;
  EXPECT_NE(text.find("tokens [10,11,"), std::string::npos) << text;
}

TEST_F(CliTest, DumpWalNamesWhatANamespaceIsToldToDo) {
  Create();
  Output({"namespaces", store_, "--set", "t", "--evict", "kv", "--persist", "turn-end", "--index",
          "chunks"});
  const std::string text = Output({"dump-wal", store_});
  EXPECT_NE(text.find("\"t\" evict kv persist turn-end index chunks\n"), std::string::npos) << text;
}

// --- Looking changes nothing

TEST_F(CliTest, CommandsThatLookChangeNoByte) {
  MakeFiveGroups();
  const Bytes before = AllFiles();
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"ls", store_},
                                                    {"tree", store_},
                                                    {"show", store_, "chat"},
                                                    {"cat", store_, "chat"},
                                                    {"models", store_},
                                                    {"stat", store_},
                                                    {"verify", store_, "--all"},
                                                    {"dump-wal", store_, "--verify"},
                                                    {"keep", store_, "chat"},
                                                    {"namespaces", store_},
                                                    {"repair", store_},
                                                    {"doctor", store_, "--no-probe"}}) {
    EXPECT_EQ(Cairn(arguments).exit_code, 0) << arguments[0];
    EXPECT_TRUE(AllFiles() == before) << arguments[0];
  }
}

}  // namespace
}  // namespace cairn::testing
