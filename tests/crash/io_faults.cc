// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/io_faults.h"

#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/core/check.h"
#include "base/io/sim_world.h"
#include "tests/crash/history.h"
#include "tests/support/test_store.h"

namespace cairn::crash {
namespace {

using Name = StoreState::key_type;

constexpr uint64_t kSecond = 1'000'000'000;
// Virtual time after which a script hangs. A stuck operation takes twenty seconds, ...
constexpr uint64_t kHangNs = 3'600 * kSecond;
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

Options SmallOptions() {
  Options options = testing::TinyOptions();
  options.spare_segments_max = 1;
  options.max_memory_bytes = 16 << 20;
  options.hot_tail_bytes = 256 << 10;
  options.executor_threads = 1;
  return options;
}

bool IsWrongContent(const Status& status) {
  return status.message().find(kWrongContent) != std::string_view::npos;
}

// One run of a script. What it does is expected of the store, as far as the store says yes.
class Run {
 public:
  // `made`: the store is there, without branches.
  Run(io::SimWorld machine, Options options, bool made, bool claim_memory)
      : machine_(std::move(machine)),
        options_(std::move(options)),
        made_before_(made),
        claim_memory_(claim_memory) {
    options_.world = std::make_shared<const io::World>(machine_.world());
  }

  // --- What scripts do
  Options& options() { return options_; }
  Store& store() { return store_; }
  const StoreState& now() const { return now_; }

  bool Open() {
    auto opened = Store::Open("store", options_);
    if (!Told(opened.status())) return false;
    store_ = std::move(*opened);
    const auto state = ReadStore(store_);
    if (Told(state.status())) {
      if (!IsPossible(*state)) Fail("opened, it holds something else");
      now_ = *state;
    }
    return state.ok();
  }
  void Close() {
    const bool writes = store_.core() != nullptr && !options_.read_only;
    // What was applied and not acknowledged may be lost when closing fails.
    if (Told(store_.Close()) && writes) Certain();
    store_ = Store();
  }
  void Sleep() { machine_.scheduler->Sleep(kSecond / 2); }
  // Compares what the store shows with what it should.
  void Look() {
    if (store_.core() == nullptr) return;
    const auto state = ReadStore(store_);
    if (!state.ok()) {
      if (IsWrongContent(state.status())) Fail(state.status().ToString());
      Told(state.status());
    } else if (!(*state == now_) && !(IsPoisoned() && IsPossible(*state))) {
      Fail("the store shows something else");
    }
  }
  void Call(const Status& status) { Told(status); }
  void Flush() {
    if (Told(store_.Flush())) Certain();
  }

  void Create(const std::string& name, bool mixed = false,
              Durability durability = Durability::kPower) {
    StoreState next = now_;
    BranchState& state = next[{mixed ? "m" : "", name}];
    state.mixed = mixed;
    state.kv_lengths.resize(state.model().groups.size());
    const bool writable = IsWritable();
    const auto model = store_.RegisterModel(state.model());
    if (!Told(model.status())) return;
    Settle(
        std::move(next), durability, writable,
        store_
            .CreateBranch(*model, {.name = name, .ns = mixed ? "m" : "", .durability = durability})
            .status());
  }

  // KV comes for all positions that have none, save for the newest `lag`.
  void Append(const std::string& name, uint64_t count, Durability durability, uint64_t lag = 0,
              bool asynchronous = false) {
    const Name key = Find(name);
    if (!now_.contains(key)) return;
    StoreState next = now_;
    BranchState& state = next[key];
    const KvMemory kv = Grow(&state, count, lag);
    const auto tokens = std::span(state.tokens).last(count);
    const bool writable = IsWritable();
    auto branch = store_.FindBranch(key.second, key.first);
    if (!Told(branch.status())) return;
    const Delta delta{.tokens = tokens, .kv = kv.view()};
    if (!asynchronous) {
      Settle(std::move(next), durability, writable,
             branch->AppendSync(delta, {.durability = durability}).status());
      return;
    }
    auto ticket = branch->Append(delta, {.durability = durability});
    Settle(std::move(next), durability, writable, ticket.ok() ? ticket->Wait() : ticket.status());
  }

