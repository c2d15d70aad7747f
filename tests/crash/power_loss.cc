// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/power_loss.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "base/core/check.h"
#include "sim/world.h"
#include "tests/crash/history.h"
#include "tests/crash/recover_twice.h"
#include "tests/crash/scripts.h"

namespace cairn::crash {

namespace {

constexpr uint32_t kDepthMax = 3;

// A disk found after a crash, and what it may hold.
struct Found {
  std::shared_ptr<io::SimDisk> disk;
  bool created = true;      // Else the store was still being made.
  size_t acknowledged = 0;  // At least this many operations...
  size_t started = 0;       // ...and at most these.
  std::optional<History::Copy> copy;
  std::string when;
};

class PowerLoss {
 public:
  explicit PowerLoss(const PowerLossOptions& options)
      : options_(options),
        random_(options.seed),
        recovery_scheduler_(std::make_shared<io::SimScheduler>(options.seed)) {
    KeepFreedMemory();
  }

  PowerLossResult Run() {
    const uint64_t seed = options_.seed;
    RunOnce(io::MakeSimWorld(seed), StoreState{}, /*created=*/false, 0, seed);
    return std::move(result_);
  }

 private:
  // One store on one machine.
  struct Life {
    io::SimWorld machine;
    History history;
    uint32_t crashes = 0;  // Before.
    uint64_t seed = 0;
    bool created = true;
    uint32_t deeper = 0;                         // Lives after a crash of this one.
    std::set<std::pair<uint64_t, size_t>> seen;  // Keys of disks, with what was acknowledged.
    std::vector<Found> found;                    // Not checked yet.
  };

  Options StoreOptions(std::shared_ptr<io::SimDisk> disk,
                       std::shared_ptr<io::SimScheduler> scheduler) const {
    const uint64_t seed = options_.seed;
    Options options;
    options.segment_bytes = 256 << 10;
    options.spare_segments_min = 1;
    options.spare_segments_max = 2;
    options.max_memory_bytes = 16 << 20;
    options.hot_tail_bytes = 256 << 10;
    options.delta_batch_tokens = seed % 2 == 0 ? 4 : 1;
    options.replay_records_max = seed % 3 == 0 ? 16 : 8192;
    options.max_delta_chain = seed % 4 == 0 ? 8 : 100;
    return WithWorld(options, std::move(disk), std::move(scheduler));
  }

  static Options WithWorld(Options options, std::shared_ptr<io::SimDisk> disk,
                           std::shared_ptr<io::SimScheduler> scheduler) {
    options.world = std::make_shared<const io::World>(
        io::World{.files = std::move(disk), .scheduler = std::move(scheduler)});
    return options;
  }

  void RunOnce(io::SimWorld machine, const StoreState& start, bool created, uint32_t crashes,
               uint64_t seed) {
    Life life{.machine = std::move(machine),
              .history = History(seed, start),
              .crashes = crashes,
              .seed = seed,
              .created = created,
              .deeper = 0,
              .seen = {},
              .found = {}};
    life.history.set_ack_level(options_.claimed);
    io::SimDisk& disk = *life.machine.disk;
    disk.set_drop_syncs(options_.drop_syncs);
    disk.set_on_operation([&](const io::SimOperation& operation) {
      if ((operation.index + seed) % options_.point_stride != 0) return;
      Cut(&life, operation.ToString());
    });
    Live(&life);
    disk.set_on_operation(nullptr);
  }

  void Live(Life* life) {
    Options options = StoreOptions(life->machine.disk, life->machine.scheduler);
    options.create_if_missing = !life->created;
    auto store = Store::Open("store", options);
    if (!store.ok()) return Violation("open: " + store.status().ToString());
    life->created = true;
    CheckAll(life);
    std::mt19937_64 random(life->seed);
    for (uint64_t step = 0; step < options_.steps >> (2 * life->crashes) && Goes(); ++step) {
      if (random() % 16 == 0) {
        Count(*store);
        if (Status closed = store->Close(); !closed.ok()) {
          return Violation("close: " + closed.ToString());
        }
        life->history.AcknowledgeAll();
        store = Store::Open("store", options);
        if (!store.ok()) return Violation("open again: " + store.status().ToString());
      }
      if (Status status = life->history.Step(*store); !status.ok()) {
        return Violation("step " + std::to_string(step) + ": " + status.ToString());
      }
      CheckAll(life);
    }
    Count(*store);
    static_cast<void>(store->Close());
    life->history.AcknowledgeAll();
    Cut(life, "the end");
    CheckAll(life);
  }

  void Count(const Store& store) {
    const StoreMetrics metrics = store.Metrics();
    result_.evicted_bytes += metrics.evicted_bytes;
    result_.filled_bytes += metrics.filled_bytes;
    result_.joined_nodes += metrics.joined_nodes;
    result_.sealed += metrics.seals;
    result_.resting += metrics.log_resting_segments;
  }

  void Cut(Life* life, const std::string& when) {
    if (!Goes()) return;
    const size_t unsynced = life->machine.disk->unsynced_writes();
    const bool all = unsynced <= options_.exhaustive_writes_max;
    ++(all ? result_.exhaustive : result_.sampled);
    if (all) {
      for (uint64_t mask = 0; mask < uint64_t{1} << unsynced; ++mask) {
        Find(life, io::CrashChoice::Mask(mask), when);
      }
    }
    for (uint64_t i = 0; i < (all ? 0 : options_.samples); ++i) {
      Find(life, io::CrashChoice{.seed = random_(), .torn = 0, .kept_mask = {}}, when);
    }
    for (uint64_t i = 0; i < options_.torn_samples; ++i) {
      Find(life, io::CrashChoice::Seeded(random_()), when);
    }
  }

