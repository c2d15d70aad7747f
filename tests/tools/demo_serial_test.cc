// SPDX-License-Identifier: Apache-2.0
//
// Property: the demo proves what it says, and would notice if it were not so. Method: the program
// itself, killed and resumed on little text with both backends, read by its JSON report; and its
// comparisons, each given two runs that differ in one bit.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cairn/store.h"
#include "tools/demo/printable.h"
#include "tools/demo/proof.h"
#include "tools/llama/model_files.h"

namespace cairn::demo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Outcome {
  int exit_status = -1;
  std::string output;  // Standard output alone.
};

const std::string kProgram = std::string(CAIRN_BIN_DIR) + "/cairn-demo ";

Outcome RunCommand(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char chunk[4096];
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;) outcome.output.append(chunk, n);
  const int status = pclose(pipe);
  outcome.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Outcome RunDemoProgram(const std::string& arguments) { return RunCommand(kProgram + arguments); }

// Whether this machine grants the backend: containers often forbid io_uring.
Status Granted(const std::string& backend, const fs::path& dir) {
  Options options;
  options.create_if_missing = true;
  options.segment_bytes = 1 << 20;
  options.backend = backend == "uring" ? Backend::kUring : Backend::kThreads;
  const Status status = Store::Open(dir.string(), options).status();
  fs::remove_all(dir);
  return status;
}

class DemoProgramTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) / ("cairn-demo-test-" + GetParam());
    fs::remove_all(dir_);
    const Status granted = Granted(GetParam(), dir_);
    if (!granted.ok()) GTEST_SKIP() << granted.ToString();
  }
  void TearDown() override { fs::remove_all(dir_); }

  Outcome Run(const std::string& arguments) {
    return RunDemoProgram(arguments + " --backend " + GetParam() + " --dir " + dir_.string());
  }

  fs::path dir_;
};

void ExpectProofs(const json& report, size_t kills) {
  EXPECT_EQ(report["all_proved"], true);
  // Two a kill, two of the continuation, one a fork, two after reopening.
  EXPECT_EQ(report["proofs"].size(), 2 * kills + 2 + 8 + 2);
  for (const json& proof : report["proofs"]) {
    EXPECT_EQ(proof["proved"], true) << proof;
    EXPECT_EQ(proof["difference"], "") << proof;
  }
  ASSERT_EQ(report["kills"].size(), kills);
  uint64_t before = 0;
  for (const json& kill : report["kills"]) {
    EXPECT_GT(kill["acknowledged"].get<uint64_t>(), before)
        << "a process did not go on from where the one before it died";
    EXPECT_GE(kill["recovered"].get<uint64_t>(), kill["acknowledged"].get<uint64_t>());
    before = kill["recovered"].get<uint64_t>();
  }
}

void ExpectTree(const json& report) {
  ASSERT_EQ(report["branches"].size(), 9u) << report;
  std::set<std::string> parents, samplings;
  std::set<std::pair<std::string, uint64_t>> places;
  for (const json& branch : report["branches"]) {
    EXPECT_FALSE(branch["text"].get<std::string>().empty()) << branch;
    samplings.insert(branch["sampling"].get<std::string>());
    if (branch["name"] == "story") continue;
    parents.insert(branch["parent"].get<std::string>());
    places.emplace(branch["parent"].get<std::string>(), branch["begin"].get<uint64_t>());
    EXPECT_EQ(branch["end"].get<uint64_t>() - branch["begin"].get<uint64_t>(), 24u) << branch;
  }
  EXPECT_EQ(samplings.size(), 9u);
  EXPECT_EQ(places.size(), 8u);
  EXPECT_EQ(parents, (std::set<std::string>{"story", "fork-2", "fork-7"}));
}

