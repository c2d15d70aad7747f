// SPDX-License-Identifier: Apache-2.0
//
// Property: every benchmark of cairn-micro runs without an error, and its JSON has each by its name
// with items that were counted and, where bytes are moved, bytes and page faults. Method: the
// program itself, each benchmark for a millisecond. The values of the figures are not tested.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "tests/tools/run_tool.h"

namespace cairn::testing {
namespace {

using nlohmann::json;

TEST(BenchMicroTest, EveryBenchmarkCountsItsItems) {
  if (!std::filesystem::exists(std::string(CAIRN_BIN_DIR) + "/cairn-micro")) {
    GTEST_SKIP() << "built without Google Benchmark (Debian: libbenchmark-dev)";
  }
  std::set<std::string> names;
  std::istringstream list(RunTool("cairn-micro", {"--benchmark_list_tests"}).output);
  for (std::string name; std::getline(list, name);) names.insert(name);
  for (const std::string part :
       {"codec/encode/bf16/kv", "codec/decode/int8/kv", "copy/gather/nhd/tokens:16",
        "hash/content/bytes:4096", "page_cache/hit", "page_cache/miss",
        "rotary/memcpy/bf16/kib:8192", "rotary/scalar/halves/f16/kib:512", "rotary/table",
        "tree/find_branch/name", "tree/walk_ancestry", "index/tables/hit", "log/find_hot/hit",
        "lookups/multi_get/cold/real_time", "lookups/raw_reads/bytes:4096/real_time",
        "store/append/tokens:1/process_time/real_time",
        "store/restore/tables/process_time/real_time"}) {
    EXPECT_TRUE(names.contains(part)) << part;
  }

  const ToolResult run =
      RunTool("cairn-micro", {"--benchmark_format=json", "--benchmark_min_time=0.001"});
  ASSERT_EQ(run.exit_code, 0) << run.errors << run.output;
  const json report = json::parse(run.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << run.output;
  EXPECT_TRUE(report["context"].contains("cairn"));
  EXPECT_TRUE(report["context"].contains("cpu"));
  std::set<std::string> measured;
  for (const json& one : report["benchmarks"]) {
    const auto name = one["name"].get<std::string>();
    measured.insert(name);
    EXPECT_GT(one.value("items_per_second", 0.0), 0) << name;
    EXPECT_GT(one.value("real_time", 0.0), 0) << name;
    const bool moves = name.starts_with("codec") || name.starts_with("copy") ||
                       name.starts_with("hash/content") ||
                       (name.starts_with("rotary") && name != "rotary/table") ||
                       name.starts_with("store/append") || name.starts_with("store/restore");
    if (!moves) continue;
    EXPECT_GT(one.value("bytes_per_second", 0.0), 0) << name;
    EXPECT_TRUE(one.contains("faults_per_gb")) << name;
  }
  EXPECT_EQ(measured, names);
}

TEST(BenchMicroTest, RefusesArguments) {
  if (!std::filesystem::exists(std::string(CAIRN_BIN_DIR) + "/cairn-micro")) {
    GTEST_SKIP() << "built without Google Benchmark (Debian: libbenchmark-dev)";
  }
  EXPECT_EQ(RunTool("cairn-micro", {"--no-such-thing"}).exit_code, 2);
  EXPECT_EQ(RunTool("cairn-micro", {"--benchmark_filter=no-such-benchmark"}).exit_code, 1);
}

}  // namespace
}  // namespace cairn::testing
