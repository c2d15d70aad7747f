// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/io_faults.h"

#include <algorithm>
#include <cerrno>
#include <functional>

#include "sim/world.h"
#include "tests/crash/scripts.h"

namespace cairn::crash {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
// A stuck operation takes twenty seconds, ...
constexpr uint64_t kStuckNs = 20 * kSecond;
constexpr uint64_t kSlowNs = kSecond / 20;  // ...and every operation of a slow disk this.

enum class Kind { kIo, kNoSpace, kInterrupted, kAgain, kShort, kCancelled, kSyncLoses, kSlow };
constexpr Kind kKinds[] = {Kind::kIo,    Kind::kNoSpace,   Kind::kInterrupted, Kind::kAgain,
                           Kind::kShort, Kind::kCancelled, Kind::kSyncLoses,   Kind::kSlow};
constexpr const char* kKindNames[] = {
    "EIO", "ENOSPC", "EINTR", "EAGAIN", "short", "ECANCELED", "a sync that loses", "slow"};

bool Fits(Kind kind, io::SimOp op) {
  const bool transfer =
      op == io::SimOp::kRead || op == io::SimOp::kWrite || op == io::SimOp::kDurableWrite;
  if (kind == Kind::kShort) return transfer;
  if (kind == Kind::kSyncLoses) return op == io::SimOp::kSync;
  return true;
}

io::SimFault MakeFault(Kind kind, bool persistent) {
  io::SimFault fault;
  fault.persistent = persistent;
  switch (kind) {
    case Kind::kIo: fault.error = EIO; break;
    case Kind::kNoSpace: fault.error = ENOSPC; break;
    case Kind::kInterrupted: fault.error = EINTR; break;
    case Kind::kAgain: fault.error = EAGAIN; break;
    case Kind::kShort: fault.transferred = io::kSimSectorBytes; break;
    case Kind::kCancelled: fault.error = ECANCELED; break;
    case Kind::kSyncLoses:
      fault.error = EIO;
      fault.loses_unsynced = true;
      break;
    case Kind::kSlow: fault.delay_ns = persistent ? kSlowNs : kStuckNs; break;
  }
  return fault;
}

class IoFaults {
 public:
  explicit IoFaults(const IoFaultsOptions& options) : options_(options) { KeepFreedMemory(); }

  IoFaultsResult Sweep() {
    for (const Script& script : Scripts()) {
      const auto& chosen = options_.scripts;
      if (chosen.empty() || std::find(chosen.begin(), chosen.end(), script.name) != chosen.end()) {
        SweepScript(script);
      }
    }
    return result_;
  }

 private:
  void SweepScript(const Script& script) {
    std::vector<io::SimOp> operations;
    if (RunOnce(script, "without a fault", [&](io::SimDisk& disk) {
          io::SimFault watch;
          watch.when = [&](const io::SimOperation& operation) {
            operations.push_back(operation.op);
            return false;
          };
          disk.AddFault(std::move(watch));
        }) != 0) {
      return;
    }
    if (operations.empty()) result_.violation = std::string(script.name) + " uses no disk";
    result_.indexes += operations.size();
    for (const Kind kind : kKinds) {
      for (const bool persistent : {false, true}) {
        bool met = true;
        for (uint64_t at = 0; met && result_.violation.empty(); ++at) {
          // Up to its fault a run does what the one without does.
          if (at < operations.size() && !Fits(kind, operations[at])) continue;
          if (at < operations.size() && (at + options_.seed) % options_.point_stride != 0) continue;
          const std::string what = std::string(kKindNames[static_cast<int>(kind)]) +
                                   (persistent ? " from " : " at ") + "operation " +
                                   std::to_string(at);
          met = RunOnce(script, what, [&](io::SimDisk& disk) {
                  io::SimFault fault = MakeFault(kind, persistent);
                  fault.when = [n = uint64_t{0}, at, kind,
                                persistent](const io::SimOperation& operation) mutable {
                    const uint64_t index = n++;
                    return Fits(kind, operation.op) && (persistent ? index >= at : index == at);
                  };
                  disk.AddFault(std::move(fault));
                }) != 0;
          if (!met && at < operations.size() && result_.violation.empty()) {
            result_.violation = std::string(script.name) + ", " + what + ": it was not met";
          }
        }
      }
    }
  }

  // How many faults struck.
  uint64_t RunOnce(const Script& script, const std::string& what,
                   const std::function<void(io::SimDisk&)>& prepare) {
    Options options = SmallOptions();
    script.configure(options);
    const io::SimWorld machine = starts_.MachineFor(script);
    prepare(*machine.disk);
    uint64_t struck = 0;
    {
      ScriptRun run(machine, options, starts_.StatesFor(script), script.start != Start::kNothing,
                    options_.claim_memory);
      run.Live(script.body);
      struck = machine.disk->faults_struck();
      run.Judge();
      if (!run.violation().empty() && result_.violation.empty()) {
        result_.violation = std::string(script.name) + ", " + what + ": " + run.violation();
      }
      if (struck != 0) {
        ++result_.runs;
        ++(run.met_poison()    ? result_.poisoned
           : run.met_refusal() ? result_.refused
                               : result_.unnoticed);
      }
    }
    return struck;
  }

  const IoFaultsOptions options_;
  const Starts starts_;
  IoFaultsResult result_;
};

}  // namespace

IoFaultsResult RunIoFaults(const IoFaultsOptions& options) { return IoFaults(options).Sweep(); }

std::string Counts(const IoFaultsResult& result) {
  return "fault runs " + std::to_string(result.runs) + ", indexes " +
         std::to_string(result.indexes) + ", poisoned " + std::to_string(result.poisoned) +
         ", refused " + std::to_string(result.refused) + ", unnoticed " +
         std::to_string(result.unnoticed);
}

}  // namespace cairn::crash
