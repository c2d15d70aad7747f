// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn doctor` judges machine, volume and store, says what to do, leaves nothing
// behind, and fails where nothing would last. Method: the program on directories of all kinds.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/tools/cli_fixture.h"
#include "tools/cli/sync_times.h"

namespace cairn::testing {
namespace {

class CliDoctorTest : public CliTest {};

TEST_F(CliDoctorTest, DoctorJudgesMachineVolumeAndStore) {
  MakeFiveGroups();
  const size_t files = AllFiles().size();
  const json report = JsonOutput({"doctor", store_});
  EXPECT_EQ(AllFiles().size(), files) << "the probe file was left";
  std::map<std::string, json> findings;
  for (const json& finding : report["findings"]) {
    EXPECT_TRUE(finding["verdict"] == "OK" || finding["verdict"] == "WARN") << finding;
    EXPECT_FALSE(finding["detail"].get<std::string>().empty()) << finding;
    findings[finding["what"]] = finding;
  }
  for (const char* what : {"cairn", "machine", "io_uring", "memlock", "open files", "huge pages",
                           "GPU", "GPU direct", "GPU rates", "file system", "O_DIRECT", "space",
                           "sync 4 KiB", "sync 128 KiB", "store", "sync method"}) {
    EXPECT_TRUE(findings.contains(what)) << what;
  }
  EXPECT_NE(findings["store"]["detail"].get<std::string>().find("1 branch"), std::string::npos);
  const std::string text = Output({"doctor", root_.string(), "--no-probe"});
  EXPECT_EQ(text.find("sync 4 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find("OK    space "), std::string::npos) << text;
}

// Doctor advised dsync against its own measurement when the machine was busy.
TEST(SyncTimes, OnlyWhatLiesBeyondTheSpreadCounts) {
  const auto us = [](std::vector<uint64_t> times) {
    for (uint64_t& time : times) time *= 1000;
    return cli::SpreadOf(std::move(times));
  };
  const cli::Spread slow = us({310, 300, 330}), fast = us({100, 110, 120});
  const cli::Spread busy = us({90, 400, 2000}), quiet = us({200, 210, 205});
  EXPECT_EQ(100'000u, fast.low_ns);
  EXPECT_EQ(110'000u, fast.middle_ns);
  EXPECT_EQ(120'000u, fast.high_ns);
  EXPECT_TRUE(fast.IsNarrow());
  EXPECT_FALSE(busy.IsNarrow());
  EXPECT_TRUE(cli::IsFaster(fast, slow, 16));
  EXPECT_FALSE(cli::IsFaster(slow, fast, 16));
  EXPECT_FALSE(cli::IsFaster(fast, busy, 16)) << "one of them was faster";
  EXPECT_TRUE(cli::IsWorthAChange(slow, fast, slow, fast));
  EXPECT_TRUE(cli::IsWorthAChange(slow, fast, slow, busy));
  EXPECT_FALSE(cli::IsWorthAChange(slow, fast, fast, slow)) << "large writes would be slower";
  EXPECT_FALSE(cli::IsWorthAChange(busy, fast, slow, fast));
  EXPECT_FALSE(cli::IsWorthAChange(slow, quiet, slow, fast)) << "too little";
}

TEST_F(CliDoctorTest, DoctorMeasuresTheWayToAGpu) {
  const std::string text = Output({"doctor", root_.string(), "--gpu", "simulated"});
  EXPECT_NE(text.find("that to simulated "), std::string::npos) << text;
  EXPECT_TRUE(fs::is_empty(root_)) << "the probe file was left";
  EXPECT_NE(
      Output({"doctor", root_.string(), "--gpu", "cuda:4096"}).find("GPU rates    not measured"),
      std::string::npos);
  EXPECT_NE(Output({"doctor", root_.string(), "--gpu", "it"}).find("WARN  GPU rates "),
            std::string::npos);
}

TEST_F(CliDoctorTest, DoctorFailsWhereNothingWouldLast) {
  if (!fs::exists("/dev/shm")) GTEST_SKIP() << "no /dev/shm here";
  const json report = JsonOutput({"doctor", "/dev/shm"}, 1);
  EXPECT_EQ(report["verdict"], "FAIL");
  const auto volatile_found = [](const json& finding) {
    return finding["what"] == "file system" && finding["verdict"] == "FAIL" &&
           finding["detail"].get<std::string>().find("tmpfs") != std::string::npos;
  };
  EXPECT_TRUE(std::any_of(report["findings"].begin(), report["findings"].end(), volatile_found))
      << report;
}

TEST_F(CliDoctorTest, DoctorOfAStoreToComeLooksAtTheNearestDirectoryAboveIt) {
  const json report = JsonOutput({"doctor", store_});
  EXPECT_EQ(report["directory"], store_);
  EXPECT_EQ(report["checked"], root_.string());
  EXPECT_FALSE(fs::exists(store_));
  EXPECT_TRUE(fs::is_empty(root_)) << "the probe file was left";
  std::map<std::string, json> findings;
  for (const json& finding : report["findings"]) findings[finding["what"]] = finding;
  EXPECT_EQ(findings["directory"]["verdict"], "OK");
  EXPECT_NE(findings["directory"]["detail"].get<std::string>().find(root_.string()),
            std::string::npos);
  EXPECT_TRUE(findings.contains("space"));
  EXPECT_TRUE(findings.contains("sync 4 KiB"));
  EXPECT_FALSE(findings.contains("store"));

  // cairn create makes one directory, not those above it.
  const std::string deep = Output({"doctor", store_ + "/a b/c", "--no-probe"});
  EXPECT_NE(deep.find("WARN  directory "), std::string::npos) << deep;
  EXPECT_NE(deep.find("mkdir -p '" + store_ + "/a b' comes first"), std::string::npos) << deep;
  EXPECT_EQ(Cairn({"create", store_ + "/a b/c"}).exit_code, 3);
  for (const std::string& name : {store_ + "/", (root_ / "." / "store").string()}) {
    const std::string text = Output({"doctor", name, "--no-probe"});
    EXPECT_NE(text.find("OK    directory "), std::string::npos) << text;
  }
  Create();
  EXPECT_EQ(JsonOutput({"doctor", store_, "--no-probe"})["checked"], store_);

  std::ofstream(root_ / "file") << "no directory";
  ExpectError({"doctor", (root_ / "file").string()}, 2, "InvalidArgument", "no directory");
  ExpectError({"doctor", (root_ / "file" / "x").string()}, 1, "IoError", "ENOTDIR");
  ExpectError({"doctor", ""}, 2, "InvalidArgument", "path is empty");
}

TEST_F(CliDoctorTest, DoctorReportsADamagedStore) {
  MakeFiveGroups();
  const json record = AppendRecord(2);
  FlipByte(SegmentFile(record["segment"]), record["offset"].get<uint64_t>() + 20);
  const std::string text = Output({"doctor", store_, "--no-probe"}, 1);
  EXPECT_NE(text.find("FAIL  store "), std::string::npos) << text;
  EXPECT_NE(text.find("cairn repair"), std::string::npos) << text;
}

}  // namespace
}  // namespace cairn::testing
