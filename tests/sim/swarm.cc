// SPDX-License-Identifier: Apache-2.0
#include "wal/space_cushion.h"

#include <malloc.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "sim/world.h"
#include "tests/sim/swarm_clients.h"
#include "wal/space_cushion.h"

namespace cairn::sim {
namespace {

constexpr uint64_t kHangNs = 3'600'000'000'000;  // Virtual time of a life that hangs.
constexpr uint64_t kLivesMax = 40;
constexpr int kOpenings = 3;  // Tried on a disk that may fail.

bool IsCorruption(const Status& status) {
  return status.code() == StatusCode::kCorruption ||
         status.code() == StatusCode::kUnsupportedFormat;
}

// The remains of a life that ends without a word.
struct Struck {
  std::unique_ptr<io::SimDisk> disk;
  bool killed = false;
  KnownBranches known;
  KnownObjects objects;
  Durability survived = Durability::kPower;
};

class Swarm {
 public:
  explicit Swarm(const SwarmOptions& options)
      : options_(options),
        config_(options.seed),
        random_(options.seed),
        faults_(config_, options.seed ^ 0x6661756c74),
        clients_(config_, options, faults_, &result_),
        machine_(io::MakeSimWorld(options.seed, config_.disk)) {
    // Memory that comes back from the kernel for every store would be most of the time.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
    result_.config = config_.ToString();
  }

  SwarmResult Run() {
    Furnish();
    while (Goes() && result_.operations < options_.operations && result_.lives < kLivesMax) Live();
    if (Goes()) End();
    Leave();
    result_.strikes = faults_.strikes();
    uint64_t hash = 0;
    for (const std::string& line : result_.trace) {
      hash = Hash(std::as_bytes(std::span(line))) ^ (hash * 0x9e3779b97f4a7c15);
    }
    result_.trace_hash = hash;
    return std::move(result_);
  }

 private:
  bool Goes() const { return result_.violation.empty() && !over_; }
  bool IsLied() const { return faults_.lied() && !options_.hides_lies; }
  void Violation(const std::string& what) { clients_.Violation(what); }

  Options StoreOptions() {
    Options options = config_.options;
    options.world = std::make_shared<const io::World>(machine_.world());
    options.listener = std::make_shared<EventListener>();
    options.listener->on_poisoned = [this](const Status&) { clients_.set_rolled_back(true); };
    return options;
  }

  // The disk of a new machine.
  void Furnish() {
    machine_.disk->set_trace(true);
    machine_.disk->set_drop_syncs(options_.drop_syncs);
    faults_.Strike(machine_.disk.get());
    machine_.disk->set_on_operation([this](const io::SimOperation& operation) {
      faults_.BeforeOperation(operation);
      if (operation.index == crash_at_) StrikeDown();
    });
  }

  void Leave() {
    machine_.disk->set_on_operation(nullptr);
    result_.disk_operations += machine_.disk->operations();
    const auto& trace = machine_.disk->trace();
    result_.trace.insert(result_.trace.end(), trace.begin(), trace.end());
    result_.trace.push_back("life " + std::to_string(result_.lives) + ": " +
                            std::to_string(machine_.scheduler->switches()) + " switches, hash " +
                            std::to_string(machine_.scheduler->schedule_hash()) + ", " +
                            std::to_string(machine_.scheduler->MonotonicNs()) + " ns");
  }

  void MoveTo(std::unique_ptr<io::SimDisk> disk, bool killed) {
    Leave();
    auto scheduler = std::make_shared<io::SimScheduler>(random_.Next());
    auto moved =
        killed ? disk->KillClone(scheduler.get())
               : disk->CrashClone({.seed = random_.Next(), .lost = 0, .torn = 0, .kept_mask = {}},
                                  scheduler.get());
    disk.reset();
    machine_.disk.reset();
    machine_ = {.scheduler = std::move(scheduler), .disk = std::move(moved)};
    Furnish();
  }

