// SPDX-License-Identifier: Apache-2.0
//
// The public classes SparseArena and SparseSession: check the call, and pass it on.
#include "cairn/sparse.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "api/cpp/on_core.h"
#include "engine/sessions/sparse/sparse_session.h"

namespace cairn {

namespace {

// Wraps every call.
template <typename State, typename Body>
auto OnState(const std::shared_ptr<State>& state, Body&& body) -> decltype(body(*state)) {
  if (state == nullptr) return Status(StatusCode::kInvalidState, "an empty handle");
  const io::NoCancel guard;
  return CatchBadAlloc([&]() -> decltype(body(*state)) { return body(*state); });
}

// A child of fork() must not use its pages.
Status CheckProcess(const SparseSessionState& state) {
  return state.arena().deps().write->lifecycle->CheckProcess();
}

}  // namespace

Result<SparseArena> SparseArena::Make(const Store& store, const Gpu& gpu,
                                      const SparseArenaOptions& options) {
  const std::shared_ptr<StoreCore> core = store.core();
  return OnCore(core, [&](StoreCore& on) -> Result<SparseArena> {
    CAIRN_RETURN_IF_ERROR(on.lifecycle().CheckWritable());
    CAIRN_RETURN_IF_ERROR(on.CheckGpu(gpu));
    CAIRN_ASSIGN_OR_RETURN(auto state,
                           SparseArenaState::Make(on.MakeSparseDeps(core), gpu, options));
    return SparseArena(std::move(state));
  });
}

Result<SparseSession> SparseArena::Open(const Branch& branch, const SparseOptions& options) {
  return OnState(state_, [&](SparseArenaState& arena) -> Result<SparseSession> {
    const auto* const core = static_cast<const StoreCore*>(arena.deps().owner.get());
    CAIRN_RETURN_IF_ERROR(core->lifecycle().CheckProcess());
    CAIRN_RETURN_IF_ERROR(core->lifecycle().CheckWritable());
    if (branch.core().get() != core) {
      return Status(StatusCode::kInvalidArgument, "sparse: the branch is of another store");
    }
    const SparseArenaState::Deps& deps = arena.deps();
    CAIRN_ASSIGN_OR_RETURN(auto source, engine::SparseSource::Take(*deps.write, deps.coalesced,
                                                                   branch.id(), options.end));
    CAIRN_ASSIGN_OR_RETURN(auto state,
                           SparseSessionState::Make(state_, std::move(source), options));
    return SparseSession(std::move(state));
  });
}

uint64_t SparseArena::pinned_bytes() const {
  return state_ == nullptr ? 0 : state_->pinned_bytes();
}
uint64_t SparseArena::device_bytes() const {
  return state_ == nullptr ? 0 : state_->device_bytes();
}
SparseStats SparseArena::stats() const {
  return state_ == nullptr ? SparseStats() : state_->counters().Stats();
}

Result<SparseView> SparseSession::Fetch(const SparseWanted& wanted) {
  return OnState(state_, [&](SparseSessionState& state) -> Result<SparseView> {
    CAIRN_RETURN_IF_ERROR(CheckProcess(state));
    return state.Fetch(wanted);
  });
}
Status SparseSession::Prefetch(const SparseWanted& wanted) {
  return OnState(state_, [&](SparseSessionState& state) -> Status {
    CAIRN_RETURN_IF_ERROR(CheckProcess(state));
    return state.Prefetch(wanted);
  });
}
Result<SparseView> SparseSession::Capture(const SparseWanted& wanted) {
  return OnState(state_, [&](SparseSessionState& state) -> Result<SparseView> {
    CAIRN_RETURN_IF_ERROR(CheckProcess(state));
    return state.Capture(wanted);
  });
}
Status SparseSession::Replay(std::span<const SparseSession> sessions, uintptr_t stream,
                             const std::function<Status()>& launch) {
  const io::NoCancel guard;
  return CatchBadAlloc([&]() -> Status {
    std::vector<SparseSessionState*> states;
    for (const SparseSession& session : sessions) {
      if (session.state_ == nullptr) return Status(StatusCode::kInvalidState, "an empty handle");
      CAIRN_RETURN_IF_ERROR(CheckProcess(*session.state_));
      states.push_back(session.state_.get());
    }
    // One order for all callers, so that none waits for another in a circle.
    std::sort(states.begin(), states.end(), std::less<>());
    if (std::adjacent_find(states.begin(), states.end()) != states.end()) {
      return Status(StatusCode::kInvalidArgument, "sparse: a session is replayed twice");
    }
    return SparseSessionState::Replay(states, stream, launch);
  });
}
Status SparseSession::Save() {
  return OnState(state_, [](SparseSessionState& state) -> Status {
    CAIRN_RETURN_IF_ERROR(CheckProcess(state));
    return state.Save();
  });
}
Status SparseSession::Extend(uint64_t end) {
  return OnState(state_, [&](SparseSessionState& state) -> Status {
    CAIRN_RETURN_IF_ERROR(CheckProcess(state));
    const SparseArenaState::Deps& deps = state.arena().deps();
    CAIRN_RETURN_IF_ERROR(deps.write->lifecycle->CheckUsable());
    auto source = engine::SparseSource::Take(*deps.write, deps.coalesced, state.branch(), end);
    const bool is_empty =
        end == UINT64_MAX && source.status().code() == StatusCode::kInvalidArgument;
    if (!is_empty) CAIRN_RETURN_IF_ERROR(source.status());
    return state.Extend(is_empty ? nullptr : std::move(*source));
  });
}
uint64_t SparseSession::pieces() const { return state_ == nullptr ? 0 : state_->pieces(); }
uint64_t SparseSession::device_bytes() const {
  return state_ == nullptr ? 0 : state_->device_bytes();
}
SparseStats SparseSession::stats() const {
  return state_ == nullptr ? SparseStats() : state_->stats();
}

}  // namespace cairn
