// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/branch_reads.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"
#include "engine/restore/plan/plan.h"

namespace cairn::engine {

void BranchReads::Start() {
  prefetcher_ = std::make_unique<io::Executor>(*deps_.world.scheduler, "cairn-prefetch", 1,
                                               io::ThreadPriority::kBackground);
}

void BranchReads::Stop() { prefetcher_->Stop(); }

Status BranchReads::RestoreMany(std::span<RestoreItem> items, uint64_t timeout_ns) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  for (const RestoreItem& item : items) {
    // A failure belongs to the tickets that it ended.
    if (item.node == NodeId{} && item.sources.empty()) {
      static_cast<void>(coalesced_->Flush(item.branch));
    }
    for (const RestoreSource& source : item.sources) {
      if (source.node == NodeId{}) static_cast<void>(coalesced_->Flush(source.branch));
    }
  }
  reader_.Restore(items, deps_.lifecycle->Deadline(timeout_ns));
  return Status::Ok();
}

Result<RestoreResult> BranchReads::RestoreLayers(BranchId id, const RestoreRequest& request,
                                                 LayerWords* layers, const TicketState* ticket) {
  RestoreItem item{.branch = id, .request = request, .layers = layers, .ticket = ticket};
  CAIRN_RETURN_IF_ERROR(RestoreMany({&item, 1}, request.timeout_ns));
  CAIRN_RETURN_IF_ERROR(item.status);
  return std::move(item.result);
}

Result<RestoreResult> BranchReads::Restore(BranchId id, const RestoreRequest& request,
                                           LayerProgress* progress) {
  LayerWords layers(*deps_.world.scheduler, progress);
  auto result = RestoreLayers(id, request, &layers, nullptr);
  layers.End(result.ok());
  return result;
}

Result<Ticket> BranchReads::RestoreAsync(BranchId id, const RestoreRequest& request,
                                         LayerProgress* progress) {
  const Lifecycle::Call call(deps_.lifecycle);
  const auto layers = std::make_shared<LayerWords>(*deps_.world.scheduler, progress);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  auto state = std::make_shared<TicketState>(
      deps_.world, request.queue == nullptr ? nullptr : request.queue->state(), request.user_data);
  state->is_job = true;
  state->restored = std::make_shared<RestoreResult>();
  state->layers = layers->words();
  state->abandoned = [layers] { layers->End(false); };
  deps_.executor->Post([this, store = deps_.callbacks->Hold(), id, request, layers, state] {
    if (!state->BeginJob()) return;
    Result<RestoreResult> restored =
        CatchBadAlloc([&] { return RestoreLayers(id, request, layers.get(), state.get()); });
    layers->End(restored.ok());
    if (restored.ok()) *state->restored = std::move(*restored);
    state->Finish(restored.status());
  });
  return Ticket(state);
}

Status BranchReads::Prefetch(BranchId id, const PrefetchRequest& request) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  if (request.gpu.has_value()) {
    CAIRN_RETURN_IF_ERROR(reader_.FindGpu(*request.gpu, "prefetch: gpu").status());
  }
  {
    std::lock_guard lock(deps_.mutex());
    uint64_t length = UINT64_MAX;  // Nothing is known yet of a branch that is not in memory.
    if (const Head* const head = deps_.tree().FindHead(static_cast<uint64_t>(id))) {
      length = head->lengths[kTokenLane] + coalesced_->TokensWaiting(id);
    }
    CAIRN_RETURN_IF_ERROR(RangeOf(request.begin, request.end, length, "prefetch").status());
  }
  if (prefetches_waiting_.fetch_add(1) >= kPrefetchesMax) {
    prefetches_waiting_.fetch_sub(1);
    return Status(StatusCode::kBusy, std::to_string(kPrefetchesMax) + " hints are waiting");
  }
  const auto job = [this, store = deps_.callbacks->Hold(), id, request] {
    const Status status = CatchBadAlloc([&] { return PrefetchNow(id, request); });
    ReaderCounters& counters = reader_.counters();
    counters.prefetches.fetch_add(1, std::memory_order_relaxed);
    if (!status.ok()) counters.prefetches_failed.fetch_add(1, std::memory_order_relaxed);
    prefetches_waiting_.fetch_sub(1);
  };
  Status posted = CatchBadAlloc([&] { prefetcher_->Post(job); });
  if (!posted.ok()) prefetches_waiting_.fetch_sub(1);
  return posted;
}

Status BranchReads::PrefetchNow(BranchId id, const PrefetchRequest& request) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  return reader_.Prefetch(id, request);
}

Result<std::vector<TokenId>> BranchReads::ReadTokens(BranchId id, uint64_t begin, uint64_t end) {
  uint64_t length = 0;
  {
    Committer::Lock lock;
    CAIRN_ASSIGN_OR_RETURN(const Head* head, coalesced_->LookAt(id, &lock));
    length = head->lengths[kTokenLane];
  }
  CAIRN_ASSIGN_OR_RETURN(const Range range, RangeOf(begin, end, length, "token ids"));
  std::vector<TokenId> tokens(range.end - range.begin);
  if (tokens.empty()) return tokens;
  RestoreRequest request;
  request.begin = range.begin;
  request.end = range.end;
  request.tokens = tokens;
  CAIRN_RETURN_IF_ERROR(Restore(id, request, nullptr).status());
  return tokens;
}

Result<Branch::StateAt> BranchReads::StateAt(BranchId id, uint64_t position, bool sampler) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  static_cast<void>(coalesced_->Flush(id));  // A failure belongs to the tickets that it ended.
  CAIRN_ASSIGN_OR_RETURN(
      const Reader::State state,
      reader_.ReadState({.branch = id, .sampler = sampler, .position = position}));
  Branch::StateAt result;
  result.position = state.position;
  if (sampler) {
    CAIRN_ASSIGN_OR_RETURN(result.sampler, DecodeSampler(state.encoded));
  } else {
    CAIRN_ASSIGN_OR_RETURN(result.metadata, DecodeMetadata(state.encoded));
  }
  return result;
}

}  // namespace cairn::engine
