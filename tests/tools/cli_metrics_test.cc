// SPDX-License-Identifier: Apache-2.0
//
// Property: stat and top show contents, chains and health of a store as a reader can know them,
// beside a process that writes, and change nothing. Method: the program on a store that this test
// writes by the library, closed or open.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliMetricsTest : public CliTest {};

TEST_F(CliMetricsTest, StatShowsHealthAndEveryMetric) {
  MakeFiveGroups();
  const Bytes before = AllFiles();
  const json stat = JsonOutput({"stat", store_});
  EXPECT_EQ(stat["health"], (json{{"ok", true}, {"alarms", json::array()}}));
  EXPECT_EQ(stat["metrics"]["tokens"], 50);
  EXPECT_EQ(stat["metrics"]["raw_bytes"], 200);
  EXPECT_EQ(stat["metrics"]["chain_lanes"], 0) << "a model without KV";
  EXPECT_EQ(stat["mean_chain"], 0);
  EXPECT_EQ(stat["stored_ratio"], stat["metrics"]["stored_bytes"].get<double>() / 200);
  EXPECT_TRUE(stat["metrics"]["restore"].contains("p95_ns"));
  const std::string text = Output({"stat", store_});
  EXPECT_NE(text.find("tokens           50\n"), std::string::npos) << text;
  EXPECT_NE(text.find("health           ok"), std::string::npos) << text;
  EXPECT_EQ(AllFiles(), before);
}

TEST_F(CliMetricsTest, StatCountsTables) {
  MakeFiveGroups();
  json files = JsonOutput({"stat", store_})["files"];
  EXPECT_EQ(files["snapshot_tables"], (json{{"count", 0}, {"bytes", 0}, {"allocated_bytes", 0}}));
  std::string text = Output({"stat", store_});
  EXPECT_NE(text.find("snapshot tables  0 files, 0 B on disk, 0 B long\n"), std::string::npos)
      << text;
  {
    Store store = OpenStore();
    ASSERT_TRUE(store.Compact().ok());
    ASSERT_TRUE(store.Close().ok());
  }
  const json stat = JsonOutput({"stat", store_});
  files = stat["files"];
  std::map<std::string, std::pair<uint64_t, uint64_t>> tables;
  for (const auto& entry : fs::directory_iterator(fs::path(store_) / "tables")) {
    auto& [count, bytes] = tables[entry.path().extension().string()];
    ++count;
    bytes += entry.file_size();
  }
  EXPECT_GE(tables[".snapshot"].first, 1u);
  EXPECT_GE(tables[".index"].first, 1u);
  for (const auto& [kind, extension] :
       {std::pair("snapshot_tables", ".snapshot"), std::pair("index_tables", ".index")}) {
    EXPECT_EQ(files[kind]["count"], tables[extension].first) << kind;
    EXPECT_EQ(files[kind]["bytes"], tables[extension].second) << kind;
  }
  EXPECT_EQ(stat["metrics"]["tables"], files["snapshot_tables"]["count"]);
  EXPECT_EQ(stat["metrics"]["table_bytes"], files["snapshot_tables"]["bytes"]);
  text = Output({"stat", store_});
  EXPECT_NE(text.find("\nsnapshot tables  1 file, "), std::string::npos) << text;
  EXPECT_NE(text.find(" B live\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nindex tables     "), std::string::npos) << text;
}

