// SPDX-License-Identifier: Apache-2.0
#include "tests/wal/crash_enumeration.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

namespace cairn::wal {
namespace {

// A disk after a crash, and what was acknowledged to the user by then.
struct CrashState {
  std::unique_ptr<io::SimDisk> disk;
  std::string what;
  uint64_t acknowledged = 0;   // Must survive.
  uint64_t first_segment = 1;  // The log start that the user has made durable.
};

struct RunFacts {
  Log* log = nullptr;
  uint64_t first_segment = 1;
};

std::string Describe(const io::SimOperation& operation, const std::string& choice) {
  return "crash before operation " + std::to_string(operation.index) + " (" + operation.ToString() +
         "), " + choice;
}

// The disk as it would be found if the power went right now, in many ways.
void CollectCrashes(const io::SimDisk& disk, const io::SimOperation& operation,
                    const CrashPlan& plan, bool thorough, const RunFacts& facts,
                    std::vector<CrashState>& states) {
  const uint64_t durable = facts.log != nullptr ? facts.log->durable_sequence() : 0;
  const uint64_t written = facts.log != nullptr ? facts.log->written_sequence() : 0;
  const auto add = [&](const io::CrashChoice& choice, const std::string& name, uint64_t expected) {
    states.push_back(
        {disk.CrashClone(choice), Describe(operation, name), expected, facts.first_segment});
  };
  add(io::CrashChoice::LoseAll(), "all lost", durable);
  // A killed process loses nothing that was handed to the system.
  add(io::CrashChoice::KeepAll(), "all kept", written);
  const size_t unsynced = disk.unsynced_writes();
  if (thorough && unsynced <= plan.all_subsets_up_to) {
    for (uint64_t mask = 1; mask + 1 < (uint64_t{1} << unsynced); ++mask) {
      add(io::CrashChoice::Mask(mask), "kept mask " + std::to_string(mask), durable);
    }
  }
  for (int i = 0; unsynced > 0 && i < plan.random_choices; ++i) {
    const uint64_t seed = plan.seed * 1'000'003 + operation.index * 101 + static_cast<uint64_t>(i);
    add(io::CrashChoice::Seeded(seed), "torn by seed " + std::to_string(seed), durable);
  }
}

// Whatever a caller may do to a log, drawn from the seed.
class Workload {
 public:
  Workload(LogFixture& fixture, RunFacts& facts, SeededRandom& random, bool large_records)
      : fixture_(fixture), facts_(facts), random_(random), large_(large_records) {}

  void Step() {
    Log& log = *fixture_.log;
    const uint64_t last = log.last_reserved_sequence();
    switch (random_.Below(12)) {
      case 0: (void)log.Flush(io::kNoDeadline); break;
      case 1:
        if (last > 0) log.Request(last, random_.Below(2) == 0);
        break;
      case 2: Release(); break;
      case 3: fixture_.world.scheduler->Sleep(random_.Below(150'000'000)); break;
      default: AppendSome(); break;
    }
  }

 private:
  void AppendSome() {
    Log& log = *fixture_.log;
    uint64_t sequence = 0;
    for (uint64_t i = 0, n = 1 + random_.Below(3); i < n; ++i) {
      const uint64_t id = fixture_.appended.size() + 1;
      const uint64_t shape = random_.Below(10);
      size_t bytes = random_.Below(3000);
      if (shape < 3) bytes = 20'000 + random_.Below(40'000);  // Segments fill up.
      if (shape == 3 && large_) bytes = 520'000 + random_.Below(100'000);
      TestRecord record =
          random_.Below(3) == 0 ? WithStrips(id, {bytes / 2, 100, bytes / 3}) : Payload(id, bytes);
      sequence = fixture_.Append(std::move(record));
      if (sequence == 0) return;
    }
    switch (random_.Below(5)) {
      case 0: break;  // kMemory
      case 1: log.Request(sequence, false); break;
      case 2: (void)log.Wait(sequence, false, io::kNoDeadline); break;
      case 3: log.Request(sequence, true); break;
      default: (void)log.Wait(sequence, true, io::kNoDeadline); break;
    }
  }

