// SPDX-License-Identifier: Apache-2.0
//
// Clients that read a branch and compare it with what they know of it, at once and by tickets.
#include <algorithm>
#include <memory>

#include "tests/sim/swarm_clients.h"

namespace cairn::sim {

// Anybody's branch, whole.
void SwarmClients::Read(Client& client) {
  const auto index = PickAny(client);
  if (!index.has_value()) return;
  ++known_[*index].holders;
  const BranchId id = known_[*index].id;
  const BranchName name{known_[*index].ns, known_[*index].last().name};
  const bool poisoned = IsPoisoned(), rolled_back = rolled_back_;
  const auto read = [&](BranchInfo* info) -> Result<BranchState> {
    CAIRN_ASSIGN_OR_RETURN(const Branch handle, store_->GetBranch(id));
    CAIRN_ASSIGN_OR_RETURN(*info, handle.Info());
    return ReadBranch(handle, *info);
  };
  BranchInfo info;
  auto state = read(&info);
  // Beside a roll-back the first half is of before and the other of after.
  if (IsPoisoned() && !rolled_back) {
    while (!rolled_back_) world_.scheduler->Sleep(1'000'000);
    state = read(&info);
  }
  ++result_->reads;
  if (poisoned || IsPoisoned()) {
    // It shows what was acknowledged, and perhaps more.
    if (state.ok() &&
        !known_.MayBe(*index, {name.first, info.name}, *state, Durability::kProcess)) {
      Violation("the poisoned store shows something else of " + name.second);
    } else if (state.status().code() != StatusCode::kNotFound) {
      Tell(state.status(), "read when poisoned");
    }
    client.over = true;
  } else if (!state.ok()) {
    Tell(state.status(), "read");
  } else if (!(*state == *known_[*index].last().state) || info.name != name.second) {
    Violation("the store shows something else of " + name.second);
  }
  --known_[*index].holders;
}

void SwarmClients::ReadAsync(Client& client) {
  const auto index = PickAny(client);
  if (!index.has_value()) return;
  ++known_[*index].holders;
  const State state = known_[*index].last().state;
  const auto handle = store_->GetBranch(known_[*index].id);
  if (handle.ok() && !state->mixed && state->kv_lengths[0] != 0 && !IsPoisoned()) {
    if (client.random.Below(4) == 0) Tell(handle->Prefetch(), "prefetch");
    KvMemory kv(TinyModel(), 0, state->kv_lengths[0]);
    RestoreRequest request{.end = state->kv_lengths[0]};
    request.into = kv.view();
    if (config_.has(Feature::kImpatience) && client.random.Below(4) == 0) {
      request.timeout_ns = client.random.Below(1'000'000);
    }
    auto ticket = handle->RestoreAsync(request);
    Status status = ticket.status();
    const bool cancels = config_.has(Feature::kImpatience) && client.random.Below(2) == 0;
    if (ticket.ok() && cancels) {
      world_.scheduler->Sleep(client.random.Below(300'000));
      ++result_->cancelled;
      status = ticket->Cancel();
      const std::vector<std::byte> then(kv.bytes().begin(), kv.bytes().end());
      world_.scheduler->Sleep(client.random.Below(3'000'000));
      if (!std::ranges::equal(then, kv.bytes())) Violation("written to after Cancel");
    } else if (ticket.ok()) {
      status = ticket->Wait();
    }
    // It was rolled back meanwhile, and has fewer positions.
    const bool is_shorter = status.code() == StatusCode::kInvalidArgument && IsPoisoned();
    if (!is_shorter && Tell(status, "restore") && status.ok() && !IsPoisoned() &&
        !kv.Matches(state->tokens)) {
      Violation("wrong KV bytes, restored asynchronously");
    }
  } else {
    Tell(handle.status(), "restore");
  }
  --known_[*index].holders;
}

}  // namespace cairn::sim