  // Asynchronous ones of one token each, in one record if the store joins them.
  void AppendJoined(const std::string& name, uint64_t count, Durability durability) {
    const Name key = Find(name);
    if (!now_.contains(key)) return;
    auto branch = store_.FindBranch(key.second, key.first);
    if (!Told(branch.status())) return;
    const bool writable = IsWritable();
    std::vector<std::pair<StoreState, Ticket>> tickets;
    StoreState next = now_;
    for (; count > 0; --count) {
      StoreState grown = next;
      BranchState& state = grown[key];
      const KvMemory kv = Grow(&state, 1, 0);
      auto ticket = branch->Append({.tokens = std::span(state.tokens).last(1), .kv = kv.view()},
                                   {.durability = durability});
      if (!Told(ticket.status())) break;
      next = std::move(grown);
      tickets.emplace_back(next, std::move(*ticket));
    }
    for (auto& [state, ticket] : tickets) Settle(state, durability, writable, ticket.Wait());
  }

  void FillAll(const std::string& name) {
    const Name key = Find(name);
    if (!now_.contains(key)) return;
    StoreState next = now_;
    BranchState& state = next[key];
    const uint64_t length = state.tokens.size();
    KvMemory kv(TinyModel(), 0, length);
    kv.Fill(state.tokens);
    state.kv_lengths[0] = length;
    const bool writable = IsWritable();
    auto branch = store_.FindBranch(key.second, key.first);
    if (!Told(branch.status())) return;
    Settle(std::move(next), Durability::kProcess, writable, branch->Fill(*kv.view()));
  }

  void Fork(const std::string& from, uint64_t position, const std::string& to) {
    const Name key = Find(from);
    if (!now_.contains(key) || now_[key].tokens.size() < position) return;
    StoreState next = now_;
    BranchState state = next[key];
    state.Cut(position);
    next[{key.first, to}] = state;
    Change(key, std::move(next), [&](Branch& branch) {
      return branch
          .ForkAt(position, {.name = to, .ns = key.first, .durability = Durability::kPower})
          .status();
    });
  }
  void Rewind(const std::string& name, uint64_t length) {
    const Name key = Find(name);
    if (!now_.contains(key) || now_[key].tokens.size() < length) return;
    StoreState next = now_;
    next[key].Cut(length);
    Change(key, std::move(next),
           [&](Branch& branch) { return branch.Rewind(length, Durability::kPower); });
  }
  void Drop(const std::string& name) {
    const Name key = Find(name);
    if (!now_.contains(key)) return;
    StoreState next = now_;
    next.erase(key);
    Change(key, std::move(next), [&](Branch& branch) { return branch.Drop(Durability::kPower); });
  }
  void Rename(const std::string& name, const std::string& to) {
    const Name key = Find(name);
    if (!now_.contains(key)) return;
    StoreState next = now_;
    auto moved = next.extract(key);
    moved.key() = Name{key.first, to};
    next.insert(std::move(moved));
    Change(key, std::move(next),
           [&](Branch& branch) { return branch.Rename(to, Durability::kPower); });
  }
  // Appends to one branch and drops another: both or none.
  void WriteBoth(const std::string& grown, const std::string& dropped) {
    const Name one = Find(grown), two = Find(dropped);
    if (!now_.contains(one) || !now_.contains(two)) return;
    StoreState next = now_;
    next[one].tokens.push_back(7);
    next.erase(two);
    const bool writable = IsWritable();
    auto first = store_.FindBranch(one.second, one.first);
    auto second = store_.FindBranch(two.second, two.first);
    if (!Told(first.status()) || !Told(second.status())) return;
    WriteBatch batch;
    batch.Append(*first, {.tokens = std::span(next[one].tokens).last(1)});
    batch.Drop(*second);
    auto result = store_.Write(batch, {.durability = Durability::kPower});
    Settle(std::move(next), Durability::kPower, writable,
           result.ok() ? result->ticket.Wait() : result.status());
  }
  void CommitDraft(const std::string& name, uint64_t count) {
    const Name key = Find(name);
    if (!now_.contains(key)) return;
    StoreState next = now_;
    BranchState& state = next[key];
    const uint64_t begin = state.kv_lengths[0];
    const KvMemory kv = Grow(&state, count, 0);
    const bool writable = IsWritable();
    auto branch = store_.FindBranch(key.second, key.first);
    if (!Told(branch.status())) return;
    auto draft = branch->BeginAppend(count);
    if (!Told(draft.status())) return;
    for (uint32_t layer = 0; layer < TinyModel().groups[0].layers; ++layer) {
      GroupView group = kv.view()->groups[0];
      CAIRN_CHECK(group.position == begin);
      std::vector<PlaneView> planes(group.planes.begin(), group.planes.end());
      for (PlaneView& plane : planes) plane.layer_bases = plane.layer_bases.subspan(layer, 1);
      group.planes = planes;
      if (!Told(draft->Put(layer, group))) return;
    }
    auto ticket = draft->Commit({.tokens = std::span(state.tokens).last(count)},
                                {.durability = Durability::kPower});
    Settle(std::move(next), Durability::kPower, writable,
           ticket.ok() ? ticket->Wait() : ticket.status());
  }
  // A copy that is said to be made is there and holds what the store holds.
  void Copy(const std::string& path) {
    if (!Told(store_.Checkpoint(path).status())) return;
    copy_ = path;
    copied_ = now_;
  }
  // Another reader beside this store.
  void Follow() {
    Options options = options_;
    options.create_if_missing = false;
    options.read_only = true;
    auto follower = Store::Open("store", options);
    if (!Told(follower.status())) return;
    for (int i = 0; i < 2; ++i) {
      const auto state = ReadStore(*follower);
      if (state.ok() && std::find(before_.begin(), before_.end(), *state) == before_.end() &&
          !IsPossible(*state)) {
        Fail("a follower shows something else");
      }
      Told(state.status());
      Told(follower->Refresh().status());
    }
  }

