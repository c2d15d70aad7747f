// SPDX-License-Identifier: Apache-2.0
//
// Property: a replayed trace hits, forks, rewinds and drops exactly where its hash ids say, in both
// formats and however it is packed, and what is restored is what was appended (the program compares
// and fails otherwise). A file that is not of its format is refused by name, line and field.
// Method: the program itself on traces small enough to count by hand (tests/tools/data).

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/source_dir.h"
#include "tests/tools/run_tool.h"

namespace cairn::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kData = SourcePath("/tests/tools/data");

class BenchTraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) /
           (std::string("cairn-trace-") +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + "-" +
            std::to_string(getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  ToolResult Run(const fs::path& file, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {
        "trace",    "--json", "--segment-bytes", "4194304", "--source-bytes",
        "16777216", "--dir",  dir_ / "scratch",  "--file",  file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTool("cairn-bench", arguments);
  }

  // The figures of a run that succeeded and left nothing behind.
  json Values(const fs::path& file, std::vector<std::string> more = {}) const {
    const ToolResult result = Run(file, std::move(more));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_FALSE(fs::exists(dir_ / "scratch"));
    const json report = json::parse(result.output, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(report.is_object()) << result.output;
    return report.is_object() ? report["values"] : json::object();
  }

  fs::path Write(const std::string& name, const std::string& content) const {
    std::ofstream(dir_ / name) << content;
    return dir_ / name;
  }

  // Refused with exit status 1 and a message that says all of `parts`.
  void ExpectRefused(const fs::path& file, const std::vector<std::string>& parts) const {
    const ToolResult result = Run(file);
    EXPECT_EQ(result.exit_code, 1) << file << result.output;
    for (const std::string& part : parts) {
      EXPECT_NE(result.errors.find(part), std::string::npos)
          << "no \"" << part << "\" in: " << result.errors;
    }
    EXPECT_FALSE(fs::exists(dir_ / "scratch"));
  }

  fs::path dir_;
};

void ExpectCounts(const json& values, const std::map<std::string, double>& want) {
  for (const auto& [name, value] : want) EXPECT_EQ(values.value(name, -1.0), value) << name;
}

const std::map<std::string, double> kAgentCounts = {
    {"sessions", 2}, {"requests", 7},     {"input_tokens", 1466}, {"hit_tokens", 704},
    {"tokens", 809}, {"forks", 1},        {"rewinds", 2},         {"drops", 0},
    {"branches", 4}, {"live_tokens", 727}};
const std::map<std::string, double> kLineCounts = {
    {"sessions", 1},      {"requests", 5},  {"input_tokens", 5500},
    {"hit_tokens", 3660}, {"tokens", 1913}, {"forks", 2},
    {"rewinds", 2},       {"branches", 3},  {"live_tokens", 1777}};

TEST_F(BenchTraceTest, AgentSessionsHitWhereTheirIdsSay) {
  const json values = Values(kData / "agents", {"--kv-bytes-per-token", "512"});
  ExpectCounts(values, kAgentCounts);
  for (const char* name : {"write_amplification", "space_amplification", "append_p95_ms",
                           "restore_p95_ms", "open_ms", "rss_mib", "hit_ratio"}) {
    ASSERT_TRUE(values.contains(name)) << name;
    EXPECT_TRUE(std::isfinite(values[name].get<double>())) << name;
  }
  EXPECT_GE(values["space_amplification"].get<double>(), 1);
  EXPECT_GT(values["verified_tokens"].get<double>(), 100);
  EXPECT_EQ(values["restored_mib"], 704.0 * 512 / (1 << 20)) << "of requests, not of the check";
}

// So small a log is sealed by Compact alone. MANIFEST and index, too, are files.
TEST_F(BenchTraceTest, TellsWhatTheFilesHoldBesideWhatIsLive) {
  const json values = Values(kData / "agents", {"--kv-bytes-per-token", "16384"});
  EXPECT_EQ(values.value("files_to_live", -1.0), 0) << "nothing is packed";
  EXPECT_EQ(values.value("files_to_live_idle", -1.0), 0);
  EXPECT_GT(values.value("files_to_live_compact", -1.0), 1);
  EXPECT_LT(values.value("files_to_live_compact", -1.0), 1.15);
  EXPECT_EQ(values.value("waits_for_room", -1.0), 0);
}

TEST_F(BenchTraceTest, KeepsBelowTheCapThatItIsGiven) {
  ExpectCounts(Values(kData / "agents", {"--max-bytes", "134217728"}), kAgentCounts);
  const ToolResult result = Run(kData / "agents", {"--max-bytes", "2097152"});
  EXPECT_EQ(result.exit_code, 2) << "less than ten segments";
  EXPECT_NE(result.errors.find("max_bytes"), std::string::npos) << result.errors;
}

TEST_F(BenchTraceTest, ASessionThatIsOverIsDropped) {
  ExpectCounts(Values(kData / "agents", {"--sessions", "1"}),
               {{"drops", 3}, {"branches", 1}, {"live_tokens", 128}, {"hit_tokens", 704}});
}

TEST_F(BenchTraceTest, RequestLinesMatchPartialBlocksOnlyWhole) {
  ExpectCounts(Values(kData / "requests.jsonl"), kLineCounts);
}

// Five bytes per token are no K and V: one opaque row. A power of two would hide a wrong stride.
TEST_F(BenchTraceTest, AnyKvSizeAndDurability) {
  for (const char* durability : {"memory", "process"}) {
    ExpectCounts(
        Values(kData / "requests.jsonl", {"--kv-bytes-per-token", "5", "--durability", durability}),
        kLineCounts);
  }
  ExpectCounts(Values(kData / "agents", {"--kv-bytes-per-token", "131072"}), kAgentCounts);
}

TEST_F(BenchTraceTest, ReadsWhatIsPacked) {
  const std::string quiet = " >/dev/null 2>&1";
  ASSERT_EQ(std::system(("tar -czf '" + (dir_ / "all.tar.gz").string() + "' -C '" + kData.string() +
                         "' agents" + quiet)
                            .c_str()),
            0);
  ExpectCounts(Values(dir_ / "all.tar.gz"), kAgentCounts);
  ASSERT_EQ(std::system(("gzip -c '" + (kData / "requests.jsonl").string() + "' >'" +
                         (dir_ / "lines.jsonl.gz").string() + "'")
                            .c_str()),
            0);
  ExpectCounts(Values(dir_ / "lines.jsonl.gz"), kLineCounts);
  fs::resize_file(dir_ / "all.tar.gz", fs::file_size(dir_ / "all.tar.gz") / 2);
  ExpectRefused(dir_ / "all.tar.gz", {"all.tar.gz"});
}

// The second of two sessions with ids of global scope hits what the first left, and neither is
// dropped while the other may come back to it.
TEST_F(BenchTraceTest, GlobalIdsAreSharedBetweenSessions) {
  const std::string session = R"({"block_size": 64, "hash_id_scope": "global", "requests": [)"
                              R"({"in": 128, "out": 0, "hash_ids": [1, 2]}]})";
  fs::create_directory(dir_ / "shared");
  Write("shared/a.json", session);
  Write("shared/b.json", session);
  ExpectCounts(Values(dir_ / "shared", {"--sessions", "1"}),
               {{"sessions", 2}, {"hit_tokens", 128}, {"branches", 1}, {"drops", 0}});
}

TEST_F(BenchTraceTest, LimitsBoundARun) {
  ExpectCounts(Values(kData / "agents", {"--limit-requests", "3"}), {{"requests", 3}});
  // The first append alone, 200 tokens of 2 KiB, is cut short by the next.
  const json values = Values(kData / "requests.jsonl", {"--limit-bytes", "2000000"});
  ExpectCounts(values, {{"requests", 1}});
  EXPECT_LT(values["tokens"].get<double>(), 1130);
}

TEST_F(BenchTraceTest, RefusesWhatIsNotOfItsFormat) {
  const auto line = [](const std::string& ids, const std::string& length = "1000") {
    return R"({"timestamp": 1, "input_length": )" + length +
           R"(, "output_length": 1, "hash_ids": )" + ids + "}\n";
  };
  ExpectRefused(Write("a.jsonl", line("[1, 2]") + "{\"input_length\": 3,\n"), {"a.jsonl:2: "});
  ExpectRefused(Write("b.jsonl", line("[1, 2]") + "{}\n"), {"b.jsonl:2: ", "input_length"});
  ExpectRefused(Write("c.jsonl", line("[1, 2, 3]")), {"c.jsonl:1: ", "3 hash_ids", "1000 tokens"});
  ExpectRefused(Write("d.jsonl", line("[-1]")), {"d.jsonl:1: ", "hash id -1"});
  ExpectRefused(Write("e.jsonl", line("[1]", "-5")), {"e.jsonl:1: ", "\"input_length\" is -5"});
  ExpectRefused(Write("f.jsonl", "7\n"), {"f.jsonl:1: ", "an object"});
  ExpectRefused(Write("g.jsonl", line("7")), {"g.jsonl:1: ", "hash_ids"});
  ExpectRefused(Write("h.jsonl", line("[1, 2]") + line("[2, 1]")), {"h.jsonl:2: ", "hash id 2"});
  ExpectRefused(Write("i.jsonl", line("[1, 2]") + line("[3, 2]")), {"i.jsonl:2: ", "hash id 2"});
  ExpectRefused(Write("j.jsonl", line("[1, 2]") + line("[3]") + line("[3, 2]")), {"j.jsonl:3: "});
  ExpectRefused(Write("k.json", "{\n\"block_size\": 64,\n\"requests\": [}"), {"k.json", "line 3"});
  ExpectRefused(Write("l.json", R"({"requests": []})"), {"l.json: ", "block_size"});
  ExpectRefused(Write("m.json", R"({"block_size": 0, "requests": []})"), {"m.json: ", "is 0"});
  ExpectRefused(Write("n.json", R"({"block_size": 64})"), {"n.json: ", "requests"});
  ExpectRefused(Write("o.json", R"({"block_size": 64, "requests": 1})"), {"o.json: ", "a list"});
  ExpectRefused(Write("p.json", "[]"), {"p.json: ", "an object"});
  ExpectRefused(Write("q.json", R"({"block_size": 64, "hash_id_scope": "lunar", "requests": []})"),
                {"q.json: ", "lunar"});
  ExpectRefused(
      Write("r.json", R"({"block_size": 64, "requests": [{"requests": [{"in": 9, "out": 1}]}]})"),
      {"r.json requests[0] requests[0]: ", "hash_ids"});
  ExpectRefused(Write("s.csv", "1,2,3\n"), {"s.csv: ", "*.jsonl"});
  ExpectRefused(Write("t.jsonl", ""), {"no requests"});
  ExpectRefused(dir_ / "absent.jsonl", {"absent.jsonl: there is no such trace"});
  fs::create_directory(dir_ / "empty");
  ExpectRefused(dir_ / "empty", {"no *.json"});
}

TEST_F(BenchTraceTest, RefusesArguments) {
  EXPECT_EQ(RunTool("cairn-bench", {"trace"}).exit_code, 2);
  const fs::path lines = kData / "requests.jsonl";
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--kv-bytes-per-token", "0"},
                                             {"--block-tokens", "0"},
                                             {"--durability", "hope"},
                                             {"--sessions", "0"},
                                             {"--limit-bytes", "-1"},
                                             {"--seconds", "3"}}) {
    EXPECT_EQ(Run(lines, wrong).exit_code, 2) << wrong[0];
  }
}

}  // namespace
}  // namespace cairn::testing