TEST_F(CliMetricsTest, StatShowsTotalCapAndFreeSpace) {
  MakeFiveGroups();
  json space = JsonOutput({"stat", store_})["space"];
  EXPECT_EQ(space["files"], AllFiles().size());
  EXPECT_EQ(space["cap_known"], true);
  EXPECT_EQ(space["cap_bytes"], nullptr);
  EXPECT_GT(space["disk_free_bytes"].get<uint64_t>(), 0u);
  EXPECT_GE(space["disk_bytes"], space["disk_free_bytes"]);
  std::string text = Output({"stat", store_});
  EXPECT_NE(text.find("\ncap              none, of the process that wrote last\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\ntotal            "), std::string::npos) << text;
  EXPECT_NE(text.find(" on the volume\n"), std::string::npos) << text;
  {
    Options options;
    options.max_bytes = 64 << 20;
    auto store = Store::Open(store_, options);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    ASSERT_TRUE(store->Close().ok());
  }
  space = JsonOutput({"stat", store_})["space"];
  EXPECT_EQ(space["cap_bytes"], 64 << 20);
  EXPECT_EQ(space["below_cap_bytes"].get<uint64_t>(),
            (64u << 20) - space["allocated_bytes"].get<uint64_t>());
  text = Output({"stat", store_});
  EXPECT_NE(text.find("\ncap              64 MiB on disk, "), std::string::npos) << text;
  fs::remove(fs::path(store_) / "HINT");
  text = Output({"stat", store_});
  EXPECT_NE(text.find("\ncap              not known"), std::string::npos) << text;
}

// A segment that is ready to be the next has its number already.
TEST_F(CliMetricsTest, FilesOfStatAddUpToWhatIsStored) {
  MakeFiveGroups();
  Output({"append", store_, "chat", "1"});
  const auto expect = [&] {
    const json stat = JsonOutput({"stat", store_});
    const json& files = stat["files"];
    EXPECT_EQ(files["segments"]["count"], stat["metrics"]["log_segments"]);
    EXPECT_EQ(files["segments"]["bytes"].get<uint64_t>() +
                  files["snapshot_tables"]["bytes"].get<uint64_t>(),
              stat["metrics"]["stored_bytes"]);
    size_t logs = 0;
    for (const auto& entry : fs::directory_iterator(fs::path(store_) / "log")) {
      logs += entry.is_regular_file() ? 1 : 0;
    }
    EXPECT_EQ(files["segments"]["count"].get<size_t>() + files["spares"]["count"].get<size_t>(),
              logs);
  };
  expect();
  Output({"compact", store_});
  expect();
  const Store live = OpenStore();
  expect();
}

// Ten branches of 101 deltas each: a mean chain that raises the alarm.
TEST_F(CliMetricsTest, StatShowsAlarms) {
  Store store = OpenStore();
  ModelSpec spec;
  spec.identity.name = "kv";
  spec.groups.push_back(LayerGroup::FullAttention(1, 1, 4, Dtype::kF16));
  const auto model = store.RegisterModel(spec);
  ASSERT_TRUE(model.ok());
  std::vector<std::byte> k(8), v(8);
  std::byte* k_base = k.data();
  std::byte* v_base = v.data();
  const std::vector<TokenId> tokens = {1};
  for (int i = 0; i < 10; ++i) {
    auto branch = store.CreateBranch(*model);
    ASSERT_TRUE(branch.ok());
    for (uint64_t at = 0; at < 101; ++at) {
      const PlaneView planes[] = {
          {.layer_bases = {&k_base, 1}, .token_stride = 8, .head_stride = 8},
          {.layer_bases = {&v_base, 1}, .token_stride = 8, .head_stride = 8}};
      const GroupView group{.position = at, .count = 1, .planes = planes};
      const KvView kv{.groups = {&group, 1}};
      const auto length = branch->AppendSync({.tokens = tokens, .kv = &kv});
      ASSERT_TRUE(length.ok()) << length.status().ToString();
    }
  }
  ASSERT_TRUE(store.Close().ok());
  const json stat = JsonOutput({"stat", store_});
  EXPECT_EQ(stat["mean_chain"], 101);
  EXPECT_EQ(stat["health"]["ok"], false);
  ASSERT_EQ(stat["health"]["alarms"].size(), 1u);
  EXPECT_EQ(stat["health"]["alarms"][0]["name"], "mean_chain");
  EXPECT_EQ(stat["health"]["alarms"][0]["limit"], 100);
  const std::string text = Output({"stat", store_});
  EXPECT_NE(text.find("ALARM            mean_chain: "), std::string::npos) << text;
  EXPECT_EQ(text.find("health"), std::string::npos) << text;
}

