// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/history.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::crash {

using sim::kMixedNamespace;
using sim::kStateGroup;
using sim::MakeSampler;
using sim::WrongContent;

void History::Start(StoreState next) { states_.push_back(std::move(next)); }

History::Name History::Pick(const StoreState& state) {
  auto it = state.begin();
  std::advance(it, static_cast<ptrdiff_t>(Below(state.size())));
  return it->first;
}

Durability History::Level() { return static_cast<Durability>(Below(3)); }

bool History::Has(const StoreState& state, size_t first, size_t last) const {
  for (size_t i = first; i <= std::min(last, started()); ++i) {
    if (states_[i] == state) return true;
  }
  return false;
}

Status History::Step(Store& store) {
  StoreState next = states_.back();
  if (next.empty()) return Begin(store);
  const uint64_t dice = Below(100);
  if (dice < 36) return Append(store, &next);
  if (dice < 44) return AppendCoalesced(store, &next);
  if (dice < 50) return CommitDraft(store, &next);
  if (dice < 61) return ForkOne(store, &next);
  if (dice < 72) return RewindOne(store, &next);
  if (dice < 79) return DropOne(store, &next);
  if (dice < 82) return RenameOne(store, &next);
  if (dice < 86) return store.Compact();
  if (dice < 88) return MakeCopy(store);
  if (dice < 90) {
    CAIRN_RETURN_IF_ERROR(store.Flush());
    AcknowledgeAll();
    return Status::Ok();
  }
  if (dice < 94) return FillOne(store, next);
  return WriteTwo(store, &next);
}

