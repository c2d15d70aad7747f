// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/script_run.h"

#include <algorithm>
#include <atomic>

#include "base/core/check.h"

namespace cairn::crash {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
// Virtual time after which a script hangs.
constexpr uint64_t kHangNs = 3'600 * kSecond;

bool IsWrongContent(const Status& status) {
  return status.message().find(kWrongContent) != std::string_view::npos;
}

}  // namespace

template <typename Body>
void ScriptRun::Change(const Name& key, StoreState next, Body&& body) {
  const bool writable = IsWritable();
  auto branch = store_.FindBranch(key.second, key.first);
  if (!Told(branch.status())) return;
  Settle(std::move(next), Durability::kPower, writable, body(*branch));
}

bool ScriptRun::Open() {
  rolled_back_ = false;
  auto opened = Store::Open("store", options_);
  if (!Told(opened.status())) return false;
  store_ = std::move(*opened);
  const auto state = ReadStore(store_);
  if (!Told(state.status())) {  // Then nobody knows what it shows.
    static_cast<void>(store_.Close());
    store_ = Store();
    return false;
  }
  if (!IsPossible(*state)) Fail("opened, it holds something else");
  now_ = *state;
  if (!options_.read_only) Certain();  // Opening made it durable.
  return true;
}

void ScriptRun::Close() {
  const bool writes = store_.core() != nullptr && !options_.read_only;
  metrics_ = store_.Metrics();
  // Unacknowledged changes may be lost when closing fails.
  if (Told(store_.Close()) && writes) Certain();
  store_ = Store();
}

void ScriptRun::Sleep() { machine_.scheduler->Sleep(kSecond / 2); }

void ScriptRun::WaitForRollBack() {
  constexpr uint64_t kStepNs = 1'000'000;
  const uint64_t deadline_ns = machine_.scheduler->MonotonicNs() + kHangNs;
  while (IsPoisoned() && !rolled_back_) {
    machine_.scheduler->Sleep(kStepNs);
    if (machine_.scheduler->MonotonicNs() > deadline_ns) return Fail("it is never rolled back");
  }
}

void ScriptRun::Look() {
  if (store_.core() == nullptr) return;
  WaitForRollBack();
  const auto state = ReadStore(store_);
  if (!state.ok()) {
    if (IsWrongContent(state.status())) Fail(state.status().ToString());
    Told(state.status());
  } else if (!(*state == now_) && !(IsPoisoned() && IsPossible(*state))) {
    Fail("the store shows something else");
  }
}

void ScriptRun::Flush() {
  if (Told(store_.Flush())) Certain();
}

void ScriptRun::Create(const std::string& name, bool mixed, Durability durability) {
  StoreState next = now_;
  BranchState& state = next[{mixed ? "m" : "", name}];
  state.mixed = mixed;
  state.kv_lengths.resize(state.model().groups.size());
  const bool writable = IsWritable();
  const auto model = store_.RegisterModel(state.model());
  if (!Told(model.status())) return;
  Settle(
      std::move(next), durability, writable,
      store_.CreateBranch(*model, {.name = name, .ns = mixed ? "m" : "", .durability = durability})
          .status());
}

void ScriptRun::Append(const std::string& name, uint64_t count, Durability durability, uint64_t lag,
                       bool asynchronous) {
  const Name key = Find(name);
  if (!now_.contains(key)) return;
  StoreState next = now_;
  BranchState& state = next[key];
  const KvMemory kv = Grow(&state, count, lag);
  const auto tokens = std::span(state.tokens).last(count);
  const bool writable = IsWritable();
  auto branch = store_.FindBranch(key.second, key.first);
  if (!Told(branch.status())) return;
  const Delta delta{.tokens = tokens, .kv = kv.view(), .exact = state.exact()};
  if (!asynchronous) {
    Settle(std::move(next), durability, writable,
           branch->AppendSync(delta, {.durability = durability}).status());
    return;
  }
  auto ticket = branch->Append(delta, {.durability = durability});
  Settle(std::move(next), durability, writable, ticket.ok() ? ticket->Wait() : ticket.status());
}

