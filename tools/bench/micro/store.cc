// SPDX-License-Identifier: Apache-2.0
//
// A whole store in memory: one append at kMemory, a durable one with and without the index of
// prefixes, one restore, one fork. No disk is in it, so this is what the engine computes for them.
#include "cairn/store.h"

#include <optional>
#include <string>
#include <utility>

#include "base/core/check.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

constexpr uint64_t kTokenBytes = 8 << 10;
constexpr uint64_t kRestoredTokens = 64;
constexpr uint64_t kAppendedBytesMax = 64 << 20;  // Then another branch; the log fits in memory.
constexpr uint64_t kForksMax = 10'000;
// As many with the index as without, so that a counter of instructions may compare them.
constexpr int64_t kDurableAppends = 10'000;

Options SmallStore() {
  Options options;
  options.segment_bytes = 16 << 20;
  options.log_bytes_max = 256 << 20;
  options.hot_tail_bytes = 64 << 20;
  return options;
}

struct Opened {
  Store store;
  ModelId model{};
};

Result<Opened> OpenStore() {
  Opened opened;
  CAIRN_ASSIGN_OR_RETURN(opened.store, Store::Open(":memory:", SmallStore()));
  const KvPool& pool = SharedPool(kTokenBytes, Layout::kNhd);
  CAIRN_ASSIGN_OR_RETURN(opened.model, opened.store.RegisterModel(pool.model()));
  return opened;
}

// A branch that starts over before memory fills up.
class Appender {
 public:
  Appender(Opened* opened, uint64_t tokens)
      : opened_(*opened), cursor_(SharedPool(kTokenBytes, Layout::kNhd), 0), ids_(tokens, 7) {}
  Status StartAnew() {
    if (branch_) CAIRN_RETURN_IF_ERROR(branch_->Drop());
    CAIRN_RETURN_IF_ERROR(opened_.store.Compact());
    CAIRN_ASSIGN_OR_RETURN(branch_, opened_.store.CreateBranch(opened_.model));
    position_ = 0;
    return Status::Ok();
  }
  bool is_full() const { return position_ * kTokenBytes >= kAppendedBytesMax; }
  Status Append() {
    Delta delta;
    delta.tokens = ids_;
    delta.kv = &cursor_.At(position_, ids_.size());
    AppendOptions options;
    options.durability = Durability::kMemory;
    position_ += ids_.size();
    return branch_->AppendSync(delta, options).status();
  }
  Branch& branch() { return *branch_; }

 private:
  Opened& opened_;
  KvCursor cursor_;
  const std::vector<TokenId> ids_;
  std::optional<Branch> branch_{};
  uint64_t position_ = 0;
};

void Append(::benchmark::State& state, uint64_t tokens) {
  auto opened = OpenStore();
  if (Failed(&state, opened.status())) return;
  Appender appender(&*opened, tokens);
  // Once around, so that the log's memory has been touched.
  if (Failed(&state, appender.StartAnew())) return;
  while (!appender.is_full()) {
    if (Failed(&state, appender.Append())) return;
  }
  if (Failed(&state, appender.StartAnew())) return;
  Meter meter(&state, tokens, tokens * kTokenBytes);
  for (auto _ : state) {
    if (appender.is_full()) {
      meter.Pause();
      if (Failed(&state, appender.StartAnew())) break;
      meter.Resume();
    }
    if (Failed(&state, appender.Append())) break;
  }
}

