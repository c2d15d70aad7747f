// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/script_cuts.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/world.h"
#include "tests/crash/recover_twice.h"
#include "tests/crash/scripts.h"

namespace cairn::crash {
namespace {

// A run notes the disks of this many operations, and they are checked when it has ended; then it is
// run again for the next. That bounds the memory for disks that wait.
constexpr uint64_t kOperationsOfARun = 32;

// A disk found after a crash, and what it may hold: the states of the run from one on.
struct Found {
  std::shared_ptr<io::SimDisk> disk;
  size_t first_state = 0;
  std::string copy;  // That was finished; empty: none.
  StoreState copied;
  std::string when;
};

class ScriptCuts {
 public:
  explicit ScriptCuts(const ScriptCutsOptions& options)
      : options_(options),
        random_(options.seed),
        recovery_scheduler_(std::make_shared<io::SimScheduler>(options.seed)) {
    KeepFreedMemory();
  }

  PowerLossResult Run() {
    for (const Script& script : Scripts()) {
      const auto& chosen = options_.scripts;
      if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), script.name) == chosen.end()) {
        continue;
      }
      seen_.clear();
      for (uint64_t begin = 0; Goes() && RunOnce(script, begin); begin += kOperationsOfARun) {
      }
    }
    return std::move(result_);
  }

 private:
  // Cuts at operations from `begin` on. Whether there are more behind them.
  bool RunOnce(const Script& script, uint64_t begin) {
    Options options = SmallOptions();
    script.configure(options);
    const io::SimWorld machine = starts_.MachineFor(script);
    io::SimDisk& disk = *machine.disk;
    disk.set_drop_syncs(options_.drop_syncs);
    std::vector<Found> found;
    std::vector<StoreState> states;
    uint64_t operations = 0;
    {
      ScriptRun run(machine, options, starts_.StatesFor(script), script.start != Start::kNothing,
                    /*claim_memory=*/false);
      disk.set_on_operation([&](const io::SimOperation& operation) {
        if (operation.index < begin || operation.index >= begin + kOperationsOfARun) return;
        if ((operation.index + options_.seed) % options_.point_stride != 0) return;
        Cut(run, disk, "operation " + std::to_string(operation.index) + ", " + operation.ToString(),
            &found);
      });
      run.Live(script.body);
      disk.set_on_operation(nullptr);
      operations = disk.operations();
      if (operations <= begin + kOperationsOfARun) Cut(run, disk, "the end", &found);
      if (!run.violation().empty()) Violation(script, "without a crash: " + run.violation());
      for (size_t i = 0; i < run.states(); ++i) states.push_back(run.state(i));
    }
    for (const Found& one : found) {
      if (!Goes()) break;
      const std::string wrong = Check(script, one, states);
      if (!wrong.empty()) Violation(script, "power lost before " + one.when + ": " + wrong);
    }
    return operations > begin + kOperationsOfARun;
  }

  void Cut(const ScriptRun& run, const io::SimDisk& disk, const std::string& when,
           std::vector<Found>* found) {
    const size_t unsynced = disk.unsynced_writes();
    const bool all = unsynced <= options_.exhaustive_writes_max;
    ++(all ? result_.exhaustive : result_.sampled);
    const auto find = [&](const io::CrashChoice& choice) {
      const bool is_new =
          seen_.emplace(disk.CrashKey(choice), run.first_possible(), run.copy().empty()).second;
      if (!is_new) return;
      found->push_back({.disk = disk.CrashClone(choice),
                        .first_state = run.first_possible(),
                        .copy = run.copy(),
                        .copied = run.copied(),
                        .when = when});
    };
    for (uint64_t mask = 0; all && mask < uint64_t{1} << unsynced; ++mask) {
      find(io::CrashChoice::Mask(mask));
    }
    for (uint64_t i = 0; !all && i < options_.samples; ++i) {
      find(io::CrashChoice{.seed = random_(), .torn = 0, .kept_mask = {}});
    }
    for (uint64_t i = 0; i < options_.torn_samples; ++i) {
      find(io::CrashChoice::Seeded(random_()));
    }
  }

  // The fault of the disk.
  std::string Check(const Script& script, const Found& found,
                    const std::vector<StoreState>& states) {
    ++result_.states;
    ++result_.depths[0];
    Options options = SmallOptions();
    script.configure(options);
    options.create_if_missing = false;
    options.read_only = random_() % 2 == 0;
    options.world = std::make_shared<const io::World>(
        io::World{.files = found.disk, .scheduler = recovery_scheduler_});
    const auto state = RecoverTwice("store", options, &result_.second_recoveries);
    if (state.status().code() == StatusCode::kNotFound && script.start == Start::kNothing &&
        found.first_state == 0) {
      return "";
    }
    if (!state.ok()) return state.status().ToString();
    const auto first = states.begin() + static_cast<ptrdiff_t>(found.first_state);
    if (std::find(first, states.end(), *state) == states.end()) {
      return std::find(states.begin(), first, *state) != first ? "acknowledged operations are lost"
                                                               : "the state was never there";
    }
    if (found.copy.empty()) return "";
    ++result_.copies;
    options.read_only = true;
    const auto copied = OpenAndRead(found.copy, options);
    if (!copied.ok()) return "the copy: " + copied.status().ToString();
    return *copied == found.copied ? "" : "the copy holds something else";
  }

  bool Goes() const { return result_.violation.empty() && result_.states < options_.states_max; }

  void Violation(const Script& script, const std::string& what) {
    if (!result_.violation.empty()) return;
    result_.violation =
        std::string(script.name) + ", seed " + std::to_string(options_.seed) + ": " + what;
  }

  const ScriptCutsOptions options_;
  std::mt19937_64 random_;
  const std::shared_ptr<io::SimScheduler> recovery_scheduler_;
  const Starts starts_;
  std::set<std::tuple<uint64_t, size_t, bool>> seen_;  // Keys of disks, with what they must hold.
  PowerLossResult result_;
};

}  // namespace

PowerLossResult RunScriptCuts(const ScriptCutsOptions& options) {
  return ScriptCuts(options).Run();
}

}  // namespace cairn::crash