void ScriptRun::AppendCoalesced(const std::string& name, uint64_t count, Durability durability) {
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
    auto ticket = branch->Append(
        {.tokens = std::span(state.tokens).last(1), .kv = kv.view(), .exact = state.exact()},
        {.durability = durability});
    if (!Told(ticket.status())) break;
    next = std::move(grown);
    tickets.emplace_back(next, std::move(*ticket));
  }
  for (auto& [state, ticket] : tickets) Settle(state, durability, writable, ticket.Wait());
}

void ScriptRun::FillAll(const std::string& name) {
  const Name key = Find(name);
  if (!now_.contains(key) || now_[key].tokens.empty()) return;
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

void ScriptRun::Fork(const std::string& from, uint64_t position, const std::string& to) {
  const Name key = Find(from);
  if (!now_.contains(key) || now_[key].tokens.size() < position) return;
  StoreState next = now_;
  BranchState state = next[key];
  state.Cut(position);
  next[{key.first, to}] = state;
  Change(key, std::move(next), [&](Branch& branch) {
    return branch.ForkAt(position, {.name = to, .ns = key.first, .durability = Durability::kPower})
        .status();
  });
}

void ScriptRun::Rewind(const std::string& name, uint64_t length) {
  const Name key = Find(name);
  if (!now_.contains(key) || now_[key].tokens.size() < length) return;
  StoreState next = now_;
  next[key].Cut(length);
  Change(key, std::move(next),
         [&](Branch& branch) { return branch.Rewind(length, Durability::kPower); });
}

void ScriptRun::Drop(const std::string& name) {
  const Name key = Find(name);
  if (!now_.contains(key)) return;
  StoreState next = now_;
  next.erase(key);
  Change(key, std::move(next), [&](Branch& branch) { return branch.Drop(Durability::kPower); });
}

void ScriptRun::Rename(const std::string& name, const std::string& to) {
  const Name key = Find(name);
  if (!now_.contains(key)) return;
  StoreState next = now_;
  auto moved = next.extract(key);
  moved.key() = Name{key.first, to};
  next.insert(std::move(moved));
  Change(key, std::move(next),
         [&](Branch& branch) { return branch.Rename(to, Durability::kPower); });
}

void ScriptRun::WriteBoth(const std::string& grown, const std::string& dropped) {
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

void ScriptRun::CommitDraft(const std::string& name, uint64_t count) {
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

void ScriptRun::Copy(const std::string& path) {
  if (!Told(store_.Checkpoint(path).status())) return;
  copy_ = path;
  copied_ = now_;
}

void ScriptRun::Follow() {
  Options options = options_;
  options.listener = nullptr;
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

void ScriptRun::Live(const std::function<void(ScriptRun&)>& script) {
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

void ScriptRun::Judge() {
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
  // Later acknowledgements must not depend on what the disk lost before.
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

ScriptRun::Name ScriptRun::Find(const std::string& name) const {
  return now_.contains({"m", name}) ? Name{"m", name} : Name{"", name};
}

bool ScriptRun::IsPossible(const StoreState& state) const {
  return state == now_ || std::find(possible_.begin(), possible_.end(), state) != possible_.end();
}

KvMemory ScriptRun::Grow(BranchState* state, uint64_t count, uint64_t lag) {
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

bool ScriptRun::Told(const Status& status) {
  if (status.ok()) return true;
  met_refusal_ = true;
  if (status.message().empty()) Fail("an error without a word");
  if (IsWrongContent(status)) Fail(status.ToString());
  return false;
}

void ScriptRun::Settle(StoreState next, Durability durability, bool writable,
                       const Status& status) {
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

void ScriptRun::Look(bool must) {
  if (store_.core() == nullptr || options_.read_only) return;
  if (store_.poisoned().code() == StatusCode::kInvalidState) return;  // Closed.
  WaitForRollBack();
  const auto state = ReadStore(store_);
  if (!state.ok() && must) return Fail("the disk is well, but: " + state.status().ToString());
  Look();
}

void ScriptRun::JudgeCrash(const io::CrashChoice& choice, const std::string& when) {
  const io::SimWorld found = io::CrashWorld(*machine_.disk, choice);
  Options options = options_;
  options.listener = nullptr;
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

void ScriptRun::Fail(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

}  // namespace cairn::crash
