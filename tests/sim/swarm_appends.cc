// SPDX-License-Identifier: Apache-2.0
//
// Clients that append, at once and by tickets, many at a time and by drafts, and fill.
#include <algorithm>

#include "tests/sim/swarm_clients.h"

namespace cairn::sim {

KvMemory SwarmClients::Grow(Client& client, BranchState* state, uint64_t count, bool samples) {
  SeededRandom& random = client.random;
  for (uint64_t i = 0; i < count; ++i) {
    state->tokens.push_back(static_cast<TokenId>(random.Below(50'000)));
  }
  const uint64_t end = state->tokens.size() - random.Below(2);  // A sampled token has no KV yet.
  std::vector<KvMemory::Range> ranges;
  for (size_t group = 0; group < state->kv_lengths.size(); ++group) {
    uint64_t begin = state->kv_lengths[group];
    const bool any = begin < end;
    if (group == kStateGroup && any) state->rows.insert(begin = end - 1);
    ranges.push_back({begin, any ? end - begin : 0});
    state->kv_lengths[group] = std::max(state->kv_lengths[group], end);
  }
  if (samples) state->samplers[state->tokens.size()] = random.Next();
  KvMemory kv(state->model(), std::move(ranges));
  kv.Fill(state->tokens);
  return kv;
}

AppendOptions SwarmClients::DrawOptions(Client& client, Durability level, uint64_t length) {
  AppendOptions options;
  options.durability = level;
  if (client.random.Below(2) == 0) options.expected_length = length;
  if (config_.has(Feature::kImpatience) && client.random.Below(6) == 0) {
    options.timeout_ns = client.random.Below(3'000'000);
  }
  return options;
}

void SwarmClients::Append(Client& client, size_t index) {
  SeededRandom& random = client.random;
  const KnownBranch& branch = known_[index];
  BranchState next = *branch.last().state;
  const uint64_t length = next.tokens.size();
  const uint64_t size = random.Below(10);
  uint64_t count = size < 5                                    ? 1
                   : size < 9 || !config_.has(Feature::kLarge) ? 1 + random.Below(8)
                                                               : 40 + random.Below(250);
  // Prefixes shorter than a block are not found.
  if (config_.has(Feature::kFinds) && random.Below(2) == 0) count = 60 + random.Below(100);
  const bool samples = random.Below(4) == 0;
  KvMemory kv = Grow(client, &next, count, samples);
  const std::vector<TokenId> tokens(next.tokens.end() - static_cast<ptrdiff_t>(count),
                                    next.tokens.end());
  const SamplerState sampler = MakeSampler(samples ? next.samplers.rbegin()->second : 0);
  const Delta delta{.tokens = tokens,
                    .kv = kv.view(),
                    .sampler = samples ? &sampler : nullptr,
                    .spans = {},
                    .exact = next.exact()};
  const Durability level = Level(client);
  const AppendOptions options = DrawOptions(client, level, length);
  const BranchId id = branch.id;
  Change change = Begin(level);
  Push(&change, index, Share(std::move(next)), branch.last().name);
  const auto handle = store_->GetBranch(id);
  if (!handle.ok()) {
    End(client, change, handle.status(), "append");
    return;
  }
  Branch open = *handle;
  if (random.Below(2) == 0) {
    End(client, change, open.AppendSync(delta, options).status(), "append");
    return;
  }
  auto ticket = open.Append(delta, options);
  if (!ticket.ok()) {
    End(client, change, ticket.status(), "append");
    return;
  }
  const bool cancels = config_.has(Feature::kImpatience) && random.Below(4) == 0;
  if (cancels) {
    world_.scheduler->Sleep(random.Below(400'000));
    ++result_->cancelled;
    const Status status = ticket->Cancel();
    // Nobody looks at it any more.
    std::fill(kv.bytes().begin(), kv.bytes().end(), std::byte{0x5A});
    End(client, change, status, "cancelled append");
  } else if (!ticket->released() || random.Below(2) == 0 || options.timeout_ns != UINT64_MAX) {
    End(client, change, ticket->Wait(), "append");
  } else {
    AddPending(client, change, std::move(*ticket));
    if (config_.options.delta_batch_tokens > 1) Settle(client);
  }
}

// Appends one token each; the store may make one record of them.
void SwarmClients::AppendMany(Client& client, size_t index) {
  for (uint64_t count = 2 + client.random.Below(5); count > 0; --count) {
    BranchState next = *known_[index].last().state;
    const KvMemory kv = Grow(client, &next, 1, false);
    const TokenId token = next.tokens.back();
    const Durability level = Level(client);
    const BranchId id = known_[index].id;
    Change change = Begin(level);
    Push(&change, index, Share(std::move(next)), known_[index].last().name);
    const auto handle = store_->GetBranch(id);
    Branch open = handle.ok() ? *handle : Branch();
    auto ticket = handle.ok() ? open.Append({.tokens = std::span(&token, 1),
                                             .kv = kv.view(),
                                             .exact = known_[index].last().state->exact()},
                                            {.durability = level})
                              : Result<Ticket>(handle.status());
    if (ticket.status().code() == StatusCode::kInvalidArgument && !client.pending.empty() &&
        known_[index].versions.size() > 1 &&
        known_[index].versions[known_[index].versions.size() - 2].open) {
      Unmake(change);  // One before it, to be coalesced, was refused meanwhile.
      break;
    }
    if (!ticket.ok()) {
      End(client, change, ticket.status(), "coalesced append");
      break;
    }
    if (!ticket->released()) {
      if (!End(client, change, ticket->Wait(), "borrowed append")) break;
    } else {
      AddPending(client, change, std::move(*ticket));
    }
    if (stop_ || known_[index].holders != 0) break;
  }
  if (config_.options.delta_batch_tokens > 1) Settle(client);
}

// Staged layer by layer; of what was staged some is appended, or nothing.
void SwarmClients::CommitDraft(Client& client, size_t index) {
  SeededRandom& random = client.random;
  const KnownBranch& branch = known_[index];
  BranchState next = *branch.last().state;
  const uint64_t begin = next.tokens.size();
  if (next.mixed || next.kv_lengths[0] != begin) return Append(client, index);
  const uint64_t staged = 1 + random.Below(8), taken = 1 + random.Below(staged);
  for (uint64_t i = 0; i < staged; ++i) {
    next.tokens.push_back(static_cast<TokenId>(random.Below(50'000)));
  }
  const ModelSpec model = TinyModel();
  KvMemory kv(model, begin, staged);
  kv.Fill(next.tokens);
  next.tokens.resize(begin + taken);
  next.kv_lengths[0] = begin + taken;
  const std::vector<TokenId> tokens(next.tokens.begin() + static_cast<ptrdiff_t>(begin),
                                    next.tokens.end());
  auto handle = Handle(index, "draft");
  if (!handle.has_value()) return;
  auto draft = handle->BeginAppend(staged);
  if (!draft.ok()) return void(Tell(draft.status(), "draft"));
  for (uint32_t layer = 0; layer < model.groups[0].layers; ++layer) {
    GroupView group = kv.view()->groups[0];
    std::vector<PlaneView> planes(group.planes.begin(), group.planes.end());
    for (PlaneView& plane : planes) plane.layer_bases = plane.layer_bases.subspan(layer, 1);
    group.planes = planes;
    const Status put = draft->Put(layer, group);
    if (!put.ok()) return void(Tell(put, "draft"));
  }
  if (random.Below(8) == 0 || branch.holders != 0) return draft->Abort();
  const Durability level = Level(client);
  Change change = Begin(level);
  Push(&change, index, Share(std::move(next)), branch.last().name);
  auto ticket = draft->Commit({.tokens = tokens}, {.durability = level});
  End(client, change, ticket.ok() ? ticket->Wait() : ticket.status(), "draft");
}

// All KV that the branch has had, and that of its newest tokens.
void SwarmClients::Fill(Client& client, size_t index) {
  const KnownBranch& branch = known_[index];
  BranchState next = *branch.last().state;
  if (next.mixed || next.tokens.empty()) return Append(client, index);
  KvMemory kv(TinyModel(), 0, next.tokens.size());
  kv.Fill(next.tokens);
  next.kv_lengths[0] = next.tokens.size();
  const Durability level = Level(client);
  auto handle = Handle(index, "fill");
  if (!handle.has_value()) return;
  Change change = Begin(level);
  Push(&change, index, Share(std::move(next)), branch.last().name);
  const Status filled = handle->Fill(*kv.view(), {.durability = level});
  if (filled.ok() || !change.writable || !IsPoisoned()) {
    // Where KV was evicted there are steps, of which the last one alone shows in the length.
    if (!filled.ok() && filled.code() != StatusCode::kPoisoned) {
      Tell(filled, "fill");
      const auto info = handle->Info();
      if (!info.ok()) {
        client.over = true;
        return void(Tell(info.status(), "fill"));
      }
      if (info->kv_lengths[0] == known_[index].last().state->tokens.size()) {
        return Make(change, false);
      }
      return Unmake(change);
    }
  }
  End(client, change, filled, "fill");
}

}  // namespace cairn::sim