  void Find(Life* life, const io::CrashChoice& choice, const std::string& when) {
    const io::SimDisk& disk = *life->machine.disk;
    const History& history = life->history;
    if (!life->seen.emplace(disk.CrashKey(choice), history.acknowledged()).second) return;
    life->found.push_back({.disk = disk.CrashClone(choice),
                           .created = life->created,
                           .acknowledged = history.acknowledged(),
                           .started = history.started(),
                           .copy = history.copy(),
                           .when = when});
  }

  void CheckAll(Life* life) {
    for (const Found& one : std::exchange(life->found, {})) {
      if (!Goes()) return;
      const auto state = Check(one, life->history, life->crashes);
      if (!state.has_value() || !one.created) continue;
      if (life->crashes + 1 < options_.depth && life->deeper < options_.deeper_max &&
          random_() % options_.deeper_one_in == 0) {
        ++life->deeper;
        auto scheduler = std::make_shared<io::SimScheduler>(random_());
        auto disk = one.disk->CrashClone(io::CrashChoice::KeepAll(), scheduler.get());
        RunOnce({.scheduler = scheduler, .disk = std::move(disk)}, *state, true, life->crashes + 1,
                random_());
      }
    }
  }

  // The content of the disk, unless that is wrong.
  std::optional<StoreState> Check(const Found& found, const History& history, uint32_t crashes) {
    ++result_.states;
    ++result_.depths[crashes];
    const auto fail = [&](const std::string& what) {
      Violation("crash " + std::to_string(crashes + 1) + ", power lost before " + found.when +
                ", after " + std::to_string(found.started) + " operations of which " +
                std::to_string(found.acknowledged) + " were acknowledged: " + what);
      return std::nullopt;
    };
    Options options = StoreOptions(found.disk, recovery_scheduler_);
    options.create_if_missing = !found.created;
    options.read_only = found.created && random_() % 2 == 0;
    if (!options.read_only) {  // On a disk of its own: this one is the start of what may follow.
      options = WithWorld(options, found.disk->CrashClone(io::CrashChoice::KeepAll()),
                          recovery_scheduler_);
    }
    auto state = RecoverTwice("store", options, &result_.second_recoveries);
    if (!state.ok()) return fail(state.status().ToString());
    if (!history.Has(*state, found.acknowledged, found.started)) {
      return fail(history.Has(*state, 0, found.acknowledged) ? "acknowledged operations are lost"
                                                             : "the state was never there");
    }
    if (found.copy.has_value()) {
      options.create_if_missing = false;
      options.read_only = true;
      if (const Status copied = CheckCopy(found, history, options); !copied.ok()) {
        return fail(found.copy->path + ": " + copied.ToString());
      }
    }
    return std::move(*state);
  }

  // A finished copy exists and is right; an unfinished one shows nothing wrong.
  Status CheckCopy(const Found& found, const History& history, const Options& options) {
    const History::Copy& copy = *found.copy;
    if (copy.done && random_() % 8 != 0) return Status::Ok();  // Nothing touches it any more.
    ++result_.copies;
    const auto state = OpenAndRead(copy.path, options);
    const StatusCode code = state.status().code();
    if (!copy.done && (code == StatusCode::kNotFound || code == StatusCode::kInvalidState ||
                       code == StatusCode::kCorruption)) {
      return Status::Ok();
    }
    CAIRN_RETURN_IF_ERROR(state.status());
    if (*state == history.states()[copy.state]) return Status::Ok();
    return Status(StatusCode::kCorruption, "the copy holds something else");
  }

  bool Goes() const { return result_.violation.empty() && result_.states < options_.states_max; }

  void Violation(std::string what) {
    if (result_.violation.empty()) {
      result_.violation = "seed " + std::to_string(options_.seed) + ": " + std::move(what);
    }
  }

  const PowerLossOptions options_;
  std::mt19937_64 random_;
  const std::shared_ptr<io::SimScheduler> recovery_scheduler_;
  PowerLossResult result_;
};

}  // namespace

void PowerLossResult::Add(const PowerLossResult& other) {
  states += other.states;
  exhaustive += other.exhaustive;
  sampled += other.sampled;
  for (uint32_t i = 0; i < kDepthMax; ++i) depths[i] += other.depths[i];
  copies += other.copies;
  second_recoveries += other.second_recoveries;
  evicted_bytes += other.evicted_bytes;
  filled_bytes += other.filled_bytes;
  joined_nodes += other.joined_nodes;
  sealed += other.sealed;
  resting += other.resting;
}

std::string PowerLossResult::Counts() const {
  return "states " + std::to_string(states) + ", exhaustive points " + std::to_string(exhaustive) +
         ", sampled points " + std::to_string(sampled) + ", after crash 1 " +
         std::to_string(depths[0]) + ", 2 " + std::to_string(depths[1]) + ", 3 " +
         std::to_string(depths[2]) + ", copies " + std::to_string(copies) + ", second recoveries " +
         std::to_string(second_recoveries) + ", evicted bytes " + std::to_string(evicted_bytes) +
         ", filled " + std::to_string(filled_bytes) + ", joined nodes " +
         std::to_string(joined_nodes) + ", seals " + std::to_string(sealed) + ", resting " +
         std::to_string(resting);
}

PowerLossResult RunPowerLoss(const PowerLossOptions& options) { return PowerLoss(options).Run(); }

PowerLossResult RunPowerLosses(PowerLossOptions options, uint64_t states) {
  PowerLossResult all;
  for (; all.states < states && all.violation.empty(); ++options.seed) {
    options.states_max = states - all.states;
    const PowerLossResult one = RunPowerLoss(options);
    all.Add(one);
    all.violation = one.violation;
  }
  return all;
}

}  // namespace cairn::crash