void ExpectFigures(const json& report) {
  for (const char* what : {"append", "open", "restore", "recompute", "fork"}) {
    const json& samples = report["ms"][what];
    EXPECT_GT(samples["count"].get<int>(), 0) << what;
    EXPECT_GT(samples["p50"].get<double>(), 0) << what;
    EXPECT_LE(samples["p50"].get<double>(), samples["p95"].get<double>()) << what;
    EXPECT_LE(samples["p95"].get<double>(), samples["p99"].get<double>()) << what;
    EXPECT_LE(samples["p99"].get<double>(), samples["max"].get<double>()) << what;
  }
  EXPECT_EQ(report["goals"]["save"]["p95_ms"], 50);
  EXPECT_EQ(report["goals"]["restore"]["p95_ms"], 100);
  for (const char* what : {"kv_bytes_per_token", "stored_positions", "fork_log_bytes",
                           "fork_own_positions", "physical_bytes", "log_segments"}) {
    EXPECT_GT(report["space"][what].get<uint64_t>(), 0u) << what;
  }
  EXPECT_GT(report["space"]["copied_positions"].get<uint64_t>(),
            report["space"]["stored_positions"].get<uint64_t>());
}

TEST_P(DemoProgramTest, ReportsProofsTreeAndFigures) {
  const Outcome outcome = Run("--tokens 48 --kills 2 --seed 5 --json 2>/dev/null");
  ASSERT_EQ(outcome.exit_status, 0) << outcome.output;
  const json report = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << outcome.output;
  EXPECT_EQ(report["io"], GetParam() == "uring" ? "io_uring" : "threads");
  ExpectProofs(report, 2);
  ExpectTree(report);
  ExpectFigures(report);
}

// A child that had generated all there was left waited for its kill, and its parent for more.
TEST_P(DemoProgramTest, AsManyKillsAsTokensAllow) {
  const Outcome outcome = Run("--tokens 48 --kills 13 --json 2>/dev/null");
  ASSERT_EQ(outcome.exit_status, 0) << outcome.output;
  ExpectProofs(json::parse(outcome.output), 13);
}

TEST_P(DemoProgramTest, PrintsProofsTreeAndTableForPeople) {
  const Outcome outcome = Run("--tokens 32 --kills 1");
  ASSERT_EQ(outcome.exit_status, 0) << outcome.output;
  for (const char* what : {"SIGKILL after", "PROVED  kill 1: every acknowledged token is there",
                           "└─ fork-", "append a token at kPower", "goal P95 < 50 ms",
                           "goal P95 < 100 ms", "Everything PROVED."}) {
    EXPECT_NE(outcome.output.find(what), std::string::npos) << what << " in\n" << outcome.output;
  }
  EXPECT_EQ(outcome.output.find("FAILED"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find('\033'), std::string::npos) << "a pipe is no terminal";
  EXPECT_FALSE(fs::is_empty(dir_)) << "--dir keeps the store";
}

INSTANTIATE_TEST_SUITE_P(Backend, DemoProgramTest, testing::Values("threads", "uring"),
                         [](const auto& one) { return one.param; });

TEST(DemoArgumentsTest, RefusesWhatCannotWork) {
  EXPECT_NE(RunDemoProgram("--tokens 3 2>/dev/null").exit_status, 0);
  EXPECT_NE(RunDemoProgram("--tokens 48 --kills 14 2>/dev/null").exit_status, 0);
  EXPECT_NE(RunDemoProgram("--backend floppy 2>/dev/null").exit_status, 0);
  EXPECT_NE(RunDemoProgram("--checkpoint /nonexistent 2>/dev/null").exit_status, 0);
  EXPECT_NE(RunDemoProgram("--tokens 1000000 2>/dev/null").exit_status, 0)
      << "more than the model has positions";
}

TEST(DemoArgumentsTest, LeavesADirectoryInUseAlone) {
  const fs::path dir = fs::path(testing::TempDir()) / "cairn-demo-test-in-use";
  fs::create_directories(dir / "precious");
  EXPECT_NE(RunDemoProgram("--dir " + dir.string() + " 2>/dev/null").exit_status, 0);
  EXPECT_TRUE(fs::exists(dir / "precious"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), fs::directory_iterator()), 1);
  fs::remove_all(dir);
}