TEST_F(CliMetricsTest, StatPrintsPrometheusText) {
  MakeFiveGroups();
  const std::string text = Output({"stat", store_, "--prometheus"});
  EXPECT_TRUE(text.starts_with("# Read from the files")) << text;
  EXPECT_NE(text.find("\n# TYPE cairn_tokens gauge\ncairn_tokens{store=\"" + store_ + "\"} 50\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\ncairn_save_seconds_count{store=\"" + store_ + "\"} 0\n"),
            std::string::npos);
  const ToolResult both = Cairn({"stat", store_, "--prometheus", "--json"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.errors.find("--prometheus"), std::string::npos) << both.errors;
}

TEST_F(CliMetricsTest, TopShowsWhatAnotherProcessWrites) {
  Store store = OpenStore();
  ModelSpec spec;
  spec.identity.name = "tokens";
  const auto model = store.RegisterModel(spec);
  auto branch = store.CreateBranch(*model, {.name = "live"});
  ASSERT_TRUE(branch.ok());
  const std::vector<TokenId> tokens(100, 7);
  ASSERT_TRUE(branch->AppendSync({.tokens = tokens}).ok());
  const std::string output = (root_ / "top.jsonl").string();
  const std::string command = std::string(CAIRN_BIN_DIR) + "/cairn top " + store_ +
                              " --interval 1 --count 3 --json > " + output + " &";
  ASSERT_EQ(std::system(command.c_str()), 0);
  // Appends until the last look was taken.
  std::vector<json> lines;
  uint64_t appended = 100;
  for (int i = 0; i < 2000 && lines.size() < 3; ++i) {
    ASSERT_TRUE(branch->AppendSync({.tokens = tokens}).ok());
    appended += 100;
    usleep(10'000);
    const std::string text = ReadFile(output);
    lines = JsonLines(text.substr(0, text.rfind('\n') + 1));
  }
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["per_second"], nullptr);
  for (size_t i = 1; i < lines.size(); ++i) {
    const double before = lines[i - 1]["tokens"], now = lines[i]["tokens"];
    const double seconds =
        (lines[i]["time_ns"].get<double>() - lines[i - 1]["time_ns"].get<double>()) / 1e9;
    EXPECT_GT(now, before);
    EXPECT_GT(seconds, 0.9);
    EXPECT_NEAR(lines[i]["per_second"]["tokens"].get<double>(), (now - before) / seconds,
                (now - before) / seconds * 0.05);
    EXPECT_GT(lines[i]["per_second"]["records"].get<double>(), 0);
    EXPECT_EQ(lines[i]["branches"], 1);
  }
  EXPECT_LE(lines[2]["tokens"].get<uint64_t>(), appended);
  ASSERT_TRUE(store.Close().ok());
}

TEST_F(CliMetricsTest, TopAsTextAndItsErrors) {
  MakeFiveGroups();
  const Bytes before = AllFiles();
  const std::string text = Output({"top", store_, "--count", "1"});
  EXPECT_TRUE(text.starts_with("TIME ")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_NE(text.find(" 50 "), std::string::npos) << text;
  EXPECT_EQ(AllFiles(), before);
  ExpectError({"top", store_ + "2"}, 3, "NotFound", store_ + "2");
  ExpectError({"top", store_, "--interval", "0"}, 2, "InvalidArgument", "--interval");
  ExpectError({"top", store_, "--count", "-1"}, 2, "InvalidArgument", "--count");
  // A full device ends what would run for ever.
  const std::string full =
      std::string(CAIRN_BIN_DIR) + "/cairn top " + store_ + " > /dev/full 2> /dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(full.c_str())), 1);
}

}  // namespace
}  // namespace cairn::testing