  // --- What the test does with it
  void Live(const std::function<void(Run&)>& script) {
    std::atomic<uint32_t> over{0};
    auto watch = machine_.scheduler->StartThread("watch", [&] {
      const uint64_t deadline = machine_.scheduler->MonotonicNs() + kHangNs;
      while (over.load() == 0) {
        if (machine_.scheduler->Wait(over, 0, deadline)) continue;
        Fail("it hangs");
        return machine_.disk->ClearFaults();
      }
    });
    script(*this);
    over.store(1);
    machine_.scheduler->WakeAll(over);
  }
  // The disk is well again: what was promised is there, and the store works.
  void Judge() {
    options_.read_only = false;
    options_.create_if_missing = true;
    machine_.disk->ClearFaults();
    met_poison_ = met_poison_ || (store_.core() != nullptr && IsPoisoned());
    Look(/*must=*/true);
    JudgeCrash(io::CrashChoice::LoseAll(), "power lost");
    JudgeCrash(io::CrashChoice::Seeded(now_.size()), "power lost, some kept");
    if (store_.core() != nullptr) static_cast<void>(store_.Close());
    store_ = Store();
    auto store = Store::Open("store", options_);
    if (!store.ok()) return Fail("opened again: " + store.status().ToString());
    const auto state = ReadStore(*store);
    if (!state.ok()) return Fail("read again: " + state.status().ToString());
    if (!IsPossible(*state)) return Fail("opened again, it holds something else");
    // What is acknowledged from now on must not depend on what the disk lost before.
    store_ = std::move(*store);
    now_ = *state;
    Certain();
    possible_.clear();
    for (int attempt = 0; attempt < 100 && possible_.empty(); ++attempt) {
      Create("after", false);
      if (possible_.empty()) Sleep();
    }
    if (possible_.empty()) return Fail("opened again, it refuses to write");
    JudgeCrash(io::CrashChoice::LoseAll(), "power lost after it was opened again");
    static_cast<void>(store_.Close());
    store_ = Store();
  }
  const std::string& violation() const { return violation_; }
  bool met_poison() const { return met_poison_; }
  bool met_refusal() const { return met_refusal_; }

 private:
  Name Find(const std::string& name) const {
    return now_.contains({"m", name}) ? Name{"m", name} : Name{"", name};
  }
  bool IsPoisoned() const { return store_.poisoned().code() == StatusCode::kPoisoned; }
  bool IsWritable() const { return store_.core() != nullptr && !IsPoisoned(); }
  bool IsPossible(const StoreState& state) const {
    return state == now_ || std::find(possible_.begin(), possible_.end(), state) != possible_.end();
  }
  void Certain() { possible_ = {now_}; }