  // The power goes, or the process, before an operation. Running threads go on, on a machine that
  // does not matter any more.
  void StrikeDown() {
    if (struck_.has_value()) return;
    const bool kill =
        config_.has(Feature::kKill) && (!config_.has(Feature::kPowerLoss) || random_.Below(2) == 0);
    const io::SimDisk& disk = *machine_.disk;
    struck_.emplace();
    struck_->known = clients_.known();
    struck_->objects = clients_.objects();
    // Pages lost by a sync can be read as long as nothing takes them; here they are gone at once.
    struck_->killed = kill && !faults_.lost_sync();
    struck_->survived = Survives(struck_->killed);
    if (struck_->killed) {
      ++result_.kills;
      struck_->disk = disk.KillClone();
    } else if (kill) {
      ++result_.kills;
      struck_->disk = disk.CrashClone(io::CrashChoice::KeepAll());
    } else {
      ++result_.power_losses;
      io::CrashChoice choice;
      choice.seed = random_.Next();
      choice.lost = random_.Fraction();
      choice.torn = (1 - choice.lost) * random_.Fraction();
      choice.names_in_order = random_.Below(2) == 0;
      struck_->disk = disk.CrashClone(choice);
    }
    clients_.Stop();
  }

  // The promises that hold, including those of earlier lives whose end nobody saw.
  Durability Survives(bool killed) const {
    return killed && (judged_ || survived_ == Durability::kProcess) ? Durability::kProcess
                                                                    : Durability::kPower;
  }

  void Live() {
    ++result_.lives;
    judged_ = false;
    crash_at_ = UINT64_MAX;
    if (config_.has(Feature::kPowerLoss) || config_.has(Feature::kKill)) {
      // Often while the store is being opened, and often much later.
      crash_at_ = machine_.disk->operations() + random_.Below(uint64_t{8} << random_.Below(9));
    }
    bool closed = false;
    {
      std::atomic<uint32_t> over{0};
      auto watch = machine_.scheduler->StartThread("watch", [&] { Watch(&over); });
      std::optional<Store> store = Open(random_.Below(2) == 0);
      if (store.has_value()) {
        result_.resting += store->Metrics().log_resting_segments;
        std::optional<Status> status;
        if (Judge(*store)) status = Work(&*store);
        if (!status.has_value()) status = store->Close();
        closed = clients_.Tell(*status, "close") && status->ok();
        // Everything that was done is safe.
        if (closed) {
          clients_.known().Acknowledge(Version::kNever - 1, Durability::kPower);
          clients_.objects().Acknowledge(Version::kNever - 1, Durability::kPower);
        }
      }
      over.store(1);
      machine_.scheduler->WakeAll(over);
    }
    clients_.EndLife();
    if (struck_.has_value()) {
      Struck struck = std::move(*struck_);
      struck_.reset();
      over_ = false;
      clients_.known() = std::move(struck.known);
      clients_.objects() = std::move(struck.objects);
      survived_ = struck.survived;
      MoveTo(std::move(struck.disk), struck.killed);
    } else if (closed) {
      survived_ = Durability::kPower;
    } else if (Goes()) {
      const bool lost = faults_.lost_sync();
      survived_ = Survives(!lost);
      MoveTo(
          lost ? machine_.disk->CrashClone(io::CrashChoice::KeepAll()) : machine_.disk->KillClone(),
          !lost);
    }
  }

  void Watch(std::atomic<uint32_t>* over) {
    const uint64_t deadline = machine_.scheduler->MonotonicNs() + kHangNs;
    while (over->load() == 0) {
      if (machine_.scheduler->Wait(*over, 0, deadline)) continue;
      Violation("it hangs");
      return machine_.disk->ClearFaults();
    }
  }

  // Nothing: the run is over.
  std::optional<Store> Open(bool may_fail) {
    faults_.set_on(may_fail);
    for (int attempt = 1;; ++attempt) {
      clients_.set_rolled_back(false);
      auto store = Store::Open("store", StoreOptions());
      if (store.ok()) {
        made_ = true;
        return std::move(*store);
      }
      ++result_.refused_openings;
      const Status& status = store.status();
      // Opening it once more builds on pages that can be read and are lost all the same.
      if (faults_.lost_sync()) return std::nullopt;
      if (faults_.on() && attempt < kOpenings) continue;
      if (faults_.on()) {
        faults_.set_on(false);
        continue;
      }
      over_ = true;
      if (IsLied() && IsCorruption(status)) {
        if (!NamesAPlace(status)) Violation("open: " + status.ToString());
        Salvage();
      } else if (made_ || status.code() != StatusCode::kNoSpace) {
        Violation("open: " + status.ToString());
      }
      return std::nullopt;
    }
  }

