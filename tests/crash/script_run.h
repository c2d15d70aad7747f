// SPDX-License-Identifier: Apache-2.0
//
// A run of a small script on a simulated machine. The store must show the script's changes as far
// as it accepted them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/store.h"
#include "sim/world.h"
#include "tests/crash/history.h"

namespace cairn::crash {

class ScriptRun {
 public:
  // `possible`: what the store may hold; `made`: it exists.
  ScriptRun(io::SimWorld machine, Options options, std::vector<StoreState> possible, bool made,
            bool claim_memory)
      : machine_(std::move(machine)),
        options_(std::move(options)),
        made_before_(made),
        claim_memory_(claim_memory),
        before_(possible.begin(), possible.end() - 1),
        now_(possible.back()),
        possible_(std::move(possible)) {
    options_.world = std::make_shared<const io::World>(machine_.world());
    options_.listener = std::make_shared<EventListener>();
    options_.listener->on_poisoned = [this](const Status&) { rolled_back_ = true; };
  }

  // --- For scripts
  Options& options() { return options_; }
  Store& store() { return store_; }
  const StoreState& now() const { return now_; }

  bool Open();
  void Close();
  void Sleep();
  // Compares what the store shows with what it should.
  void Look();
  void Call(const Status& status) { Told(status); }
  void Flush();

  void Create(const std::string& name, bool mixed = false,
              Durability durability = Durability::kPower);
  // KV comes for all positions that have none, save for the newest `lag`.
  void Append(const std::string& name, uint64_t count, Durability durability, uint64_t lag = 0,
              bool asynchronous = false);
  // Asynchronous ones of one token each, in one record if the store coalesces them.
  void AppendCoalesced(const std::string& name, uint64_t count, Durability durability);
  void FillAll(const std::string& name);
  void Fork(const std::string& from, uint64_t position, const std::string& to);
  void Rewind(const std::string& name, uint64_t length);
  void Drop(const std::string& name);
  void Rename(const std::string& name, const std::string& to);
  // Appends to one branch and drops another: both or none.
  void WriteBoth(const std::string& grown, const std::string& dropped);
  void CommitDraft(const std::string& name, uint64_t count);
  // A copy that was reported made exists and holds what the store holds.
  void Copy(const std::string& path);
  // Another reader beside this store.
  void Follow();

  // --- For the test
  void Live(const std::function<void(ScriptRun&)>& script);
  // The disk is well again: what was promised survives, and the store works.
  void Judge();
  const std::string& violation() const { return violation_; }
  bool met_poison() const { return met_poison_; }
  bool met_refusal() const { return met_refusal_; }
  // The metrics of the store that is open, or was last.
  StoreMetrics metrics() const { return store_.core() != nullptr ? store_.Metrics() : metrics_; }

  // As long as nothing was refused: the states the store went through, the present one last, and
  // the first that may be found when the power is cut now.
  size_t states() const { return before_.size() + 1; }
  const StoreState& state(size_t index) const {
    return index < before_.size() ? before_[index] : now_;
  }
  size_t first_possible() const { return states() - possible_.size(); }
  // A checkpoint that was finished; empty: none.
  const std::string& copy() const { return copy_; }
  const StoreState& copied() const { return copied_; }

 private:
  using Name = StoreState::key_type;

  Name Find(const std::string& name) const;
  bool IsPoisoned() const { return store_.poisoned().code() == StatusCode::kPoisoned; }
  bool IsWritable() const { return store_.core() != nullptr && !IsPoisoned(); }
  bool IsPossible(const StoreState& state) const;
  void Certain() { possible_ = {now_}; }
  KvMemory Grow(BranchState* state, uint64_t count, uint64_t lag);
  template <typename Body>
  void Change(const Name& key, StoreState next, Body&& body);
  // Notes what a call said. Whether it was yes.
  bool Told(const Status& status);
  // A change ended so. `writable`: it was not poisoned when the call began.
  void Settle(StoreState next, Durability durability, bool writable, const Status& status);
  void Look(bool must);
  // Until then one half of what is read may be of before and the other of after.
  void WaitForRollBack();
  void JudgeCrash(const io::CrashChoice& choice, const std::string& when);
  void Fail(const std::string& what);

  const io::SimWorld machine_;
  Options options_;
  const bool made_before_, claim_memory_;
  Store store_;
  StoreMetrics metrics_;  // When it was closed last.
  std::vector<StoreState> before_;
  StoreState now_;  // After all that was said yes to.
  // States that may be found when it is opened again: all since the last acknowledgement at kPower.
  std::vector<StoreState> possible_;
  std::string copy_;
  StoreState copied_;
  uint64_t next_token_ = 0;
  bool met_poison_ = false, met_refusal_ = false;
  bool rolled_back_ = false;  // After the log failed: what is read does not change any more.
  std::string violation_;
};

}  // namespace cairn::crash