// While the model generates in memory, and later, when there is a child or a store.
TEST(DemoInterruptTest, LeavesNothingBehind) {
  const fs::path dir = fs::path(testing::TempDir()) / "cairn-demo-test-interrupt";
  for (const char* seconds : {"0.3", "2"}) {
    fs::remove_all(dir);
    fs::create_directories(dir);
    const Outcome outcome = RunCommand("cd " + dir.string() + " && timeout --signal=INT " +
                                       seconds + " " + kProgram + "--tokens 900 2>&1");
    EXPECT_NE(outcome.exit_status, 0) << outcome.output;
    EXPECT_TRUE(fs::is_empty(dir)) << "after " << seconds << " s: " << outcome.output;
  }
  fs::remove_all(dir);
}

// Two equal runs of the shipped model over a few tokens, one of which a test then changes.
class DemoProofTest : public testing::Test {
 protected:
  DemoProofTest()
      : model_(
            llama::LoadModel(llama::DefaultCheckpointPath(), llama::DefaultTokenizerPath(), &error_)
                .value()),
        transformer_(model_.checkpoint),
        expected_(Generate(kTokens)),
        actual_(Generate(kTokens)) {}

  static constexpr int kTokens = 6;
  static constexpr int kPromptTokens = 3;

  Conversation Generate(int tokens) {
    const llama::Sampler sampler({.temperature = 0.8f}, {.seed = 3, .offset = 0});
    Conversation conversation(&transformer_, 16, {llama::kBosToken, 300, 301}, sampler);
    for (int i = 0; i < tokens; ++i) conversation.Next();
    return conversation;
  }

  // The result of a restore at a moment of the expected run: the same, without the steps.
  Conversation AtMoment(int tokens) {
    Conversation moment = Generate(tokens);
    moment.Resume(moment.tokens(), moment.kv_length(), moment.sampler());
    return moment;
  }

  std::string error_;
  llama::Model model_;
  llama::Transformer<float> transformer_;
  Conversation expected_, actual_;
};

TEST_F(DemoProofTest, EqualRunsDoNotDiffer) {
  EXPECT_EQ(CompareState(expected_, actual_), "");
  EXPECT_EQ(CompareSteps(expected_.steps(), actual_.steps()), "");
  for (int tokens = 1; tokens <= kTokens; ++tokens) {
    EXPECT_EQ(CompareToMomentOf(expected_, kPromptTokens, AtMoment(tokens)), "");
  }
}

TEST_F(DemoProofTest, EveryBitOfARowOfKvCounts) {
  const llama::KvCache& kv = expected_.kv();
  const int position = expected_.kv_length() - 1;
  for (int layer = 0; layer < kv.layers(); ++layer) {
    for (int head = 0; head < kv.kv_heads(); ++head) {
      for (int bit = 0; bit < kv.head_dim() * 16; ++bit) {
        const uint16_t mask = static_cast<uint16_t>(1u << bit % 16);
        for (uint16_t* row :
             {actual_.kv().K(layer, position, head), actual_.kv().V(layer, position, head)}) {
          row[bit / 16] ^= mask;
          ASSERT_NE(CompareState(expected_, actual_), "") << "layer " << layer << ", bit " << bit;
          row[bit / 16] ^= mask;
        }
      }
    }
  }
  EXPECT_EQ(CompareState(expected_, actual_), "");
}

TEST_F(DemoProofTest, NamesThePlaceInTheKv) {
  actual_.kv().V(2, 4, 1)[63] ^= 0x8000;
  EXPECT_EQ(CompareState(expected_, actual_), "V of layer 2, position 4, head 1");
  EXPECT_EQ(CompareToMomentOf(expected_, kPromptTokens, actual_),
            "V of layer 2, position 4, head 1");
}

