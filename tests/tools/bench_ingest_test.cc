// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn-bench load ingest` measures every arm that it names, on a real directory and
// without a disk, and what it says is possible: quiet is not before the last acknowledgement, what
// is written is what was appended, KV of a real model packs and random bytes do not. Method: the
// program itself with --quick. How fast anything is is not tested.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/test_store.h"
#include "tests/tools/run_tool.h"

namespace cairn::testing {
namespace {

using nlohmann::json;

ToolResult RunIngest(const std::string& dir, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"load", "ingest", "--quick", "--dir", dir};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunTool("cairn-bench", arguments);
}

// NaN, which fails every comparison, if it is missing.
double Figure(const json& report, const std::string& name) {
  for (const char* kind : {"values", "ratios"}) {
    const json value = report[kind].value(name, json());
    if (value.is_number()) return value.get<double>();
  }
  ADD_FAILURE() << name << " is missing";
  return std::nan("");
}

void ExpectLatenciesAndCosts(const json& report, const std::string& arm) {
  EXPECT_GT(Figure(report, arm + "_gb_per_s"), 0) << arm;
  EXPECT_GT(Figure(report, arm + "_p50_us"), 0) << arm;
  EXPECT_GE(Figure(report, arm + "_p99_us"), Figure(report, arm + "_p50_us")) << arm;
  EXPECT_GT(Figure(report, arm + "_cpu_s_per_gb"), 0) << arm;
  EXPECT_GE(Figure(report, arm + "_faults_per_gb"), 0) << arm;
}

void ExpectStore(const json& report, const std::string& cell, const std::string& kv) {
  const std::string arm = cell + "_" + kv;
  ExpectLatenciesAndCosts(report, arm);
  EXPECT_LE(Figure(report, arm + "_settled_gb_per_s"), Figure(report, arm + "_gb_per_s")) << arm;
  const double packed = Figure(report, arm + "_packed_ratio");
  if (kv == "model") {
    EXPECT_GT(packed, 1.2) << arm;
  } else {
    EXPECT_LT(packed, 1.01) << arm;
  }
  // Memory file systems, on which temporary directories may lie, count no bytes. Else a table at
  // the least; at the most a log, a table, and what so short a run leaves half used.
  if (Figure(report, cell + "_raw_used_device_per_byte") > 0) {
    EXPECT_GT(Figure(report, arm + "_device_per_byte"), 0.9 / packed) << arm;
    EXPECT_LT(Figure(report, arm + "_device_per_byte"), 8) << arm;
  }
  for (const char* ratio : {"_to_raw_fresh", "_to_raw_used", "_settled_to_raw_fresh",
                            "_settled_to_raw_used", "_p50_to_raw_fresh", "_p99_to_raw_fresh"}) {
    EXPECT_GT(Figure(report, arm + ratio), 0) << arm << ratio;
  }
  EXPECT_TRUE(std::isfinite(Figure(report, arm + "_cpu_s_per_gb_above_raw"))) << arm;
}

void ExpectWithoutDisk(const json& report, const std::string& name) {
  for (const std::string threads : {"_1t", "_2t"}) {
    const std::string arm = name + "_no_disk" + threads;
    EXPECT_GT(Figure(report, arm + "_gb_per_s"), 0) << arm;
    EXPECT_GT(Figure(report, arm + "_gb_per_cpu_s"), 0) << arm;
    EXPECT_GT(Figure(report, arm + "_settled_gb_per_s"), 0) << arm;
    EXPECT_GT(Figure(report, arm + "_settled_gb_per_cpu_s"), 0) << arm;
    EXPECT_GT(Figure(report, arm + "_written_per_byte"), 0.5) << arm;
    EXPECT_LT(Figure(report, arm + "_written_per_byte"), 8) << arm;
  }
  EXPECT_GT(Figure(report, name + "_no_disk_2t_to_1t"), 0);
}

TEST(BenchIngestTest, EveryArmHasFiguresThatArePossible) {
  const TempDirectory directory;
  const std::string scratch = directory.path() + "/scratch";
  const ToolResult result =
      RunIngest(scratch, {"--json", "--sizes", "524288,8388608", "--threads", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_FALSE(std::filesystem::exists(scratch)) << "scratch data was left";
  const json report = json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << result.output;
  EXPECT_EQ(report["bench"], "load");
  const bool has_lmdb = !report["values"].contains("lmdb_skipped");
  for (const std::string cell : {"512k_2t", "8m_2t"}) {
    for (const std::string kv : {"model", "random"}) ExpectStore(report, cell, kv);
    std::vector<std::string> others = {"_raw_used", "_raw_fresh", "_files"};
    if (has_lmdb) others.push_back("_lmdb");
    for (const std::string& arm : others) ExpectLatenciesAndCosts(report, cell + arm);
  }
  for (const std::string size : {"512k", "8m"}) {
    for (const std::string kv : {"model", "random"}) ExpectWithoutDisk(report, size + "_" + kv);
  }
}

TEST(BenchIngestTest, RunsWhatIsAskedForAndPrintsATable) {
  const TempDirectory directory;
  const ToolResult result = RunIngest(directory.path(), {"--sizes", "2097152", "--threads", "1",
                                                         "--kv", "random", "--arms", "cairn"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.output.find("2m_1t_random"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("2m_1t_model"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("raw_used"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("no_disk"), std::string::npos) << result.output;
}

TEST(BenchIngestTest, RefusesWhatItCannotRun) {
  const TempDirectory directory;
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--sizes", "393216"},
                                                    {"--sizes", "4096"},
                                                    {"--kv", "zeros"},
                                                    {"--arms", "raw,everything"},
                                                    {"--threads", "0"},
                                                    {"--sizes", "33554432"}}) {
    EXPECT_EQ(RunIngest(directory.path(), arguments).exit_code, 2) << arguments[0] << arguments[1];
  }
}

TEST(BenchIngestTest, HelpExplainsIt) {
  const ToolResult result = RunTool("cairn-bench", {"load", "--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* words : {"ingest:", "--sizes", "--quick", "GB/s a core", "20 GB"}) {
    EXPECT_NE(result.output.find(words), std::string::npos) << words << "\n" << result.output;
  }
}

}  // namespace
}  // namespace cairn::testing