  // Everything that can be read of a damaged store is right.
  void Salvage() {
    Options options = StoreOptions();
    options.create_if_missing = false;
    options.recovery = Recovery::kSetAside;
    const auto store = Store::Open("store", options);
    if (!store.ok()) {
      if (!IsCorruption(store.status())) Violation("salvage: " + store.status().ToString());
      return;
    }
    ++result_.salvages;
    const auto found = ReadAll(*store, true, &result_);
    if (!found.ok()) {
      // A table or segment that the part that was cut had given back.
      const bool gone =
          found.status().code() == StatusCode::kNotFound && NamesAPlace(found.status());
      if (!gone && !IsCorruption(found.status())) {
        Violation("salvaged: " + found.status().ToString());
      }
      return;
    }
    const std::string wrong = clients_.known().Compare(*found, Durability::kPower, true);
    if (!wrong.empty()) Violation("salvaged: " + wrong);
  }

  // Compares what the opened store holds with what it may hold; from now on that is it.
  bool Judge(const Store& store) {
    faults_.set_on(false);
    Result<FoundBranches> found = ReadAll(store, IsLied(), &result_);
    // KV may go while it is read.
    for (int again = 0; again < 20 && found.status().code() == StatusCode::kEvicted; ++again) {
      found = ReadAll(store, IsLied(), &result_);
    }
    std::string wrong = found.ok() ? clients_.AdoptObjects(store, survived_) : "";
    faults_.set_on(true);
    if (!found.ok()) {
      over_ = IsLied() && IsCorruption(found.status());
      if (!over_) Violation("opened, it cannot be read: " + found.status().ToString());
      return false;
    }
    if (wrong.empty()) wrong = clients_.known().Adopt(*found, survived_, IsLied());
    if (!wrong.empty()) Violation("opened, " + wrong);
    judged_ = true;
    return wrong.empty();
  }

  std::optional<Status> Work(Store* store) {
    const uint64_t operations = 1 + random_.Below(config_.life_operations_max);
    auto closed = clients_.Work(store, machine_.world(),
                                std::min(operations, options_.operations - result_.operations),
                                random_.Below(4) == 0);
    result_.poisoned += store->poisoned().code() == StatusCode::kPoisoned;
    return closed;
  }

  // The disk is well: all is complete, nothing is left over, and opening again changes nothing.
  void End() {
    ++result_.lives;
    crash_at_ = UINT64_MAX;
    machine_.disk->ClearFaults();
    std::optional<Store> store = Open(false);
    if (!store.has_value()) return;
    result_.resting += store->Metrics().log_resting_segments;
    const bool judged = Judge(*store);
    faults_.set_on(false);
    if (judged && !faults_.lied()) LookForLeaks(*store);
    const Status closed = store->Close();
    const bool full = closed.code() == StatusCode::kNoSpace && config_.has_small_room();
    if (!closed.ok() && !full && !faults_.lied()) Violation("the last close: " + closed.ToString());
  }

  std::set<std::string> NamesIn(const std::string& path) {
    const auto names = machine_.disk->List(path);
    CAIRN_CHECK(names.ok());
    return {names->begin(), names->end()};
  }