// The models, and a branch of either.
Status History::Begin(Store& store) {
  for (const bool mixed : {false, true}) {
    StoreState next = states_.back();
    const Name name{mixed ? kMixedNamespace : "", NewName()};
    BranchState& state = next[name];
    state.mixed = mixed;
    state.kv_lengths.resize(state.model().groups.size());
    Start(next);
    CAIRN_ASSIGN_OR_RETURN(const ModelId model,
                           store.RegisterModel(state.model(), Durability::kMemory));
    // So that KV is evicted now and then: a few hundred positions fit.
    CAIRN_RETURN_IF_ERROR(
        store.SetNamespace("", {.max_bytes = 60'000, .evict = Evict::kKv}, Durability::kMemory));
    CAIRN_RETURN_IF_ERROR(
        store.CreateBranch(model, {.name = name.second, .ns = name.first, .durability = Level()})
            .status());
  }
  return Status::Ok();
}

KvMemory History::Grow(BranchState* state, uint64_t count, bool samples) {
  for (uint64_t i = 0; i < count; ++i) {
    state->tokens.push_back(static_cast<TokenId>(Below(50000)));
  }
  const uint64_t end = state->tokens.size() - Below(2);  // A sampled token has no KV yet.
  std::vector<KvMemory::Range> ranges;
  for (size_t group = 0; group < state->kv_lengths.size(); ++group) {
    uint64_t begin = state->kv_lengths[group];
    if (group == kStateGroup && begin < end) begin = end - 1;
    ranges.push_back({begin, begin < end ? end - begin : 0});
    if (group == kStateGroup && begin < end) state->rows.insert(begin);
    state->kv_lengths[group] = std::max(state->kv_lengths[group], end);
  }
  if (samples) state->samplers[state->tokens.size()] = random_();
  KvMemory kv(state->model(), std::move(ranges));
  kv.Fill(state->tokens);
  return kv;
}

Status History::Append(Store& store, StoreState* next) {
  const Name name = Pick(*next);
  BranchState& state = (*next)[name];
  const uint64_t count = 1 + Below(Below(8) == 0 ? 200 : 6);
  const bool samples = Below(4) == 0;
  const KvMemory kv = Grow(&state, count, samples);
  const auto tokens = std::span(state.tokens).last(count);
  const SamplerState sampler = MakeSampler(samples ? state.samplers.rbegin()->second : 0);
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  const Status appended = branch
                              .AppendSync({.tokens = tokens,
                                           .kv = kv.view(),
                                           .sampler = samples ? &sampler : nullptr,
                                           .exact = state.exact()},
                                          {.durability = level})
                              .status();
  if (appended.code() == StatusCode::kNoSpace) {  // Its branch alone fills the namespace.
    states_.pop_back();
    return Status::Ok();
  }
  CAIRN_RETURN_IF_ERROR(appended);
  Acknowledge(level);
  return Status::Ok();
}

// Several of one token each, not waited for one by one: the store may make one record of them.
Status History::AppendCoalesced(Store& store, StoreState* next) {
  const Name name = Pick(*next);
  BranchState& state = (*next)[name];
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  std::vector<Ticket> tickets;
  for (uint64_t count = 2 + Below(5); count > 0; --count) {
    const KvMemory kv = Grow(&state, 1, false);
    Start(*next);
    auto ticket = branch.Append(
        {.tokens = std::span(state.tokens).last(1), .kv = kv.view(), .exact = state.exact()},
        {.durability = level});
    const StatusCode code = ticket.status().code();
    if (code == StatusCode::kNoSpace || code == StatusCode::kBusy) {
      states_.pop_back();
      break;
    }
    CAIRN_RETURN_IF_ERROR(ticket.status());
    tickets.push_back(std::move(*ticket));
  }
  for (Ticket& ticket : tickets) CAIRN_RETURN_IF_ERROR(ticket.Wait());
  if (!tickets.empty()) Acknowledge(level);
  return Status::Ok();
}

// Staged layer by layer; of what was staged some is appended.
Status History::CommitDraft(Store& store, StoreState* next) {
  const Name name = Pick(*next);
  BranchState& state = (*next)[name];
  if (state.mixed || state.kv_lengths[0] != state.tokens.size()) return Append(store, next);
  const uint64_t begin = state.tokens.size(), staged = 1 + Below(8), taken = 1 + Below(staged);
  for (uint64_t i = 0; i < staged; ++i) {
    state.tokens.push_back(static_cast<TokenId>(Below(50000)));
  }
  const ModelSpec model = TinyModel();
  KvMemory kv(model, begin, staged);
  kv.Fill(state.tokens);
  state.tokens.resize(begin + taken);
  state.kv_lengths[0] = begin + taken;
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  CAIRN_ASSIGN_OR_RETURN(Draft draft, branch.BeginAppend(staged));
  for (uint32_t layer = 0; layer < model.groups[0].layers; ++layer) {
    GroupView group = kv.view()->groups[0];
    std::vector<PlaneView> planes(group.planes.begin(), group.planes.end());
    for (PlaneView& plane : planes) plane.layer_bases = plane.layer_bases.subspan(layer, 1);
    group.planes = planes;
    CAIRN_RETURN_IF_ERROR(draft.Put(layer, group));
  }
  auto ticket =
      draft.Commit({.tokens = std::span(state.tokens).subspan(begin)}, {.durability = level});
  Status committed = ticket.status();
  if (committed.ok()) committed = ticket->Wait();
  if (committed.code() == StatusCode::kNoSpace || committed.code() == StatusCode::kBusy) {
    states_.pop_back();
    return Status::Ok();
  }
  CAIRN_RETURN_IF_ERROR(committed);
  Acknowledge(level);
  return Status::Ok();
}

Status History::ForkOne(Store& store, StoreState* next) {
  if (next->size() > 6) return DropOne(store, next);
  const Name from = Pick(*next);
  const Name name{from.first, NewName()};
  BranchState state = (*next)[from];
  const uint64_t position = Below(state.tokens.size() + 1);
  state.Cut(position);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(from.second, from.first));
  (*next)[name] = state;
  Start(*next);
  CAIRN_ASSIGN_OR_RETURN(
      const Branch child,
      branch.ForkAt(position, {.name = name.second, .ns = name.first, .durability = level}));
  // A child may know KV only as far as the nodes it shares do.
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, child.Info());
  for (size_t group = 0; group < info.kv_lengths.size(); ++group) {
    if (info.kv_lengths[group] > state.kv_lengths[group])
      return WrongContent("KV from nowhere", info);
  }
  states_.back()[name].CutKv(info.kv_lengths);
  Acknowledge(level);
  return Status::Ok();
}

Status History::RewindOne(Store& store, StoreState* next) {
  const Name name = Pick(*next);
  BranchState& state = (*next)[name];
  const uint64_t length = state.tokens.size() - std::min<uint64_t>(state.tokens.size(), Below(5));
  state.Cut(length);
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  CAIRN_RETURN_IF_ERROR(branch.Rewind(length, level));
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
  states_.back()[name].CutKv(info.kv_lengths);
  Acknowledge(level);
  return Status::Ok();
}

Status History::RenameOne(Store& store, StoreState* next) {
  const Name from = Pick(*next);
  const Name to{from.first, NewName()};
  auto moved = next->extract(from);
  moved.key() = to;
  next->insert(std::move(moved));
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(from.second, from.first));
  CAIRN_RETURN_IF_ERROR(branch.Rename(to.second, level));
  Acknowledge(level);
  return Status::Ok();
}

