// SPDX-License-Identifier: Apache-2.0
//
// The long forms of the crash tests, one part at a time, for as long as one likes (tools/soak):
//
//   cairn_soak PART SECONDS SEED
//
// Progress goes to stderr. The last line of stdout is a JSON object: what was counted, and the
// first promise that was broken, with the seed that shows it again. Exit status: 1 if one was.
// SIGINT and SIGTERM end it after the seed under way, with what was counted so far.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/io/world.h"
#include "tests/crash/kill_loop.h"
#include "tests/crash/power_loss.h"
#include "tests/crash/script_cuts.h"
#include "tests/crash/scripts.h"
#include "tests/model/histories.h"
#include "tests/sim/swarm.h"
#include "tests/wal/crash_enumeration.h"

namespace cairn {
namespace {

volatile std::sig_atomic_t interrupted = 0;

using Counts = std::map<std::string, uint64_t>;

// One run from a seed: adds to the counts; what was wrong.
using Run = std::function<std::string(uint64_t seed, Counts* counts)>;

// Disks that a power cut may leave, of a whole store: short runs with every subset of up to twelve
// writes, and long ones with crashes in a row.
std::string Crashes(uint64_t seed, Counts* counts) {
  // With strides, so that a run gets to its end in some 20,000 disks.
  crash::PowerLossOptions options{.seed = seed, .steps = 40, .point_stride = 13};
  if (seed % 2 == 0) {
    options = {.seed = seed,
               .steps = 100,
               .exhaustive_writes_max = 5,
               .samples = 8,
               .point_stride = 3,
               .depth = 3};
  }
  const crash::PowerLossResult result = crash::RunPowerLoss(options);
  (*counts)["crash_states"] += result.states;
  (*counts)["crash_states_after_two_or_three"] += result.depths[1] + result.depths[2];
  (*counts)["crash_seeds"] += 1;
  return result.violation;
}

// Every disk that a power cut may leave in one of the scripts, at every operation; the next seed
// takes the next script. The same disks come again, so they are counted by themselves.
std::string ScriptCrashes(uint64_t seed, Counts* counts) {
  const std::vector<std::string> scripts = crash::ScriptNames();
  const crash::PowerLossResult result =
      crash::RunScriptCuts({.scripts = {scripts[seed % scripts.size()]}, .seed = seed});
  (*counts)["script_crash_states"] += result.states;
  (*counts)["scripts_cut_everywhere"] += 1;
  return result.violation;
}

// The same of the log alone.
std::string LogCrashes(uint64_t seed, Counts* counts) {
  wal::CrashPlan plan;
  plan.seed = seed;
  plan.steps = 60;
  plan.all_subsets_up_to = seed % 4 == 0 ? 10 : 4;
  plan.random_choices = 2;
  plan.large_records = seed % 10 == 0;
  plan.sync_method = seed % 2 == 0 ? wal::SyncMethod::kDurableWrite : wal::SyncMethod::kFdatasync;
  const wal::CrashReport report = wal::EnumerateCrashes(plan);
  (*counts)["log_crash_states"] += report.crashes;
  (*counts)["log_crash_seeds"] += 1;
  return report.violations.empty() ? "" : report.violations.front();
}

// Real processes on a real disk.
std::string Kills(uint64_t seed, Counts* counts) {
  crash::KillOptions options{.seed = seed, .kills = 20};
  const bool uring = io::MakeRealWorld(io::IoBackend::kUring).ok();
  options.backend = seed % 2 == 0 && uring ? Backend::kUring : Backend::kThreads;
  options.follow = seed % 4 < 2;
  const crash::KillResult result = crash::RunKillLoop(options);
  (*counts)["kills"] += result.kills;
  (*counts)["kill_acknowledgements"] += result.acknowledged;
  return result.violation;
}

// A generated history against the reference model; one that fails is shrunk and printed.
std::string Model(uint64_t seed, Counts* counts) {
  const testing::HistoriesResult result = testing::RunHistories(seed, 1, 2'000);
  (*counts)["model_operations"] += result.operations;
  (*counts)["model_histories"] += 1;
  const bool failed = ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed();
  return failed ? "the model differs" : "";
}

// Clients and faults on a simulated machine, twice with one trace.
std::string Simulation(uint64_t seed, Counts* counts) {
  const sim::SwarmResult one = sim::RunSwarm({.seed = seed}), two = sim::RunSwarm({.seed = seed});
  (*counts)["simulated_seeds"] += 1;
  (*counts)["simulated_operations"] += one.operations;
  (*counts)["simulated_disk_operations"] += one.disk_operations;
  if (one.violation.empty() && one.trace_hash != two.trace_hash) return "two runs, two traces";
  return one.violation;
}

const std::map<std::string, Run> kParts = {{"crashes", Crashes},
                                           {"script-crashes", ScriptCrashes},
                                           {"log-crashes", LogCrashes},
                                           {"simulation", Simulation},
                                           {"model", Model},
                                           {"kills", Kills}};

int Soak(const std::string& part, const Run& run, double seconds, uint64_t first_seed) {
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [begin = Clock::now()] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  Counts counts;
  std::string violation;
  double told = 0;
  uint64_t seed = first_seed;
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  for (; violation.empty() && elapsed() < seconds && interrupted == 0; ++seed) {
    violation = run(seed, &counts);
    if (!violation.empty()) violation = "seed " + std::to_string(seed) + ": " + violation;
    if (elapsed() - told < 10) continue;
    told = elapsed();
    std::string line = part + ", seed " + std::to_string(seed);
    for (const auto& [name, count] : counts) line += ", " + std::to_string(count) + " " + name;
    std::fprintf(stderr, "%3.0f s: %s\n", told, line.c_str());
  }
  const nlohmann::json result = {{"part", part},
                                 {"first_seed", first_seed},
                                 {"seeds", seed - first_seed},
                                 {"seconds", static_cast<uint64_t>(elapsed())},
                                 {"counts", counts},
                                 {"violation", violation}};
  std::printf("%s\n", result.dump().c_str());
  return violation.empty() ? 0 : 1;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  const auto part = cairn::kParts.find(argc > 1 ? argv[1] : "");
  if (argc == 4 && part != cairn::kParts.end()) {
    return cairn::Soak(part->first, part->second, std::atof(argv[2]),
                       std::strtoull(argv[3], nullptr, 10));
  }
  std::string parts;
  for (const auto& [name, run] : cairn::kParts) parts += " " + name;
  std::fprintf(stderr, "usage: cairn_soak PART SECONDS SEED; parts:%s\n", parts.c_str());
  return 2;
}