TEST_F(DemoProofTest, KvBeyondItsLengthDoesNotCount) {
  actual_.kv().K(0, expected_.kv_length(), 0)[0] ^= 1;
  EXPECT_EQ(CompareState(expected_, actual_), "");
}

TEST_F(DemoProofTest, CachesOfDifferentSizesAreComparedByPosition) {
  llama::KvCache larger(model_.checkpoint.config(), 32);
  const llama::KvCache& kv = expected_.kv();
  for (int layer = 0; layer < kv.layers(); ++layer) {
    for (int position = 0; position < expected_.kv_length(); ++position) {
      std::copy_n(kv.K(layer, position, 0), kv.position_stride(), larger.K(layer, position, 0));
      std::copy_n(kv.V(layer, position, 0), kv.position_stride(), larger.V(layer, position, 0));
    }
  }
  expected_.kv().K(0, expected_.kv_length(), 0)[0] = 1;
  EXPECT_EQ(CompareKv(kv, larger, expected_.kv_length()), "");
  EXPECT_NE(CompareKv(kv, larger, expected_.kv_length() + 1), "") << "one position too many";
}

TEST_F(DemoProofTest, AnotherTokenLengthOrSamplerDiffers) {
  std::vector<int32_t> tokens = expected_.tokens();
  const int kv_length = expected_.kv_length();
  tokens[5] += 1;
  actual_.Resume(tokens, kv_length, expected_.sampler());
  EXPECT_EQ(CompareState(expected_, actual_).substr(0, 8), "token 5:");
  tokens[5] -= 1;
  actual_.Resume(tokens, kv_length - 1, expected_.sampler());
  EXPECT_EQ(CompareState(expected_, actual_), "length of KV: expected 8, found 7");
  tokens.pop_back();
  actual_.Resume(tokens, kv_length, expected_.sampler());
  EXPECT_EQ(CompareState(expected_, actual_), "number of tokens: expected 9, found 8");
  const llama::SamplerOptions options = expected_.sampler().options();
  const llama::Sampler::State state = expected_.sampler().state();
  actual_.Resume(expected_.tokens(), kv_length, {options, {state.seed, state.offset + 1}});
  EXPECT_EQ(CompareState(expected_, actual_), "sampler offset: expected 6, found 7");
  actual_.Resume(expected_.tokens(), kv_length, {options, {state.seed + 1, state.offset}});
  EXPECT_EQ(CompareState(expected_, actual_), "sampler seed: expected 3, found 4");
  actual_.Resume(expected_.tokens(), kv_length, {{.temperature = 0.9f}, state});
  EXPECT_EQ(CompareState(expected_, actual_), "sampler temperature");
  actual_.Resume(expected_.tokens(), kv_length, {{.temperature = 0.8f, .top_p = 0.5f}, state});
  EXPECT_EQ(CompareState(expected_, actual_), "sampler top_p");
  actual_.Resume(expected_.tokens(), kv_length, {{.temperature = 0.8f, .top_k = 5}, state});
  EXPECT_EQ(CompareState(expected_, actual_), "sampler top_k");
}

TEST_F(DemoProofTest, AnotherStepDiffers) {
  const std::vector<Step> steps = expected_.steps();
  std::vector<Step> changed = steps;
  changed[4].logits[1000] = std::nextafter(changed[4].logits[1000], 100.0f);
  EXPECT_EQ(CompareSteps(steps, changed).substr(0, 27), "step 4: bits of logit 1000:");
  changed = steps;
  changed[5].token += 1;
  EXPECT_EQ(CompareSteps(steps, changed).substr(0, 16), "step 5: token 0:");
  changed = steps;
  changed[0].sampler_after.offset += 1;
  EXPECT_EQ(CompareSteps(steps, changed), "step 0: sampler offset: expected 1, found 2");
  changed = steps;
  changed.pop_back();
  EXPECT_EQ(CompareSteps(steps, changed), "number of steps: expected 6, found 5");
}