  KvMemory Grow(BranchState* state, uint64_t count, uint64_t lag) {
    for (uint64_t i = 0; i < count; ++i) {
      state->tokens.push_back(static_cast<TokenId>(++next_token_ * 7919 % 50'000));
    }
    const uint64_t end = state->tokens.size() - lag;
    std::vector<KvMemory::Range> ranges;
    for (size_t group = 0; group < state->kv_lengths.size(); ++group) {
      uint64_t begin = std::min(state->kv_lengths[group], end);
      if (group == 2 && begin < end) state->rows.insert(begin = end - 1);
      ranges.push_back({begin, end - begin});
      state->kv_lengths[group] = std::max(state->kv_lengths[group], end);
    }
    KvMemory kv(state->model(), std::move(ranges));
    kv.Fill(state->tokens);
    return kv;
  }

  template <typename Body>
  void Change(const Name& key, StoreState next, Body&& body) {
    const bool writable = IsWritable();
    auto branch = store_.FindBranch(key.second, key.first);
    if (!Told(branch.status())) return;
    Settle(std::move(next), Durability::kPower, writable, body(*branch));
  }

  // Notes what a call said. Whether it was yes.
  bool Told(const Status& status) {
    if (status.ok()) return true;
    met_refusal_ = true;
    if (status.message().empty()) Fail("an error without a word");
    if (IsWrongContent(status)) Fail(status.ToString());
    return false;
  }

  // A change ended so. `writable`: it was not poisoned when the call began.
  void Settle(StoreState next, Durability durability, bool writable, const Status& status) {
    if (Told(status)) {
      before_.push_back(std::exchange(now_, std::move(next)));
      if (durability == Durability::kPower || claim_memory_) return Certain();
      possible_.push_back(now_);
      return;
    }
    // Only these two leave it open whether it happened.
    const bool open =
        status.code() == StatusCode::kUnknownOutcome || status.code() == StatusCode::kPoisoned;
    if (open && writable) possible_.push_back(std::move(next));
  }

  void Look(bool must) {
    if (store_.core() == nullptr || options_.read_only) return;
    if (store_.poisoned().code() == StatusCode::kInvalidState) return;  // Closed.
    const auto state = ReadStore(store_);
    if (!state.ok() && must) return Fail("the disk is well, but: " + state.status().ToString());
    Look();
  }

  void JudgeCrash(const io::CrashChoice& choice, const std::string& when) {
    const io::SimWorld found = io::CrashWorld(*machine_.disk, choice);
    Options options = options_;
    options.world = std::make_shared<const io::World>(found.world());
    // Before a store was made there is none; else reading it is the quicker way to see what it has.
    options.create_if_missing = false;
    options.read_only = true;
    auto store = Store::Open("store", options);
    if (!store.ok() && !made_before_ && store.status().code() == StatusCode::kNotFound &&
        IsPossible({})) {
      return;
    }
    if (!store.ok()) return Fail(when + ", open: " + store.status().ToString());
    const auto state = ReadStore(*store);
    if (!state.ok()) return Fail(when + ", read: " + state.status().ToString());
    if (!IsPossible(*state)) return Fail(when + ": what was acknowledged is lost, or never was");
    if (copy_.empty()) return;
    auto copy = Store::Open(copy_, options);
    if (!copy.ok()) return Fail(when + ", the copy: " + copy.status().ToString());
    const auto copied = ReadStore(*copy);
    if (!copied.ok()) return Fail(when + ", the copy: " + copied.status().ToString());
    if (!(*copied == copied_)) return Fail(when + ": the copy holds something else");
  }

  void Fail(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }

  const io::SimWorld machine_;
  Options options_;
  const bool made_before_, claim_memory_;
  Store store_;
  std::vector<StoreState> before_;
  StoreState now_;  // After all that was said yes to.
  // What may be found when it is opened again: all since the last acknowledgement at kPower.
  std::vector<StoreState> possible_{{}};
  std::string copy_;
  StoreState copied_;
  uint64_t next_token_ = 0;
  bool met_poison_ = false, met_refusal_ = false;
  std::string violation_;
};

struct Script {
  const char* name;
  std::function<void(Options&)> configure;
  std::function<void(Run&)> body;
  bool makes_store = false;
};

constexpr Durability kMemory = Durability::kMemory, kProcess = Durability::kProcess,
                     kPower = Durability::kPower;

void Nothing(Options&) {}

// Opens the store and puts two branches into it.
bool Begin(Run& run) {
  if (!run.Open()) return false;
  run.Create("a");
  run.Create("b", false, kProcess);
  return true;
}

std::vector<Script> Scripts() {
  std::vector<Script> scripts;
  const auto add = [&](const char* name, std::function<void(Options&)> configure,
                       std::function<void(Run&)> body) {
    scripts.push_back({name, std::move(configure), std::move(body), scripts.empty()});
  };
  add("create", Nothing, [](Run& run) {
    if (!run.Open()) return;
    run.Create("a");
    run.Create("mixed", true);
    run.Close();
  });
  add("append", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    for (const Durability level : {kMemory, kPower, kProcess, kMemory, kPower, kMemory}) {
      run.Append("a", 3, level, 1);
    }
    run.Look();
  });
  add(
      "joined", [](Options& options) { options.delta_batch_tokens = 4; },
      [](Run& run) {
        if (!Begin(run)) return;
        run.AppendJoined("a", 6, kPower);
        run.AppendJoined("b", 3, kProcess);
        run.Append("a", 2, kPower);
        run.Look();
      });
  add(
      "ingest", [](Options& options) { options.direct_ingest_bytes = 8 << 10; },
      [](Run& run) {
        if (!Begin(run)) return;
        run.Append("a", 2, kMemory);
        run.Append("a", 150, kPower);
        run.Append("b", 120, kProcess, 0, true);
        run.Append("a", 1, kPower);
        run.Look();
      });
  add(
      "parts", [](Options& options) { options.submit_copy_max_bytes = 4096; },
      [](Run& run) {
        if (!Begin(run)) return;
        run.Append("a", 150, kPower, 0, true);
        run.Append("b", 100, kMemory, 0, true);
        run.Append("a", 1, kPower);
        run.Look();
      });
  add("fill", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Append("a", 20, kPower, 20);
    run.FillAll("a");
    run.Append("a", 5, kPower, 3);
    run.FillAll("a");
    run.Flush();
    run.Look();
  });
  add("tree", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Append("a", 8, kPower);
    run.Fork("a", 5, "c");
    run.Append("c", 2, kMemory);
    run.Rewind("a", 6);
    run.Rename("b", "d");
    run.Drop("a");
    run.Append("c", 2, kPower);
    run.Look();
  });
  add("batch", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Append("b", 4, kMemory);
    run.WriteBoth("b", "a");
    run.Create("a");
    run.WriteBoth("a", "b");
    run.Look();
  });
  add("draft", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.CommitDraft("a", 5);
    run.CommitDraft("a", 1);
    run.Look();
  });
  add(
      "seal",
      [](Options& options) {
        options.max_delta_chain = 2;
        options.log_bytes_max = 4 * options.segment_bytes;
      },
      [](Run& run) {
        if (!Begin(run)) return;
        for (int i = 0; i < 4; ++i) run.Append(i % 2 == 0 ? "a" : "b", 60, kPower);
        run.Sleep();
        run.Look();
        run.Append("a", 2, kPower);
      });
  add("compact", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Append("a", 30, kPower);
    run.Append("b", 10, kMemory);
    run.Call(run.store().Compact());
    run.Look();
    run.Append("a", 2, kPower);
    run.Call(run.store().Compact());
    run.Close();
  });
  add("joined nodes", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Append("a", 10, kPower);
    run.Fork("a", 8, "c");
    run.Append("c", 4, kPower);
    run.Drop("a");
    run.Call(run.store().Compact());
    run.Rewind("c", 9);
    run.Look();
  });
  add(
      "retire", [](Options& options) { options.log_bytes_max = 4 * options.segment_bytes; },
      [](Run& run) {
        if (!Begin(run)) return;
        for (int i = 0; i < 7; ++i) {
          run.Append("a", 1000, kProcess);
          if (i % 3 == 2) run.Rewind("a", 10);
        }
        run.Sleep();
        run.Append("b", 3, kPower);
      });
  add("evict", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Call(run.store().SetNamespace("", {.max_bytes = 30'000, .evict = Evict::kKv}));
    run.Append("a", 100, kPower);
    run.Append("b", 100, kPower);
    run.Append("a", 100, kPower);
    run.Look();
    run.FillAll("b");
  });
  add("quota", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Call(run.store().SetNamespace("", {.max_bytes = 20'000}));
    run.Append("a", 100, kPower);
    run.Append("b", 100, kPower);
    run.Drop("a");
    run.Append("b", 10, kPower);
    run.Look();
  });
  add("checkpoint", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Append("a", 30, kMemory);
    run.Call(run.store().Compact());
    run.Append("b", 5, kMemory);
    run.Copy("copy");
    run.Append("b", 5, kPower);
  });
  add("follower", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Append("a", 30, kPower);
    run.Follow();
    run.Call(run.store().Compact());
    run.Append("b", 5, kPower);
    run.Follow();
  });
  add("read the log", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Append("a", 40, kPower);
    run.Close();
    if (run.Open()) run.Look();
  });
  add("read tables", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Append("a", 40, kPower);
    run.Append("b", 40, kPower);
    run.Call(run.store().Compact());
    run.Close();
    if (!run.Open()) return;
    const auto branch = run.store().FindBranch("a");
    run.Call(branch.status());
    if (branch.ok()) run.Call(branch->Prefetch());
    run.Look();
    run.Look();
  });
  add(
      "reopen", [](Options& options) { options.replay_records_max = 2; },
      [](Run& run) {
        if (!Begin(run)) return;
        for (int i = 0; i < 3; ++i) {
          run.Append("a", 3, kMemory);
          run.Append("b", 2, kPower);
          run.Close();
          if (!run.Open()) return;
        }
        run.Look();
      });
  add("read only", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Append("a", 10, kPower);
    run.Close();
    run.options().create_if_missing = false;
    run.options().read_only = true;
    if (!run.Open()) return;
    run.Look();
    run.Call(run.store().Refresh().status());
    run.Close();
  });
  add("mixed", Nothing, [](Run& run) {
    if (!Begin(run)) return;
    run.Create("m", true);
    run.Append("m", 9, kPower);
    run.Append("m", 4, kMemory, 1);
    run.Fork("m", 9, "n");
    run.Call(run.store().Compact());
    run.Append("m", 3, kPower);
    run.Look();
  });
  return scripts;
}