  // The engine's steps after a new manifest: a durable log start, then the segments below it.
  void Release() {
    Log& log = *fixture_.log;
    const std::vector<SegmentInfo> segments = log.Segments();
    uint64_t start = facts_.first_segment;
    for (const SegmentInfo& segment : segments) {
      if (segment.first_sequence <= log.durable_sequence()) start = std::max(start, segment.number);
    }
    if (segments.size() < 3 || start == facts_.first_segment) return;
    facts_.first_segment = start;
    const Status released = log.ReleaseBelow(start);
    EXPECT_TRUE(released.ok()) << released.ToString();
  }

  LogFixture& fixture_;
  RunFacts& facts_;
  SeededRandom& random_;
  const bool large_;
};

// Runs a workload on the machine and collects the crashes on the way.
void Run(io::SimWorld& machine, LogFixture& fixture, const CrashPlan& plan, int steps,
         bool thorough, uint64_t first_segment, RecoveredLog recovered,
         const std::function<void(std::vector<CrashState>&)>& check, CrashReport& report) {
  RunFacts facts{nullptr, first_segment};
  std::vector<CrashState> states;
  machine.disk->set_drop_syncs(plan.drop_syncs);
  machine.disk->set_on_operation([&](const io::SimOperation& operation) {
    CollectCrashes(*machine.disk, operation, plan, thorough, facts, states);
  });
  SeededRandom random(plan.seed * 77 + static_cast<uint64_t>(steps));
  fixture.OpenLog(std::move(recovered));
  facts.log = fixture.log.get();
  Workload workload(fixture, facts, random, plan.large_records);
  for (int i = 0; i < steps; ++i) {
    workload.Step();
    check(states);
    states.clear();
  }
  const std::vector<SegmentInfo> segments = fixture.log->Segments();
  report.segments_used = segments.empty() ? 0 : segments.back().number;  // Nothing was appended.
  EXPECT_TRUE(fixture.log->Close().ok());
  facts.log = nullptr;  // The hook must not call a log that is being destroyed.
  machine.disk->set_on_operation(nullptr);
  check(states);
  fixture.log.reset();
}

class Checker {
 public:
  Checker(const CrashPlan& plan, CrashReport& report) : plan_(plan), report_(report) {}

  // `appended` in the order of sequences, from 1.
  void Check(std::vector<CrashState>& states, const LogFixture& fixture, bool go_on) {
    for (CrashState& state : states) {
      ++report_.crashes;
      CheckOne(state, fixture, go_on && report_.crashes % plan_.second_crash_every == 0);
    }
  }

 private:
  void Violation(const CrashState& state, const std::string& what) {
    if (report_.violations.size() < 5) {
      report_.violations.push_back("seed " + std::to_string(plan_.seed) + ": " + state.what + ": " +
                                   what);
    }
  }

  Recovered RecoverState(io::World& world, const LogOptions& options, uint64_t first_segment,
                         bool read_payload) {
    RecoveryOptions recovery;
    recovery.directory = options.directory;
    recovery.store = options.store;
    recovery.first_segment = first_segment;
    return RecoverLog(world, recovery, read_payload);
  }

