// SPDX-License-Identifier: Apache-2.0
//
// Property: cairn-bench peers runs every engine of its build through every work, each returns what
// it was given (the program compares and fails otherwise), the report holds the promised ratios,
// each engine's settings, and a reason for each engine it lacks. Method: the program itself at its
// smallest size. The values of the figures are not tested.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/run_tool.h"

namespace cairn::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

ToolResult RunPeers(const fs::path& dir, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"peers",    "--rounds",        "2",       "--seconds",
                                        "0.1",      "--segment-bytes", "4194304", "--source-bytes",
                                        "16777216", "--dir",           dir};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunTool("cairn-bench", arguments);
}

fs::path ScratchDir() {
  return fs::path(::testing::TempDir()) / ("cairn-peers-" + std::to_string(getpid()));
}

TEST(BenchPeersTest, EveryEngineDoesEveryWork) {
  const fs::path dir = ScratchDir();
  const ToolResult result = RunPeers(dir, {"--json", "--bytes", "4194304"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_FALSE(fs::exists(dir)) << "scratch data was left in " << dir;
  const json report = json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << result.output;

  std::vector<std::string> ratios = {"burst_to_best_peer",
                                     "burst_to_raw",
                                     "sustained_to_best_peer",
                                     "long_to_best_peer",
                                     "settled_to_best_peer",
                                     "small_p50_to_best_peer",
                                     "small_p50_to_raw",
                                     "threads_to_best_peer",
                                     "cold_restore_to_best_peer",
                                     "warm_restore_to_best_peer",
                                     "branch_append_to_best_peer",
                                     "small_sessions_to_best_peer",
                                     "small_restore_p50_to_best_peer",
                                     "small_restore_p50_to_raw"};
  std::vector<std::string> engines = {"cairn", "chunk_files"};
  for (const std::string peer : {"leveldb", "lmdb", "rocksdb", "sqlite"}) {
    const json& skipped = report["machine"]["skipped"];
    if (skipped.contains(peer)) {
      const std::string package = peer == "sqlite" ? "libsqlite3-dev" : "lib" + peer + "-dev";
      EXPECT_NE(skipped[peer].get<std::string>().find(package), std::string::npos);
      EXPECT_NE(result.errors.find(peer + " is skipped"), std::string::npos) << result.errors;
    } else {
      engines.push_back(peer);
      if (peer == "lmdb") ratios.push_back("warm_restore_to_lmdb");
    }
  }
  for (const std::string& name : ratios) {
    ASSERT_TRUE(report["ratios"].contains(name)) << name;
    const double ratio = report["ratios"][name].get<double>();
    EXPECT_TRUE(std::isfinite(ratio) && ratio > 0) << name << " " << ratio;
  }
  EXPECT_TRUE(report["values"]["cpu_s_per_gb_above_raw"].is_number());
  for (const std::string& engine : engines) {
    for (const std::string work : {"appends", "long", "small", "sessions", "small_sessions"}) {
      const json& settings = report["machine"]["settings_" + work];
      ASSERT_TRUE(settings.contains(engine)) << work << " " << engine;
      EXPECT_TRUE(settings[engine].contains("durable")) << work << " " << engine;
    }
    for (const std::string rate : {"burst", "sustained", "threads", "long", "settled",
                                   "warm_restore", "cold_restore", "small_sessions"}) {
      const std::string name = rate + "_gb_per_s_" + engine;
      ASSERT_TRUE(report["values"].contains(name)) << name;
      EXPECT_GT(report["values"][name].get<double>(), 0) << name;
    }
    for (const std::string work :
         {"burst", "sustained", "threads", "settled", "small", "warm_restore", "cold_restore",
          "small_sessions", "small_restore", "branch_append"}) {
      for (const std::string cost : {"_cpu_s_per_gb_", "_faults_per_gb_"}) {
        const json value = report["values"].value(work + cost + engine, json());
        ASSERT_TRUE(value.is_number()) << work << cost << engine;
        EXPECT_GE(value.get<double>(), 0) << work << cost << engine;
      }
    }
    // Appends alone cannot take longer than appends and all that they put off.
    EXPECT_GE(report["values"]["long_gb_per_s_" + engine].get<double>(),
              report["values"]["settled_gb_per_s_" + engine].get<double>())
        << engine;
  }
}

TEST(BenchPeersTest, RefusesArguments) {
  const fs::path dir = ScratchDir();
  EXPECT_EQ(RunPeers(dir, {"--bytes", "1000"}).exit_code, 2);
  EXPECT_EQ(RunPeers(dir, {"--pool", "4"}).exit_code, 2);
  EXPECT_EQ(RunPeers(dir, {"--segment-bytes", "1000"}).exit_code, 2) << "refused by the store";
  EXPECT_FALSE(fs::exists(dir));
}

TEST(BenchPeersTest, ListExplainsTraceAndPeers) {
  const ToolResult result = RunTool("cairn-bench", {"list"});
  EXPECT_NE(result.output.find("\ntrace "), std::string::npos);
  EXPECT_NE(result.output.find("\npeers "), std::string::npos);
}

}  // namespace
}  // namespace cairn::testing
