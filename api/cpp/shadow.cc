// SPDX-License-Identifier: Apache-2.0
//
// Implements cairn/shadow_session.h: checks the call, and passes it on.
#include "cairn/shadow_session.h"

#include "api/cpp/on_core.h"
#include "engine/sessions/shadow/shadow_session.h"

namespace cairn {

namespace {

// In a child of fork() nobody may free what these wait for.
bool IsOurs(const std::shared_ptr<ShadowSessionState>& state) {
  return state != nullptr && state->arena().deps().write->lifecycle->CheckProcess().ok();
}

template <typename Body>
auto OnState(const std::shared_ptr<ShadowSessionState>& state, Body&& body)
    -> decltype(body(*state)) {
  if (state == nullptr) return Status(StatusCode::kInvalidState, "an empty handle");
  const io::NoCancel guard;
  return CatchBadAlloc([&]() -> decltype(body(*state)) {
    const engine::Lifecycle& lifecycle = *state->arena().deps().write->lifecycle;
    CAIRN_RETURN_IF_ERROR(lifecycle.CheckProcess());
    CAIRN_RETURN_IF_ERROR(lifecycle.CheckUsable());
    return body(*state);
  });
}

}  // namespace

Result<ShadowInfo> BuildShadow(const Branch& branch, const ShadowOf& of) {
  return OnCore(branch.core(), [&](StoreCore& core) -> Result<ShadowInfo> {
    CAIRN_RETURN_IF_ERROR(core.lifecycle().CheckWritable());
    const engine::ShadowDeps deps = core.MakeSparseDeps(nullptr);
    CAIRN_ASSIGN_OR_RETURN(const engine::ShadowShape shape,
                           engine::ShapeOfBranch(deps, branch.id(), of.group, of.spec, of.end));
    ShadowInfo info = engine::InfoOf(shape);
    if (shape.is_dense()) return info;
    auto found = engine::FindShadowTable(deps, branch.id(), shape);
    if (found.status().code() == StatusCode::kNotFound) {
      CAIRN_ASSIGN_OR_RETURN(info.tokens_read, engine::MakeShadowTable(deps, branch.id(), shape));
      found = engine::FindShadowTable(deps, branch.id(), shape);
    }
    CAIRN_RETURN_IF_ERROR(found.status());
    info.table_bytes = found->table->info().bytes;
    return info;
  });
}

Result<ShadowInfo> FindShadow(const Branch& branch, const ShadowOf& of) {
  return OnCore(branch.core(), [&](StoreCore& core) -> Result<ShadowInfo> {
    const engine::ShadowDeps deps = core.MakeSparseDeps(nullptr);
    CAIRN_ASSIGN_OR_RETURN(const engine::ShadowShape shape,
                           engine::ShapeOfBranch(deps, branch.id(), of.group, of.spec, of.end));
    ShadowInfo info = engine::InfoOf(shape);
    if (shape.is_dense()) return info;
    CAIRN_ASSIGN_OR_RETURN(const auto found, engine::FindShadowTable(deps, branch.id(), shape));
    info.table_bytes = found.table->info().bytes;
    return info;
  });
}

Status DropShadow(const Branch& branch, const ShadowOf& of) {
  return OnCore(branch.core(), [&](StoreCore& core) -> Status {
    CAIRN_RETURN_IF_ERROR(core.lifecycle().CheckWritable());
    const engine::ShadowDeps deps = core.MakeSparseDeps(nullptr);
    CAIRN_ASSIGN_OR_RETURN(const engine::ShadowShape shape,
                           engine::ShapeOfBranch(deps, branch.id(), of.group, of.spec, of.end));
    if (shape.is_dense()) return Status(StatusCode::kNotFound, "shadow: the context is too short");
    CAIRN_ASSIGN_OR_RETURN(const auto found, engine::FindShadowTable(deps, branch.id(), shape));
    return deps.derived->Drop(found.owner);
  });
}

Result<ShadowSession> ShadowSession::Open(const SparseArena& arena, const Branch& branch,
                                          const ShadowOptions& options) {
  return OnCore(branch.core(), [&](StoreCore& core) -> Result<ShadowSession> {
    CAIRN_RETURN_IF_ERROR(core.lifecycle().CheckWritable());
    const std::shared_ptr<SparseArenaState> on = arena.state();
    if (on == nullptr) return Status(StatusCode::kInvalidState, "an empty handle");
    if (on->deps().owner.get() != &core) {
      return Status(StatusCode::kInvalidArgument, "shadow: the branch is of another store");
    }
    CAIRN_ASSIGN_OR_RETURN(auto state, ShadowSessionState::Make(on, branch.id(), options));
    return ShadowSession(std::move(state));
  });
}

Status ShadowSession::Select(const ShadowQuery& query) {
  return OnState(state_, [&](ShadowSessionState& state) { return state.Select(query); });
}
Status ShadowSession::Fetch(const ShadowFetch& fetch) {
  return OnState(state_, [&](ShadowSessionState& state) { return state.Fetch(fetch); });
}
Status ShadowSession::Rebuild(uint32_t layer, uintptr_t stream) {
  return OnState(state_, [&](ShadowSessionState& state) { return state.Rebuild(layer, stream); });
}
Result<ShadowView> ShadowSession::View(uint32_t layer) const {
  return OnState(state_, [&](ShadowSessionState& state) { return state.View(layer); });
}
Status ShadowSession::Append(const ShadowRows& rows) {
  return OnState(state_, [&](ShadowSessionState& state) { return state.Append(rows); });
}
Status ShadowSession::Extend(uint64_t end) {
  return OnState(state_, [&](ShadowSessionState& state) { return state.Extend(end); });
}
Status ShadowSession::Prefetch(uint32_t layer, const uint32_t* chunks, uint32_t count,
                               uint32_t stride) {
  return OnState(state_, [&](ShadowSessionState& state) {
    return state.Prefetch(layer, chunks, count, stride);
  });
}
Status ShadowSession::Save() {
  return OnState(state_, [](ShadowSessionState& state) { return state.Save(); });
}
ShadowInfo ShadowSession::info() const { return IsOurs(state_) ? state_->info() : ShadowInfo(); }
uint64_t ShadowSession::device_bytes() const { return IsOurs(state_) ? state_->device_bytes() : 0; }
SparseStats ShadowSession::stats() const {
  return IsOurs(state_) ? state_->stats() : SparseStats();
}

}  // namespace cairn
