// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/power_loss.h"

#include <memory>
#include <random>
#include <vector>

#include "base/io/sim_world.h"
#include "tests/crash/history.h"

namespace cairn::crash {

namespace {

Options SimOptions(const io::SimWorld& machine) {
  Options options;
  options.create_if_missing = true;
  options.segment_bytes = 256 << 10;
  options.spare_segments_min = 1;
  options.spare_segments_max = 2;
  options.max_memory_bytes = 16 << 20;
  options.hot_tail_bytes = 256 << 10;
  options.direct_ingest_bytes = 8 << 10;  // About a tenth of the appends.
  options.world = std::make_shared<const io::World>(machine.world());
  return options;
}

// A disk found after a crash, and what it may hold.
struct Found {
  io::SimWorld machine;
  size_t acknowledged = 0;  // At least this many operations...
  size_t started = 0;       // ...and at most these.
  std::string when;
};

class PowerLoss {
 public:
  explicit PowerLoss(const PowerLossOptions& options) : options_(options), random_(options.seed) {}

  PowerLossResult Run() {
    RunOnce(io::MakeSimWorld(options_.seed), StoreState{}, options_.depth, options_.seed);
    return std::move(result_);
  }

 private:
  void RunOnce(io::SimWorld machine, const StoreState& start, uint32_t depth, uint64_t seed) {
    History history(seed, start);
    std::vector<Found> found;
    machine.disk->set_drop_syncs(options_.drop_syncs);
    bool opened = false;
    machine.disk->set_on_operation([&](const io::SimOperation& operation) {
      if (!opened || operation.index % options_.point_stride != 0) return;
      Cut(machine, history, operation.ToString(), &found);
    });
    {
      auto store = Store::Open("store", SimOptions(machine));
      if (!store.ok()) return Violation("open: " + store.status().ToString());
      opened = true;
      for (uint64_t step = 0; step < options_.steps; ++step) {
        if (Status status = history.Step(*store); !status.ok()) {
          return Violation("step " + std::to_string(step) + ": " + status.ToString());
        }
      }
      Cut(machine, history, "the end", &found);
      result_.evicted_bytes += store->Metrics().evicted_bytes;
      result_.filled_bytes += store->Metrics().filled_bytes;
      opened = false;
    }
    machine.disk->set_on_operation(nullptr);
    for (const Found& one : found) {
      if (!result_.violation.empty()) return;
      Check(one, history, depth);
    }
  }

  void Cut(const io::SimWorld& machine, const History& history, const std::string& when,
           std::vector<Found>* found) {
    const size_t unsynced = machine.disk->unsynced_writes();
    for (uint64_t i = 0; i < options_.choices_per_point; ++i) {
      const uint64_t drawn = random_();
      // Few writes: any subset of whole ones. Many, and every third time: torn sectors as well.
      const io::CrashChoice choice = unsynced <= 12 && drawn % 3 != 0
                                         ? io::CrashChoice::Mask(drawn >> 8)
                                         : io::CrashChoice::Seeded(drawn);
      found->push_back(
          {io::CrashWorld(*machine.disk, choice), history.acknowledged(), history.started(), when});
    }
  }

  void Check(const Found& found, const History& history, uint32_t depth) {
    ++result_.states;
    const auto fail = [&](const std::string& what) {
      Violation("power lost before " + found.when + ", after " + std::to_string(found.started) +
                " operations of which " + std::to_string(found.acknowledged) +
                " were acknowledged: " + what);
    };
    StoreState state;
    {
      Options options = SimOptions(found.machine);
      options.create_if_missing = false;
      options.read_only = random_() % 2 == 0;
      auto store = Store::Open("store", options);
      if (!store.ok()) return fail("open: " + store.status().ToString());
      auto read = ReadStore(*store);
      if (!read.ok()) return fail("read: " + read.status().ToString());
      state = std::move(*read);
      if (!history.Has(state, found.acknowledged, found.started)) {
        return fail(history.Has(state, 0, found.acknowledged) ? "acknowledged operations are lost"
                                                              : "the state was never there");
      }
    }
    // Found again, it is the same.
    Options again = SimOptions(found.machine);
    again.create_if_missing = false;
    again.read_only = true;
    auto store = Store::Open("store", again);
    if (!store.ok()) return fail("second open: " + store.status().ToString());
    auto read = ReadStore(*store);
    if (!read.ok() || *read != state) return fail("the second recovery differs");
    if (depth > 1 && random_() % 16 == 0) {
      RunOnce(io::CrashWorld(*found.machine.disk, io::CrashChoice::KeepAll(), true), state,
              depth - 1, random_());
    }
  }

  void Violation(std::string what) {
    if (result_.violation.empty()) {
      result_.violation = "seed " + std::to_string(options_.seed) + ": " + std::move(what);
    }
  }

  const PowerLossOptions options_;
  std::mt19937_64 random_;
  PowerLossResult result_;
};

}  // namespace

PowerLossResult RunPowerLoss(const PowerLossOptions& options) { return PowerLoss(options).Run(); }

}  // namespace cairn::crash