// 16 ids at kPower, to branches in turn. KV is left out, so that what the index adds is not lost
// beside copying.
void DurableAppend(::benchmark::State& state, Index index, uint64_t branch_count) {
  Options options = SmallStore();
  options.index = index == Index::kNone ? index : Index::kPrefix;
  auto store = Store::Open(":memory:", options);
  if (Failed(&state, store.status())) return;
  if (index == Index::kChunks && Failed(&state, store->SetNamespace("", {.index = index}))) return;
  const auto spec = ModelOfTokenBytes(0);
  if (Failed(&state, spec.status())) return;
  const auto model = store->RegisterModel(*spec);
  if (Failed(&state, model.status())) return;
  std::vector<Branch> branches;
  while (branches.size() < branch_count) {
    auto branch = store->CreateBranch(*model);
    if (Failed(&state, branch.status())) return;
    branches.push_back(std::move(*branch));
  }
  const std::vector<TokenId> ids(16, 7);
  Delta delta;
  delta.tokens = ids;
  AppendOptions durable;
  durable.durability = Durability::kPower;
  uint64_t appends = 0;
  const Meter meter(&state, ids.size(), 0);
  for (auto _ : state) {
    Branch& branch = branches[appends++ % branch_count];
    if (Failed(&state, branch.AppendSync(delta, durable).status())) break;
  }
}

// Out of the log's memory, or, sealed, out of the page cache.
void Restore(::benchmark::State& state, bool sealed) {
  auto opened = OpenStore();
  if (Failed(&state, opened.status())) return;
  Appender appender(&*opened, 16);
  if (Failed(&state, appender.StartAnew())) return;
  for (uint64_t i = 0; i < kRestoredTokens; i += 16) {
    if (Failed(&state, appender.Append())) return;
  }
  if (sealed && Failed(&state, opened->store.Compact())) return;
  KvCursor into(SharedPool(kTokenBytes, Layout::kHnd), 0);
  std::vector<TokenId> ids(kRestoredTokens);
  RestoreRequest request;
  request.tokens = ids;
  request.into = &into.At(0, kRestoredTokens);
  constexpr int kTimesUntilCached = 3;
  for (int i = 0; i < kTimesUntilCached; ++i) {
    if (Failed(&state, appender.branch().Restore(request).status())) return;
  }
  const Meter meter(&state, kRestoredTokens, kRestoredTokens * kTokenBytes);
  for (auto _ : state) {
    if (Failed(&state, appender.branch().Restore(request).status())) break;
  }
}

void Fork(::benchmark::State& state) {
  auto opened = OpenStore();
  if (Failed(&state, opened.status())) return;
  Appender appender(&*opened, 16);
  if (Failed(&state, appender.StartAnew())) return;
  if (Failed(&state, appender.Append())) return;
  BranchOptions options;
  options.durability = Durability::kMemory;
  std::vector<Branch> forks;
  forks.reserve(kForksMax);
  Meter meter(&state, 1, 0);
  for (auto _ : state) {
    if (forks.size() == kForksMax) {
      meter.Pause();
      for (Branch& fork : forks) {
        if (Failed(&state, fork.Drop(Durability::kMemory))) return;
      }
      forks.clear();
      meter.Resume();
    }
    auto fork = appender.branch().ForkAt(8, options);
    if (Failed(&state, fork.status())) break;
    forks.push_back(std::move(*fork));
  }
}

}  // namespace

// By the clock, and with the processor time of the store's own threads.
void RegisterStore() {
  const auto add = [](const std::string& name, const auto& run, auto... arguments) {
    return ::benchmark::RegisterBenchmark(("store/" + name).c_str(), run, arguments...)
        ->MeasureProcessCPUTime()
        ->UseRealTime();
  };
  for (const uint64_t tokens : {1, 16}) {
    add("append/tokens:" + std::to_string(tokens), Append, tokens);
  }
  for (const uint64_t branches : {1, 1000}) {
    const std::string of = "/branches:" + std::to_string(branches);
    for (const auto& [name, index] : {std::pair("none", Index::kNone), {"prefix", Index::kPrefix},
                                      {"chunks", Index::kChunks}}) {
      add(std::string("durable_append/index:") + name + of, DurableAppend, index, branches)
          ->Iterations(kDurableAppends);
    }
  }
  add("restore/log", Restore, false);
  add("restore/tables", Restore, true);
  add("fork", Fork);
}

}  // namespace cairn::bench::micro
