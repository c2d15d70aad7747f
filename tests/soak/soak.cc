// SPDX-License-Identifier: Apache-2.0
//
// The long forms of the crash tests, one part at a time, for as long as one likes (tools/soak):
//
//   cairn_soak PART SECONDS SEED
//
// Progress goes to stderr. The last line of stdout is a JSON object: what was counted, and the
// first promise that was broken, with the seed that shows it again. Exit status: 1 if one was.
// A seed that ends the program by a signal is in that line as well, with what was counted before.
// SIGINT and SIGTERM end it after the seed under way, with what was counted so far; a second one
// ends it at once.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/io/world.h"
#include "tests/crash/format_rot.h"
#include "tests/crash/hostile_files.h"
#include "tests/crash/io_faults.h"
#include "tests/crash/kill_loop.h"
#include "tests/crash/power_loss.h"
#include "tests/crash/script_cuts.h"
#include "tests/crash/scripts.h"
#include "tests/gpu/kernel_rounds.h"
#include "tests/gpu/shadow_rounds.h"
#include "tests/gpu/slot_rounds.h"
#include "tests/model/histories.h"
#include "tests/sim/gpu_restores.h"
#include "tests/sim/shadow_steps.h"
#include "tests/sim/sparse_fetches.h"
#include "tests/sim/swarm.h"
#include "tests/support/last_words.h"
#include "tests/wal/crash_enumeration.h"