// Gives a branch that lost KV all that it has had; of another one nothing is taken.
Status History::FillOne(Store& store, const StoreState& next) {
  Name name = Pick(next);
  for (const auto& [other, state] : next) {
    if (state.mixed) continue;
    CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.FindBranch(other.second, other.first));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<KvHole> holes, branch.EvictedKv());
    if (!holes.empty()) name = other;
  }
  const BranchState& state = next.at(name);
  if (state.mixed || state.kv_lengths[0] == 0) return Status::Ok();
  KvMemory kv(TinyModel(), 0, state.kv_lengths[0]);
  kv.Fill(state.tokens);
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  const Status filled = branch.Fill(*kv.view(), {.durability = Level()});
  return filled.code() == StatusCode::kNoSpace ? Status::Ok() : filled;
}

Status History::DropOne(Store& store, StoreState* next) {
  const Name name = Pick(*next);
  next->erase(name);
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  CAIRN_RETURN_IF_ERROR(branch.Drop(level));
  Acknowledge(level);
  return Status::Ok();
}

// A batch over two branches: both or none.
Status History::WriteTwo(Store& store, StoreState* next) {
  const Name first = Pick(*next);
  const Name name{"", NewName()};
  const std::vector<TokenId> one = {static_cast<TokenId>(Below(50000))};
  const std::vector<TokenId> two = {1, 2, static_cast<TokenId>(Below(50000))};
  auto& tokens = (*next)[first].tokens;
  tokens.insert(tokens.end(), one.begin(), one.end());
  (*next)[name].tokens = two;
  (*next)[name].kv_lengths = {0};
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.FindBranch(first.second, first.first));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model,
                         store.RegisterModel(TinyModel(), Durability::kMemory));
  WriteBatch batch;
  batch.Append(branch, {.tokens = one});
  const int made = batch.Create(model, {.name = name.second, .ns = ""});
  batch.Append(made, {.tokens = two});
  Result<Store::WriteResult> result = store.Write(batch, {.durability = level});
  while (!result.ok() && result.status().code() == StatusCode::kBusy) {
    // Write never waits. A rename to the same name does, and changes nothing.
    CAIRN_RETURN_IF_ERROR(Branch(branch).Rename(first.second, Durability::kProcess));
    result = store.Write(batch, {.durability = level});
  }
  CAIRN_RETURN_IF_ERROR(result.status());
  CAIRN_RETURN_IF_ERROR(result->ticket.Wait());
  Acknowledge(level);
  return Status::Ok();
}

Status History::MakeCopy(Store& store) {
  copy_ = Copy{.path = "copy-" + NewName(), .state = started(), .done = false};
  CAIRN_RETURN_IF_ERROR(store.Checkpoint(copy_->path).status());
  copy_->done = true;
  return Status::Ok();
}

}  // namespace cairn::crash