  void CheckOne(CrashState& state, const LogFixture& fixture, bool go_on) {
    io::World world{std::move(state.disk), fixture.world.scheduler};
    auto& disk = static_cast<io::SimDisk&>(*world.files);
    std::string change;
    std::map<std::string, std::vector<std::byte>> before;  // Written files.
    disk.set_on_operation([&](const io::SimOperation& operation) {
      if (operation.op == io::SimOp::kWrite) {
        auto content = disk.ReadRaw(operation.path);
        before.try_emplace(operation.path, std::move(*content));
      } else if (operation.op != io::SimOp::kSync && operation.op != io::SimOp::kSyncDirectory) {
        change = operation.ToString();
      }
    });
    const Recovered found = RecoverState(world, fixture.options, state.first_segment, true);
    if (!found.status.ok()) return Violation(state, found.status.ToString());
    report_.torn_tails += found.log.torn_tail ? 1 : 0;
    if (found.log.last_sequence < state.acknowledged) {
      return Violation(state, "sequence " + std::to_string(state.acknowledged) +
                                  " was acknowledged, the log ends at " +
                                  std::to_string(found.log.last_sequence));
    }
    if (!found.damaged_strips.empty()) return Violation(state, "a damaged strip");
    if (!IsRun(found.records, fixture.appended, found.log.last_sequence, state.first_segment)) {
      return Violation(state, "the records are not those that were appended");
    }
    const Recovered again = RecoverState(world, fixture.options, state.first_segment, false);
    if (!again.status.ok() || !SameState(found.log, again.log) ||
        found.records.size() != again.records.size()) {
      return Violation(state, "a second recovery finds something else");
    }
    for (const auto& [path, content] : before) {
      if (*disk.ReadRaw(path) != content) change = "other bytes in " + path;
    }
    if (!change.empty()) return Violation(state, "recovery changed the disk: " + change);
    disk.set_on_operation(nullptr);
    if (go_on) GoOn(state, fixture, std::move(world), found);
  }

  // A gapless run of what was appended, up to the last sequence; from 1 unless the log was cut.
  static bool IsRun(const std::vector<TestRecord>& found, const std::vector<TestRecord>& appended,
                    uint64_t last_sequence, uint64_t first_segment) {
    if (found.size() > last_sequence || last_sequence > appended.size()) return false;
    const size_t skipped = last_sequence - found.size();
    if (first_segment == 1 && skipped != 0) return false;
    return std::equal(found.begin(), found.end(),
                      appended.begin() + static_cast<ptrdiff_t>(skipped));
  }

  // The user goes on where recovery ended, with other records, and the power goes again.
  void GoOn(const CrashState& state, const LogFixture& before, io::World crashed,
            const Recovered& found) {
    ++report_.second_crashes;
    io::SimWorld machine;
    machine.scheduler = std::make_shared<io::SimScheduler>(plan_.seed + report_.crashes);
    machine.disk = static_cast<io::SimDisk&>(*crashed.files)
                       .CrashClone(io::CrashChoice::KeepAll(), machine.scheduler.get());
    LogFixture fixture(machine.world());
    fixture.options = before.options;
    fixture.appended.assign(
        before.appended.begin(),
        before.appended.begin() + static_cast<ptrdiff_t>(found.log.last_sequence));
    CrashPlan plan = plan_;
    plan.seed = plan_.seed * 31 + report_.crashes;
    plan.random_choices = 2;
    CrashReport second;
    Run(
        machine, fixture, plan, 4, /*thorough=*/false, state.first_segment, found.log,
        [&](std::vector<CrashState>& states) {
          for (CrashState& next : states) {
            ++report_.crashes;
            next.what = state.what + "; then " + next.what;
            // Before anything new is acknowledged, at least the old survives.
            next.acknowledged = std::max(next.acknowledged, found.log.last_sequence);
            CheckOne(next, fixture, false);
          }
        },
        second);
  }

  const CrashPlan& plan_;
  CrashReport& report_;
};

}  // namespace

CrashReport EnumerateCrashes(const CrashPlan& plan) {
  CrashReport report;
  io::SimWorld machine = io::MakeSimWorld(plan.seed);
  LogFixture fixture(machine.world());
  fixture.options.sync_method = plan.sync_method;
  if (plan.large_records) {
    fixture.options.segment_bytes = 1 << 20;
    fixture.options.hot_tail_bytes = 4 << 20;
  }
  // Without its name the directory would be lost with everything in it.
  EXPECT_TRUE(machine.disk->SyncDirectory("").ok());
  Checker checker(plan, report);
  Run(
      machine, fixture, plan, plan.steps, /*thorough=*/true, 1, {},
      [&](std::vector<CrashState>& states) { checker.Check(states, fixture, true); }, report);
  return report;
}

}  // namespace cairn::wal