class IoFaults {
 public:
  explicit IoFaults(const IoFaultsOptions& options) : options_(options) {
    // As in power_loss.cc: buffers that come back from the kernel are most of the time.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
  }

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
    result_.indexes += operations.size();
    for (const Kind kind : kKinds) {
      for (const bool persistent : {false, true}) {
        bool met = true;
        for (uint64_t at = (static_cast<uint64_t>(kind) + persistent) % options_.stride;
             met && result_.violation.empty(); at += options_.stride) {
          // Up to its fault a run does what the one without does.
          if (at < operations.size() && !Fits(kind, operations[at])) continue;
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
        }
      }
    }
  }

  // How many faults struck.
  uint64_t RunOnce(const Script& script, const std::string& what,
                   const std::function<void(io::SimDisk&)>& prepare) {
    Options options = SmallOptions();
    script.configure(options);
    const io::SimWorld machine =
        script.makes_store ? io::MakeSimWorld(1)
                           : io::CrashWorld(MadeStore(), io::CrashChoice::KeepAll(), true);
    prepare(*machine.disk);
    uint64_t struck = 0;
    {
      Run run(machine, options, !script.makes_store, options_.claim_memory);
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

  // A disk with a store that has both models and no branch.
  const io::SimDisk& MadeStore() {
    if (made_store_ == nullptr) {
      const io::SimWorld machine = io::MakeSimWorld(1);
      Options options = SmallOptions();
      options.world = std::make_shared<const io::World>(machine.world());
      {
        auto store = Store::Open("store", options);
        CAIRN_CHECK(store.ok());
        for (const ModelSpec& model : {TinyModel(), MixedModel()}) {
          CAIRN_CHECK(store->RegisterModel(model).ok());
        }
        CAIRN_CHECK(store->Close().ok());
      }
      made_store_ = machine.disk->CrashClone(io::CrashChoice::KeepAll());
    }
    return *made_store_;
  }

  const IoFaultsOptions options_;
  std::unique_ptr<io::SimDisk> made_store_;
  IoFaultsResult result_;
};

}  // namespace

std::vector<std::string> IoFaultScripts() {
  std::vector<std::string> names;
  for (const Script& script : Scripts()) names.push_back(script.name);
  return names;
}

IoFaultsResult RunIoFaults(const IoFaultsOptions& options) { return IoFaults(options).Sweep(); }

std::string Counts(const IoFaultsResult& result) {
  return "fault runs " + std::to_string(result.runs) + ", indexes " +
         std::to_string(result.indexes) + ", poisoned " + std::to_string(result.poisoned) +
         ", refused " + std::to_string(result.refused) + ", unnoticed " +
         std::to_string(result.unnoticed);
}

}  // namespace cairn::crash