namespace cairn {
namespace {

volatile sig_atomic_t interrupted = 0;

void Interrupt(int signal_number) {
  interrupted = 1;
  signal(signal_number, SIG_DFL);
}

using Counts = std::map<std::string, uint64_t>;

// One run from a seed: adds to the counts; what was wrong.
using Run = std::function<std::string(uint64_t seed, Counts* counts)>;

// Disks that a power cut may leave, of a whole store: short runs with every subset of up to twelve
// writes, and long ones with crashes in a row.
std::string Crashes(uint64_t seed, Counts* counts) {
  // With strides, so that a run ends after about 20,000 disks.
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

// Every operation of one of the scripts fails, in every way; the next seed takes the next script.
std::string IoFaults(uint64_t seed, Counts* counts) {
  const std::vector<std::string> scripts = crash::ScriptNames();
  const crash::IoFaultsResult result =
      crash::RunIoFaults({.scripts = {scripts[seed % scripts.size()]}, .seed = seed});
  (*counts)["fault_runs"] += result.runs;
  (*counts)["scripts_failed_everywhere"] += 1;
  return result.violation;
}

// One bit of eight of every format, and one length of eight.
std::string Rot(uint64_t seed, Counts* counts) {
  for (const crash::FormatRot& rot :
       crash::RunFormatRot({.seed = seed, .bit_stride = 8, .cut_stride = 8})) {
    (*counts)["rot_verdicts"] += rot.flips + rot.cuts;
    if (!rot.violation.empty()) return rot.format + ": " + rot.violation;
  }
  return "";
}

// One of a hundred of the stores that say anything, under checksums that fit.
std::string Hostile(uint64_t seed, Counts* counts) {
  const crash::HostileSweep sweep = crash::SweepHostile(seed, /*stride=*/100);
  (*counts)["hostile_runs"] += sweep.runs;
  return sweep.violations;
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

// The GPU's kernels on the host's grid, against base/codec and base/shadow.
std::string Kernels(uint64_t seed, Counts* counts) {
  const auto machine = testing::MakeGridMachine(seed);
  for (const auto round :
       {testing::DecodeScatterRound, testing::DamagedFramesRound, testing::LostTableRound,
        testing::GatherSaveRound, testing::GatherStepRound, testing::CheckTableRound,
        testing::ResolveSlotsRound, testing::GatherPiecesRound, testing::ScoreChunksRound,
        testing::SelectChunksRound, testing::RebuildKeysRound, testing::RebuildLowRankRound,
        testing::RotateKeysRound}) {
    (*counts)["kernel_cases"] += 1;
    std::string differs = round(*machine, seed);
    if (!differs.empty()) return differs;
  }
  return "";
}

// Sparse sessions in a small arena, beside faults of disk and GPU.
std::string SparseFetches(uint64_t seed, Counts* counts) {
  const sim::SparseFetchesResult result = sim::RunSparseFetches({.seed = seed});
  (*counts)["sparse_fetch_seeds"] += 1;
  (*counts)["sparse_fetches"] += result.fetches;
  return result.violation;
}

// Shadow sessions, beside faults of disk and GPU, and a power loss.
std::string ShadowSteps(uint64_t seed, Counts* counts) {
  const sim::ShadowStepsResult result = sim::RunShadowSteps({.seed = seed});
  (*counts)["shadow_step_seeds"] += 1;
  (*counts)["shadow_steps"] += result.steps;
  return result.violation;
}

// Restores into a simulated GPU, beside faults of disk and GPU.
std::string GpuRestores(uint64_t seed, Counts* counts) {
  const sim::GpuRestoresResult result = sim::RunGpuRestores({.seed = seed});
  (*counts)["gpu_restore_seeds"] += 1;
  (*counts)["gpu_restores"] += result.restores;
  return result.violation;
}

const std::map<std::string, Run> kParts = {{"crashes", Crashes},
                                           {"script-crashes", ScriptCrashes},
                                           {"log-crashes", LogCrashes},
                                           {"io-faults", IoFaults},
                                           {"format-rot", Rot},
                                           {"hostile", Hostile},
                                           {"simulation", Simulation},
                                           {"model", Model},
                                           {"kernels", Kernels},
                                           {"gpu-restores", GpuRestores},
                                           {"sparse-fetches", SparseFetches},
                                           {"shadow-steps", ShadowSteps},
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
  const auto result = [&](const std::string& broken) {
    const nlohmann::json line = {{"part", part},
                                 {"first_seed", first_seed},
                                 {"seeds", seed - first_seed},
                                 {"seconds", static_cast<uint64_t>(elapsed())},
                                 {"counts", counts},
                                 {"violation", broken}};
    return line.dump() + "\n";
  };
  signal(SIGINT, Interrupt);
  signal(SIGTERM, Interrupt);
  for (; violation.empty() && elapsed() < seconds && interrupted == 0; ++seed) {
    const std::string seed_name = "seed " + std::to_string(seed);
    const testing::LastWords last_words(STDOUT_FILENO,
                                        "\n" + result(seed_name + ": it ended the program"));
    violation = run(seed, &counts);
    if (!violation.empty()) violation = seed_name + ": " + violation;
    if (elapsed() - told < 10) continue;
    told = elapsed();
    std::string line = part + ", " + seed_name;
    for (const auto& [name, count] : counts) line += ", " + std::to_string(count) + " " + name;
    std::fprintf(stderr, "%3.0f s: %s\n", told, line.c_str());
  }
  std::printf("%s", result(violation).c_str());
  return violation.empty() ? 0 : 1;
}

template <typename Number>
bool IsNumber(const char* text, Number* number) {
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, *number);
  return error == std::errc() && stop == end;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  const auto part = cairn::kParts.find(argc > 1 ? argv[1] : "");
  double seconds = 0;
  uint64_t seed = 0;
  if (argc == 4 && part != cairn::kParts.end() && cairn::IsNumber(argv[2], &seconds) &&
      seconds > 0 && cairn::IsNumber(argv[3], &seed)) {
    return cairn::Soak(part->first, part->second, seconds, seed);
  }
  std::string parts;
  for (const auto& [name, run] : cairn::kParts) parts += " " + name;
  std::fprintf(stderr,
               "usage: cairn_soak PART SECONDS SEED, two numbers, the first above 0; parts:%s\n",
               parts.c_str());
  return 2;
}
