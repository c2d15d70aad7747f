// SPDX-License-Identifier: Apache-2.0
//
// Reading, as branches and stores offer it: what engine/restore/reader.h does, for a store that is
// open. What was accepted for a branch is applied before it is read.
#include <algorithm>

#include "base/core/out_of_memory.h"
#include "engine/restore/layer_words.h"
#include "engine/store_core.h"

namespace cairn {

// The tree under the commit lock, and the rest of the store, as the reader sees them.
class StoreCore::ReaderSide final : public engine::ReaderHost {
 public:
  explicit ReaderSide(StoreCore* core) : core_(core) {}

  Status LookAtBranch(BranchId id, bool used, const Look& look) override {
    const uint64_t now_ns = used ? core_->NowNs() : 0;
    Lock lock(core_->mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, core_->access_.LoadBranch(id, &lock));
    CAIRN_RETURN_IF_ERROR(look(core_->tree_, *head));
    if (used) core_->NoteUsed(*head, now_ns);
    return Status::Ok();
  }
  Status LookAtNode(NodeId id, const Look& look) override {
    const auto number = static_cast<uint64_t>(id);
    Lock lock(core_->mutex_);
    CAIRN_RETURN_IF_ERROR(core_->access_.Load(
        {.branches = {}, .nodes = {number}, .names = {}, .decided = true}, &lock));
    const engine::Node* node = core_->tree_.FindNode(number);
    if (node == nullptr) {
      return Status(StatusCode::kNotFound, "there is no node " + std::to_string(number));
    }
    return look(core_->tree_, engine::HeadOfNode(*node));
  }
  bool read_only() const override { return core_->options_.read_only; }
  Status FollowWriter() override { return core_->follower_.Follow(/*look_anyway=*/true).status(); }
  Result<bool> WriterLives() override { return core_->follower_.WriterLives(); }
  Status Pace(uint64_t bytes) override { return core_->space_.pacer().Take(bytes, 0); }

 private:
  StoreCore* const core_;
};

void StoreCore::StartReader() {
  reader_host_ = std::make_unique<ReaderSide>(this);
  reader_.Start({.host = reader_host_.get(),
                 .log = log_.get(),
                 .executor = executor_.get(),
                 .background = background_executor_.get(),
                 .threads = executor_threads_});
}

Status StoreCore::RestoreMany(std::span<engine::RestoreItem> items, uint64_t timeout_ns) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  for (const engine::RestoreItem& item : items) {
    // As in LookAt.
    if (item.node == NodeId{}) static_cast<void>(FlushJoined(item.branch));
  }
  reader_.Restore(items, Deadline(timeout_ns));
  return Status::Ok();
}

Result<RestoreResult> StoreCore::RestoreLayers(BranchId id, const RestoreRequest& request,
                                               engine::LayerWords* layers,
                                               const TicketState* ticket) {
  engine::RestoreItem item{
      .branch = id, .request = request, .shift = 0, .layers = layers, .ticket = ticket};
  CAIRN_RETURN_IF_ERROR(RestoreMany({&item, 1}, request.timeout_ns));
  CAIRN_RETURN_IF_ERROR(item.status);
  return std::move(item.result);
}

Result<RestoreResult> StoreCore::Restore(BranchId id, const RestoreRequest& request,
                                         LayerProgress* progress) {
  engine::LayerWords layers(*world_.scheduler, progress);
  auto result = RestoreLayers(id, request, &layers, nullptr);
  layers.End(result.ok());
  return result;
}

Result<Ticket> StoreCore::RestoreAsync(BranchId id, const RestoreRequest& request,
                                       LayerProgress* progress) {
  const Use use(this);
  const auto layers = std::make_shared<engine::LayerWords>(*world_.scheduler, progress);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  auto state = std::make_shared<TicketState>(
      world_, request.queue == nullptr ? nullptr : request.queue->state(), request.user_data);
  state->is_job = true;
  state->restored = std::make_shared<RestoreResult>();
  state->layers = layers->words();
  state->abandoned = [layers] { layers->End(false); };
  executor_->Post([self = shared_from_this(), id, request, layers, state] {
    if (!state->BeginJob()) return;
    Result<RestoreResult> restored =
        Guarded([&] { return self->RestoreLayers(id, request, layers.get(), state.get()); });
    layers->End(restored.ok());
    if (restored.ok()) *state->restored = std::move(*restored);
    state->Finish(restored.status());
  });
  return Ticket(state);
}

Status StoreCore::Prefetch(BranchId id, uint64_t begin, uint64_t end) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  {
    std::lock_guard lock(mutex_);
    uint64_t length = UINT64_MAX;  // Of a branch that is not in memory nothing is known yet.
    if (const engine::Head* const head = tree_.FindHead(static_cast<uint64_t>(id))) {
      const auto waiting = joined_.find(id);
      length = head->lengths[engine::kTokenLane] +
               (waiting == joined_.end() ? 0 : waiting->second->tokens.size());
    }
    CAIRN_RETURN_IF_ERROR(engine::RangeOf(begin, end, length, "prefetch").status());
  }
  if (prefetches_waiting_.fetch_add(1) >= engine::kPrefetchesMax) {
    prefetches_waiting_.fetch_sub(1);
    return Status(StatusCode::kBusy, std::to_string(engine::kPrefetchesMax) + " hints are waiting");
  }
  const auto job = [self = shared_from_this(), id, begin, end] {
    const Status status = Guarded([&] { return self->PrefetchNow(id, begin, end); });
    engine::ReaderCounters& counters = self->reader_.counters();
    counters.prefetches.fetch_add(1, std::memory_order_relaxed);
    if (!status.ok()) counters.prefetches_failed.fetch_add(1, std::memory_order_relaxed);
    self->prefetches_waiting_.fetch_sub(1);
  };
  Status posted = Guarded([&] { prefetch_executor_->Post(job); });
  if (!posted.ok()) prefetches_waiting_.fetch_sub(1);
  return posted;
}

Status StoreCore::PrefetchNow(BranchId id, uint64_t begin, uint64_t end) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  return reader_.Prefetch(id, begin, end);
}

Result<std::vector<TokenId>> StoreCore::ReadTokens(BranchId id, uint64_t begin, uint64_t end) {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t length, Length(id));
  CAIRN_ASSIGN_OR_RETURN(const engine::Range range,
                         engine::RangeOf(begin, end, length, "token ids"));
  std::vector<TokenId> tokens(range.end - range.begin);
  if (tokens.empty()) return tokens;
  RestoreRequest request;
  request.begin = range.begin;
  request.end = range.end;
  request.tokens = tokens;
  CAIRN_RETURN_IF_ERROR(Restore(id, request, nullptr).status());
  return tokens;
}

Result<Branch::StateAt> StoreCore::StateAt(BranchId id, uint64_t position, bool sampler) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  static_cast<void>(FlushJoined(id));  // As in LookAt.
  CAIRN_ASSIGN_OR_RETURN(
      const engine::Reader::State state,
      reader_.ReadState({.branch = id, .sampler = sampler, .position = position}));
  Branch::StateAt result;
  result.position = state.position;
  if (sampler) {
    CAIRN_ASSIGN_OR_RETURN(result.sampler, engine::DecodeSampler(state.encoded));
  } else {
    CAIRN_ASSIGN_OR_RETURN(result.metadata, engine::DecodeMetadata(state.encoded));
  }
  return result;
}

}  // namespace cairn
