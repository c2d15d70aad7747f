// SPDX-License-Identifier: Apache-2.0
//
// Property: costs grow in proportion at most. Ten times as many ops of a batch, names of a
// namespace, nodes on one path or namespaces cost at most 10^1.2 times the work, and 10^1.2 times
// the bytes of log, index and memory. Method: `cairn-bench sweep` itself, at sizes that take a
// moment. Where the machine lends no counter of instructions it reports processor time, which
// neighbours and caches make less sharp.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/run_tool.h"

namespace cairn::testing {
namespace {

using nlohmann::json;

constexpr double kSlopeMax = 1.2;
constexpr double kSlopeOfTimeMax = 1.4;

class BenchSweep : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Names, BenchSweep,
                         ::testing::Values("batch", "names", "chain", "namespaces"),
                         [](const auto& sweep) { return sweep.param; });

TEST_P(BenchSweep, GrowsInProportion) {
  // A batch holds at most a few thousand ops.
  const std::string largest = GetParam() == "batch" ? "4000" : "1000";
  const ToolResult result =
      RunTool("cairn-bench", {"sweep", GetParam(), "--max", largest, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const json report = json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << result.output;
  const bool instructions = report["machine"]["work"] == "instructions";
  int works = 0, bytes = 0;
  for (const auto& [name, slope] : report["values"].items()) {
    const bool is_work = name.ends_with("_work_slope");
    EXPECT_LE(slope.get<double>(), is_work && !instructions ? kSlopeOfTimeMax : kSlopeMax)
        << name << ": " << report["machine"][GetParam() + "_costs"].dump();
    works += is_work ? 1 : 0;
    bytes += name.ends_with("_bytes_slope") ? 1 : 0;
  }
  EXPECT_GE(works, 3);
  EXPECT_GE(bytes, 1);
}

TEST(BenchSweepUsage, NamesWhatThereIs) {
  const ToolResult result = RunTool("cairn-bench", {"sweep", "everything"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.errors.find("all, batch, names, chain, namespaces"), std::string::npos)
      << result.errors;
}

}  // namespace
}  // namespace cairn::testing
