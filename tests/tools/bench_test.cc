// SPDX-License-Identifier: Apache-2.0
//
// Property: every benchmark of cairn-bench runs, prints exactly one JSON object of the promised
// shape, and leaves nothing behind. Method: the program itself, on data small enough to take a
// moment. The values of the figures are not tested; that they are figures is.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/test_store.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Outcome {
  int exit_status = -1;
  std::string output;  // Standard output alone.
};

Outcome RunBench(const std::string& arguments) {
  Outcome outcome;
  const std::string command = std::string(CAIRN_BIN_DIR) + "/cairn-bench " + arguments;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char chunk[4096];
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;) outcome.output.append(chunk, n);
  const int status = pclose(pipe);
  outcome.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

struct Case {
  std::string bench;
  std::string arguments;
  std::vector<std::string> values;
  std::vector<std::string> ratios;
  bool opens_store = true;
};
// Else the test's name would hold addresses.
void PrintTo(const Case& one, std::ostream* out) { *out << one.bench << " " << one.arguments; }

const std::vector<std::string> kAppendValues = {"p50_us",
                                                "p99_us",
                                                "gb_per_s",
                                                "appends",
                                                "raw_p50_us",
                                                "raw_write_p50_us",
                                                "raw_gb_per_s",
                                                "cpu_s_per_gb",
                                                "raw_cpu_s_per_gb",
                                                "cpu_s_per_gb_above_raw",
                                                "write_amplification"};