TEST_F(DemoProofTest, LogitsAreComparedByTheirBits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {0.0f, nan};
  EXPECT_EQ(CompareLogits(logits, std::vector<float>{0.0f, nan}), "");
  EXPECT_NE(CompareLogits(logits, std::vector<float>{-0.0f, nan}), "");
  EXPECT_NE(CompareLogits(logits, std::vector<float>{0.0f}), "");
}

TEST_F(DemoProofTest, ARecoveredMomentMustBeThatMoment) {
  Conversation moment = AtMoment(3);
  const std::vector<int32_t> tokens = moment.tokens();
  const llama::Sampler sampler = moment.sampler();
  moment.Resume(tokens, moment.kv_length() - 1, sampler);
  EXPECT_EQ(CompareToMomentOf(expected_, kPromptTokens, moment),
            "length of KV: expected 5, found 4");
  moment.Resume(tokens, 5, AtMoment(2).sampler());
  EXPECT_EQ(CompareToMomentOf(expected_, kPromptTokens, moment),
            "sampler offset: expected 3, found 2");
  moment.Resume({tokens.begin(), tokens.begin() + kPromptTokens}, kPromptTokens, sampler);
  EXPECT_NE(CompareToMomentOf(expected_, kPromptTokens, moment), "") << "no token was generated";
  EXPECT_NE(CompareToMomentOf(expected_, kPromptTokens, Generate(kTokens + 1)), "")
      << "longer than the run itself";
}

TEST(DemoAcknowledgementTest, WhatWasAcknowledgedMustBeThere) {
  const std::vector<int32_t> recovered = {1, 50, 60, 70};
  EXPECT_EQ(CompareAcknowledged(std::vector<Acknowledgement>{{2, 50}, {3, 60}}, recovered), "")
      << "one more, under way, is no difference";
  EXPECT_EQ(CompareAcknowledged(std::vector<Acknowledgement>{{3, 60}, {4, 70}}, recovered), "");
  EXPECT_EQ(CompareAcknowledged(std::vector<Acknowledgement>{{4, 70}, {5, 80}}, recovered),
            "token 5 was acknowledged, 4 are there");
  EXPECT_EQ(CompareAcknowledged(std::vector<Acknowledgement>{{3, 61}, {4, 70}}, recovered),
            "at length 3: token 0: expected 61, found 60");
  EXPECT_NE(CompareAcknowledged({}, recovered), "") << "then nothing is proved";
}

TEST(DemoPrintableTest, NothingReachesTheTerminalThatMovesItsCursor) {
  EXPECT_EQ(Printable("a\nb\tc\x1b[2J\r\x7f"), "a↵b\\x09c\\x1b[2J\\x0d\\x7f");
  EXPECT_EQ(Printable("é 語 😀"), "é 語 😀");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b") << "a control character of Latin-1";
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3") << "no UTF-8, and the half of a character";
  EXPECT_EQ(Printable("\xc0\xaf\xe0\x80\xaf\xed\xa0\x80\xf4\x90\x80\x80"),
            "\\xc0\\xaf\\xe0\\x80\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80")
      << "longer than need be, half of a pair, beyond the last character";
  EXPECT_EQ(Printable(std::string_view("\0", 1)), "\\x00");
}

TEST(DemoPrintableTest, LinesAreCutByCharacters) {
  EXPECT_EQ(Columns("é語a"), 3u);
  EXPECT_EQ(Clip("é語a", 3), "é語a");
  EXPECT_EQ(Clip("é語ab", 3), "é語…");
  EXPECT_EQ(ClipFront("é語a", 3), "é語a");
  EXPECT_EQ(ClipFront("aé語b", 3), "…語b");
  EXPECT_EQ(Padded("é", 3), "é  ");
  EXPECT_EQ(Padded("abcd", 3), "abcd");
}

}  // namespace
}  // namespace cairn::demo