  // A copy has those tables that the store needs; there are to be no others.
  void LookForLeaks(Store& store) {
    std::string left;
    std::set<std::string> unneeded;  // The time before: the background may have made one meanwhile.
    for (int attempt = 0; attempt < 5; ++attempt) {
      const Status compacted = store.Compact();
      const std::string path = "leaks-" + std::to_string(attempt);
      const auto copied = compacted.ok() ? store.Checkpoint(path).status() : compacted;
      if (copied.code() == StatusCode::kNoSpace && config_.has_small_room()) return;
      if (!copied.ok()) return Violation("at the end: " + copied.ToString());
      left.clear();
      const auto needed = NamesIn(path + "/tables");
      std::set<std::string> unneeded_now;
      for (const std::string& name : NamesIn("store/tables")) {
        if (needed.contains(name)) continue;
        unneeded_now.insert(name);
        if (unneeded.contains(name)) left += " " + name;
      }
      unneeded.swap(unneeded_now);
      const StoreMetrics metrics = store.Metrics();
      auto log = NamesIn("store/log");
      std::erase_if(log, wal::IsCushionFileName);
      const auto segments = log.size();
      if (segments >
          metrics.log_segments + metrics.log_spare_segments + metrics.log_resting_segments) {
        left += " " + std::to_string(segments) + " segments for " +
                std::to_string(metrics.log_segments) + ", " +
                std::to_string(metrics.log_spare_segments) + " spare and " +
                std::to_string(metrics.log_resting_segments) + " resting ones";
      }
      uint64_t bytes = 0;
      for (const std::string& file : machine_.disk->Files()) {
        if (file.starts_with("store/")) bytes += machine_.disk->Info(file)->allocated_bytes;
      }
      if (bytes > metrics.physical_bytes) {
        left += " " + std::to_string(bytes) + " bytes where " +
                std::to_string(metrics.physical_bytes) + " are known";
      }
      if (left.empty() && unneeded.empty()) break;
      machine_.scheduler->Sleep(1'000'000'000);
    }
    ++result_.leak_checks;
    if (!left.empty()) Violation("left over:" + left);
  }

  const SwarmOptions options_;
  const SwarmConfig config_;
  SeededRandom random_;
  SwarmResult result_;
  SwarmFaults faults_;
  SwarmClients clients_;
  io::SimWorld machine_;
  std::optional<Struck> struck_;
  uint64_t crash_at_ = UINT64_MAX;  // The number of the operation.
  Durability survived_ = Durability::kPower;
  bool made_ = false;    // The store was opened once.
  bool judged_ = false;  // In this life, the content was compared with what it may be.
  bool over_ = false;
};

}  // namespace

void SwarmResult::Add(const SwarmResult& other) {
  operations += other.operations;
  disk_operations += other.disk_operations;
  lives += other.lives;
  power_losses += other.power_losses;
  kills += other.kills;
  poisoned += other.poisoned;
  refused_openings += other.refused_openings;
  salvages += other.salvages;
  refused += other.refused;
  cancelled += other.cancelled;
  reads += other.reads;
  copies += other.copies;
  follows += other.follows;
  finds += other.finds;
  found += other.found;
  objects_read += other.objects_read;
  leak_checks += other.leak_checks;
  resting += other.resting;
  damaged_reads += other.damaged_reads;
  for (size_t i = 0; i < kFeatures; ++i) strikes[i] += other.strikes[i];
}

std::string SwarmResult::Counts() const {
  const auto count = [](const char* what, uint64_t number) {
    return ", " + std::string(what) + " " + std::to_string(number);
  };
  std::string text = "operations " + std::to_string(operations);
  text += count("of the disk", disk_operations) + count("lives", lives) +
          count("power losses", power_losses) + count("kills", kills) +
          count("poisoned", poisoned) + count("refused openings", refused_openings) +
          count("salvages", salvages) + count("refused calls", refused) +
          count("cancelled", cancelled) + count("reads", reads) + count("copies", copies) +
          count("follows", follows) + count("finds", finds) + count("hits", found) +
          count("objects read", objects_read) + count("leak checks", leak_checks) +
          count("resting", resting) + count("damaged reads", damaged_reads) + "; strikes";
  for (size_t i = 0; i < kFeatures; ++i) {
    if (strikes[i] == 0) continue;
    text +=
        std::string(" ") + FeatureName(static_cast<Feature>(i)) + " " + std::to_string(strikes[i]);
  }
  return text;
}

SwarmResult RunSwarm(const SwarmOptions& options) { return Swarm(options).Run(); }

}  // namespace cairn::sim