std::vector<std::string> Plus(std::vector<std::string> names, std::vector<std::string> more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

std::vector<Case> Cases() {
  const std::vector<std::string> restore = {"restore_ms",        "session_mib",  "gb_per_s",
                                            "hot_fraction",      "cpu_s_per_gb", "moved_gb_per_s",
                                            "moved_cpu_s_per_gb"};
  const std::vector<std::string> group = {"one_thread_commits_per_s", "eight_threads_commits_per_s",
                                          "eight_tickets_commits_per_s", "raw_commits_per_s"};
  return {
      {"append-durable",
       "",
       kAppendValues,
       {"throughput_to_raw", "p50_to_raw", "p50_to_raw_write"}},
      {"append-large", "", kAppendValues, {"throughput_to_raw", "p50_to_raw"}},
      {"append-token", "--kv-bytes 131072", kAppendValues, {"p50_to_raw"}},
      {"append-token", "--kv-bytes 8192 --layout hnd", kAppendValues, {"p50_to_raw"}},
      {"append-beside-sealing",
       "--interval-us 100 --backlog-bytes 16777216",
       {"idle_p50_us", "idle_p95_us", "sealing_p95_us", "sealing_p99_us", "appends",
        "raw_write_mb_per_s", "sealing_mb_per_s", "sealing_share_of_raw",
        "sealing_written_share_of_raw", "sealed_kv_mb_per_s", "unsealed_share"},
       {"ratio_p50", "ratio_p95", "ratio_p99"}},
      {"append-group", "", group, {"commits_to_one_thread", "tickets_to_one_thread", "p50_to_raw"}},
      {"append-group",
       "--sync-delay-us 500",
       Plus(group, {"sync_delay_us"}),
       {"commits_to_one_thread", "tickets_to_one_thread"}},
      {"submit",
       "",
       {"overhead_us", "submit_us_256b", "copy_us_2kib", "overhead_us_contiguous"},
       {"to_strided_copy", "to_strided_copy_256b", "to_strided_copy_2kib",
        "to_strided_copy_contiguous"}},
      {"submit", "--durability process", {"overhead_us"}, {"to_strided_copy_256b"}},
      {"restore-cold",
       "--session-bytes 8388608",
       Plus(restore, {"raw_read_ms", "open_ms"}),
       {"logical_to_raw_read", "moved_to_restore"}},
      {"restore-cold",
       "--session-bytes 8388608 --sealed",
       Plus(restore, {"raw_read_ms", "open_ms", "stored_to_raw", "seal_mb_per_s"}),
       {"logical_to_raw_read", "logical_to_raw_read_packed", "moved_to_restore"}},
      {"restore-set",
       "--session-bytes 67108864",
       {"cache_mib", "sessions", "warm_gb_per_s", "large_gb_per_s", "off_gb_per_s",
        "memcpy_gb_per_s", "large_faults_per_gb"},
       {"warm_to_memcpy", "large_to_off"}},
      {"restore-warm",
       "--session-bytes 8388608",
       Plus(restore, {"memcpy_gb_per_s"}),
       {"to_memcpy", "to_scatter", "moved_to_restore"}},
      {"restore-small",
       "",
       {"log_p50_us", "tables_p50_us", "tables_p95_us", "raw_p50_us", "session_kib", "sessions"},
       {"log_p50_to_raw", "tables_p50_to_raw", "memory_p50_to_raw"}},
      {"fork", "--tokens 100", {"fork_us", "fork_bytes", "tokens"}, {"p50_to_short"}},
      {"drop",
       "--branches 2000",
       {"branches", "nodes", "first_drop_us", "last_drop_us", "compact_ms", "rss_mib"},
       {"last_to_first"}},
      {"rewind", "--steps 500", {"nodes", "steps"}, {"p50_to_append"}},
      {"open-many",
       "--branches 3000",
       {"open_ms", "rss_mib", "crashed_open_ms", "replayed_records", "few_open_ms"},
       {"open_to_few", "rss_to_few"}},
      {"open-many", "--branches 200 --branch-kv-bytes 8192", {"open_ms"}, {"open_to_few"}},
      {"find",
       "--tokens 20000 --branches 100 --prompt-tokens 1000",
       {"killed_complete_ms", "cold_p50_us", "find_p50_us", "unconfirmed_p50_us", "radix_p50_us",
        "hint_memory_per_token", "index_work_per_append"},
       {"find_to_radix", "append_to_without", "open_to_without"}},
      {"blend",
       "",
       {"full_ms_p50", "blended_ms_p50", "share_ms_p50", "cold_ms_p50", "load_tokens",
        "divergence_p50"},
       {"full_to_blended", "full_to_share", "blended_to_cold"}},
      {"codec",
       "--tokens 512",
       {"auto_ratio", "auto_ratio_k", "auto_ratio_v", "auto_ratio_all_layers", "kv64_ratio",
        "kv64s_ratio_k", "token_bits", "memcpy_gb_per_s", "auto_scalar_decode_gb_per_s"},
       {"auto_scalar_encode_to_memcpy", "auto_scalar_decode_to_memcpy",
        "kv64s_scalar_decode_to_memcpy", "cached_scalar_decode_to_memcpy"},
       /*opens_store=*/false},
      {"gpu",
       "--device simulated",
       {"simulated_copy_in_gb_per_s", "simulated_copy_out_64k_gb_per_s",
        "simulated_decode_kv64_gb_per_s", "simulated_decode_kv64s_window_us",
        "simulated_decode_int8_gb_per_s", "simulated_gather_token_us", "simulated_check_table_us",
        "simulated_restore_disk_gb_per_s", "simulated_restore_memory_hot_share",
        "simulated_cancel_us"},
       {"simulated_copy_in_64k_to_whole", "simulated_decode_kv64_to_bus",
        "simulated_loop_beside_gather_token", "simulated_restore_disk_to_host_restore",
        "simulated_restore_disk_to_raw_read", "simulated_restore_memory_to_bus",
        "simulated_restore_memory_first_layer_share"}},
      {"sparse",
       "--session-bytes 67108864",
       {"build_tokens_per_s", "build_cpu_s_per_gb", "table_to_kv", "build_longer_ms",
        "build_longer_tokens", "open_ms", "device_to_kv", "step_us", "step_p99_us", "extend_ms",
        "fetch_us", "fetch_relaxed_us", "pages_gb_per_s"},
       {"build_to_restore"}},
      {"shadow-step",
       "--device simulated",
       {"simulated_tokens", "simulated_memory_gb_per_s", "simulated_full_step_us",
        "simulated_full_tokens_per_s", "simulated_default_step_us",
        "simulated_default_tokens_per_s", "simulated_default_memory_to_full",
        "simulated_published_memory_to_full"},
       {"simulated_default_step_to_full", "simulated_default_rate_to_full",
        "simulated_published_step_to_full", "simulated_published_rate_to_full"}},
  };
}

class BenchTest : public testing::TestWithParam<Case> {};

void ExpectFigure(const json& figures, const std::string& name) {
  ASSERT_TRUE(figures.contains(name)) << name;
  ASSERT_TRUE(figures[name].is_number()) << name << ": " << figures[name];
  EXPECT_TRUE(std::isfinite(figures[name].get<double>())) << name;
}

TEST_P(BenchTest, PrintsOneJsonObjectAndLeavesNothing) {
  const Case& test_case = GetParam();
  std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  for (char& c : name) c = c == '/' ? '-' : c;
  const fs::path dir = fs::path(testing::TempDir()) / ("cairn-bench-test-" + name);
  fs::remove_all(dir);
  const Outcome outcome = RunBench(test_case.bench + " --json --seconds 0.1 --rounds 2" +
                                   " --segment-bytes 4194304 --pool 2 --source-bytes 16777216" +
                                   " --dir " + dir.string() + " " + test_case.arguments);
  ASSERT_EQ(outcome.exit_status, 0);
  EXPECT_FALSE(fs::exists(dir)) << "scratch data was left in " << dir;

  const json report = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << outcome.output;
  EXPECT_EQ(report.size(), 4u) << outcome.output;
  EXPECT_EQ(report["bench"], test_case.bench);
  std::vector<std::string> keys = {"cpu", "kernel", "file_system", "device"};
  if (test_case.opens_store) keys = Plus(keys, {"io_backend", "sync_method"});
  for (const std::string& key : keys) {
    ASSERT_TRUE(report["machine"].contains(key)) << key;
    EXPECT_FALSE(report["machine"][key].get<std::string>().empty()) << key;
  }
  EXPECT_GE(report["machine"]["cores"].get<int>(), 1);
  for (const std::string& value : test_case.values) ExpectFigure(report["values"], value);
  for (const std::string& ratio : test_case.ratios) {
    ExpectFigure(report["ratios"], ratio);
    EXPECT_GT(report["ratios"][ratio].get<double>(), 0) << ratio;
    ExpectFigure(report["values"], ratio + "_min");
    ExpectFigure(report["values"], ratio + "_max");
    EXPECT_LE(report["values"][ratio + "_min"].get<double>(),
              report["values"][ratio + "_max"].get<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(Every, BenchTest, testing::ValuesIn(Cases()));

TEST(BenchGpuTest, NoFigureOfASimulatedDeviceHasTheNameOfACards) {
  const cairn::testing::TempDirectory directory;
  const Outcome outcome =
      RunBench("gpu --device simulated --json --seconds 0.1 --rounds 1 --dir " + directory.path());
  ASSERT_EQ(outcome.exit_status, 0);
  const json report = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << outcome.output;
  EXPECT_NE(report["machine"]["gpu"].get<std::string>().find("simulated"), std::string::npos);
  for (const char* kind : {"values", "ratios"}) {
    for (const auto& [name, value] : report[kind].items()) {
      EXPECT_TRUE(name.starts_with("simulated_")) << name;
    }
  }
}

TEST(BenchGpuTest, NamesADeviceThatIsNotThere) {
  EXPECT_EQ(RunBench("gpu --device cuda:4096 2>/dev/null").exit_status, 1);
  EXPECT_EQ(RunBench("gpu --device cuda: 2>/dev/null").exit_status, 2);
}

class BenchLoadTest : public ::testing::TestWithParam<const char*> {};

TEST_P(BenchLoadTest, TellsEveryLatencyBesideRaw) {
  const cairn::testing::TempDirectory directory;
  const Outcome outcome =
      RunBench(std::string("load ") + GetParam() + " --json --rounds 1 --bytes 8388608" +
               " --source-bytes 67108864 --dir " + directory.path());
  ASSERT_EQ(outcome.exit_status, 0);
  const json report = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << outcome.output;
  for (const std::string arm : {"cairn", "raw", "raw_fresh"}) {
    for (const char* figure : {"gb_per_s", "p50_us", "p95_us", "p99_us", "p999_us", "longest_us",
                               "cpu_s_per_gb", "faults_per_gb", "device_per_byte"}) {
      ExpectFigure(report["values"], arm + "_" + figure);
    }
    EXPECT_GE(report["values"][arm + "_longest_us"].get<double>(),
              report["values"][arm + "_p50_us"].get<double>());
  }
  for (const char* ratio : {"rate_to_raw", "rate_to_raw_fresh", "p50_to_raw", "p95_to_raw"}) {
    ExpectFigure(report["ratios"], ratio);
    EXPECT_GT(report["ratios"][ratio].get<double>(), 0) << ratio;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, BenchLoadTest,
                         testing::Values("burst", "burst-alone", "threads", "endless",
                                         "tokens-128k", "tokens-8k", "tokens-128k-sealing", "forks",
                                         "sessions"));

TEST(BenchLoadNames, RefusesANameThatItDoesNotKnow) {
  EXPECT_EQ(RunBench("load everything 2>/dev/null").exit_status, 2);
}

// Elements of one sign and exponent: the codec keeps the mantissas, 7 of 16 bits, and little else.
TEST(BenchCodecTest, PacksAFile) {
  const fs::path file = fs::path(testing::TempDir()) / "cairn-bench-test.kv";
  std::ofstream out(file, std::ios::binary);
  for (int i = 0; i < 2 * 1 * 300 * 64; ++i) {
    const char element[2] = {static_cast<char>(i * 37 % 128), 0x3f};
    out.write(element, 2);
  }
  out.close();
  const std::string common = "codec --json --seconds 0.1 --rounds 2 --kv " + file.string();
  const Outcome outcome = RunBench(common + " --source-bytes 16777216 --shape 2,1,300,64");
  ASSERT_EQ(outcome.exit_status, 0);
  const json report = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
  EXPECT_GT(report["values"]["kv64s_ratio"].get<double>(), 2);
  EXPECT_FALSE(report["values"].contains("auto_ratio_k"));
  for (const char* shape : {"2,1,301,64", "2,1,200,96", "0,1,300,64", "2,1,300", "2,1,300,64x"}) {
    EXPECT_EQ(RunBench(common + " --shape " + shape + " 2>/dev/null").exit_status, 2) << shape;
  }
  fs::remove(file);
  EXPECT_EQ(RunBench(common + " --shape 2,1,300,64 2>/dev/null").exit_status, 1) << "no file";
  EXPECT_EQ(RunBench("codec --tokens 100 2>/dev/null").exit_status, 2);
}

TEST(BenchListTest, NamesEveryBenchmark) {
  const Outcome outcome = RunBench("list");
  EXPECT_EQ(outcome.exit_status, 0);
  for (const Case& test_case : Cases()) {
    EXPECT_NE(("\n" + outcome.output).find("\n" + test_case.bench + " "), std::string::npos)
        << test_case.bench << " is missing in:\n"
        << outcome.output;
  }
}

TEST(BenchArgumentsTest, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(RunBench("append-everything 2>/dev/null").exit_status, 0);
  const cairn::testing::TempDirectory directory;  // Others run beside it, in cairn-bench.tmp.
  const std::string scratch = directory.path() + "/scratch", into = " --dir " + scratch;
  EXPECT_NE(RunBench("append-token --kv-bytes 77 2>/dev/null" + into).exit_status, 0);
  EXPECT_NE(RunBench("submit --durability power 2>/dev/null" + into).exit_status, 0);
  EXPECT_NE(RunBench("append-token --layout diagonal 2>/dev/null" + into).exit_status, 0);
  EXPECT_FALSE(fs::exists(scratch)) << "a refused run left its scratch directory";
}

}  // namespace
