// SPDX-License-Identifier: Apache-2.0
//
// Drafts: KV is staged layer by layer while the model computes, and appended when the tokens are
// known.
#include <algorithm>
#include <new>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "base/core/text.h"
#include "base/io/no_cancel.h"
#include "engine/commit/gpu_puts.h"
#include "engine/store/store_core.h"
#include "engine/tree/memory/retention.h"

namespace cairn {

class [[gnu::visibility("hidden")]] DraftState : public std::enable_shared_from_this<DraftState> {
 public:
  DraftState(std::shared_ptr<StoreCore> core, BranchId id, uint64_t length, uint64_t version,
             uint64_t positions, std::unique_ptr<engine::KvStaging> staging)
      : core_(std::move(core)),
        id_(id),
        length_(length),
        version_(version),
        positions_(positions),
        staging_(std::move(staging)),
        puts_(std::make_shared<engine::GpuPuts>(core_->write_means(), staging_.get())) {
    for (const LayerGroup& group : staging_->model().groups) staged_.emplace_back(group.layers);
  }

  ~DraftState() { puts_->Stop(); }
  DraftState(const DraftState&) = delete;
  DraftState& operator=(const DraftState&) = delete;

  // The staging memory of a draft in a child of fork() belongs to the parent.
  static void Destroy(DraftState * draft) {
    const io::NoCancel guard;
    if (!draft->core_->lifecycle().IsInChild()) delete draft;
  }

  Status Put(uint32_t layer, const GroupView& view) {
    CAIRN_RETURN_IF_ERROR(CheckPut(layer, {.groups = std::span(&view, 1)}));
    staging_->Put(view, layer, 0);
    MarkStaged(layer, view);
    return Status::Ok();
  }

  Status PutFromGpu(uint32_t layer, const KvView& kv, uintptr_t ready) {
    if (kv.groups.size() != 1) return Bad("PutFromGpu takes a view of one group");
    const engine::Lifecycle::Call call(core_->write_means().lifecycle);
    CAIRN_RETURN_IF_ERROR(core_->lifecycle().CheckUsable());
    CAIRN_RETURN_IF_ERROR(CheckPut(layer, kv));
    CAIRN_RETURN_IF_ERROR(puts_->Put(layer, kv, ready));
    has_puts_.store(true, std::memory_order_release);
    MarkStaged(layer, kv.groups[0]);
    return Status::Ok();
  }

  Result<Ticket> Commit(const Delta& delta, const AppendOptions& options) {
    CAIRN_RETURN_IF_ERROR(core_->lifecycle().CheckProcess());
    for (size_t i = 0; delta.kv != nullptr && i < delta.kv->groups.size(); ++i) {
      const uint32_t group = delta.kv->groups[i].group;
      const std::vector<LayerGroup>& groups = staging_->model().groups;
      if (group < groups.size() && engine::KeepsStates(groups[group])) continue;
      return Bad("the KV of a draft is what was Put; only states are given to Commit");
    }
    if (delta.tokens.size() > positions_) {
      return Bad(std::to_string(delta.tokens.size()) + " tokens for a draft of " +
                 std::to_string(positions_));
    }
    if (ended_.exchange(true)) return Ended();
    auto ticket = CommitEnded(delta, options);
    if (!ticket.ok()) {  // Nothing was applied: it may be tried again, or aborted.
      views_.clear();
      puts_->Uncommit();
      owner_.reset();
      ended_.store(false);
      if (aborted_.load()) Abort();  // Another handle aborted it meanwhile.
    }
    return ticket;
  }

  void Abort() {
    // The threads that end the puts, which must be waited for, are the parent's.
    if (core_->lifecycle().IsInChild()) return;
    aborted_.store(true);
    // A committed append goes on, whatever other handles do.
    if (!ended_.exchange(true)) puts_->Stop();
  }

 private:
  Status CheckPut(uint32_t layer, const KvView& kv) const {
    CAIRN_RETURN_IF_ERROR(core_->lifecycle().CheckProcess());
    const ModelSpec& model = staging_->model();
    CAIRN_RETURN_IF_ERROR(ValidateKvView(model, kv, KvUse::kRestore));
    const GroupView& view = kv.groups[0];
    if (layer >= model.groups[view.group].layers) {
      return Bad("layer " + std::to_string(layer) + " of group " + std::to_string(view.group) +
                 " does not exist");
    }
    if (view.planes[0].layer_bases.size() != 1) return Bad("Put takes one layer base a plane");
    if (engine::KeepsStates(model.groups[view.group])) {
      return Bad("group " + Quoted(model.groups[view.group].name) +
                 " keeps states, which are given to Commit");
    }
    const uint64_t first = staging_->position(view.group);
    const uint64_t next = first + staged_[view.group][layer].load(std::memory_order_acquire);
    if (view.position < first || view.position > next ||
        view.position + view.count > first + staging_->capacity()) {
      return Bad("positions [" + std::to_string(view.position) + ", " +
                 std::to_string(view.position + view.count) + ") of layer " +
                 std::to_string(layer) + "; the draft goes on at " + std::to_string(next) +
                 " and ends at " + std::to_string(first + staging_->capacity()));
    }
    if (view.position < next && puts_->IsPending(view.group, layer)) {
      return Status(StatusCode::kBusy, "draft: layer " + std::to_string(layer) +
                                           " is being gathered; what repeats it must wait");
    }
    return ended_.load(std::memory_order_acquire) ? Ended() : Status::Ok();
  }
  void MarkStaged(uint32_t layer, const GroupView& view) {
    std::atomic<uint64_t>& staged = staged_[view.group][layer];
    const uint64_t end = view.position + view.count - staging_->position(view.group);
    if (end > staged.load(std::memory_order_relaxed)) staged.store(end, std::memory_order_release);
  }

  Result<Ticket> CommitEnded(const Delta& delta, const AppendOptions& options) try {
    Delta whole = delta;
    for (uint32_t group = 0; group < staged_.size(); ++group) {
      uint64_t count = staging_->capacity();
      for (const std::atomic<uint64_t>& staged : staged_[group]) {
        count = std::min(count, staged.load(std::memory_order_acquire));
      }
      const uint64_t first = staging_->position(group);
      const uint64_t end = length_ + delta.tokens.size();
      count = std::min(count, end > first ? end - first : 0);
      if (count != 0) views_.push_back(staging_->View(group, count));
    }
    if (delta.kv != nullptr) {
      views_.insert(views_.end(), delta.kv->groups.begin(), delta.kv->groups.end());
    }
    kv_.groups = views_;
    if (delta.kv != nullptr && delta.kv->memory != MemoryKind::kHost) {
      return Bad("states are given to Commit in host memory");
    }
    if (!views_.empty()) whole.kv = &kv_;
    owner_ = options.owner;  // Freed when no put is read any more.
    engine::Drafted drafted{.owner = shared_from_this(), .version = version_};
    if (has_puts_.load(std::memory_order_acquire)) drafted.arrival = puts_->arrival();
    return core_->appender().Append(id_, whole, options, std::move(drafted));
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }

  static Status Bad(std::string what) {
    return Status(StatusCode::kInvalidArgument, "draft: " + std::move(what));
  }
  static Status Ended() {
    return Status(StatusCode::kInvalidState, "the draft was committed or aborted");
  }

  std::shared_ptr<const void> owner_;  // AppendOptions::owner of the commit.
  const std::shared_ptr<StoreCore> core_;
  const BranchId id_;
  const uint64_t length_, version_;  // The branch's at BeginAppend.
  const uint64_t positions_;
  const std::unique_ptr<engine::KvStaging> staging_;
  const std::shared_ptr<engine::GpuPuts> puts_;
  std::atomic<bool> has_puts_{false};
  std::vector<std::vector<std::atomic<uint64_t>>> staged_;  // Positions, by group and layer.
  std::atomic<bool> ended_{false}, aborted_{false};
  std::vector<GroupView> views_;  // Borrowed by the append.
  KvView kv_;
};

Result<Draft> StoreCore::BeginAppend(BranchId id, uint64_t positions) {
  CAIRN_RETURN_IF_ERROR(lifecycle_.CheckWritable());
  CAIRN_RETURN_IF_ERROR(coalesced_.Flush(id));
  if (positions == 0 || positions > kMaxAppendTokens) {
    return Status(StatusCode::kInvalidArgument, "positions is " + std::to_string(positions) +
                                                    "; a draft has 1 to " +
                                                    std::to_string(kMaxAppendTokens));
  }
  std::shared_ptr<const ModelSpec> model;
  std::vector<uint64_t> first;
  uint64_t length = 0, version = 0, lag = 0;
  {
    engine::Committer::Lock lock(committer_.mutex());
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, access_.LoadToChange(id, &lock));
    model = committer_.tree().FindModel(head->model);
    first.assign(head->lengths.begin() + 1, head->lengths.end());
    length = head->lengths[engine::kTokenLane];
    version = head->version;
    for (size_t group = 0; group < first.size(); ++group) {
      if (engine::KeepsStates(model->groups[group])) continue;
      lag = std::max(lag, length - first[group]);
    }
  }
  CAIRN_ASSIGN_OR_RETURN(auto staging, engine::KvStaging::Make(&staging_, std::move(model),
                                                               std::move(first), positions + lag));
  return Draft(std::shared_ptr<DraftState>(
      new DraftState(shared_from_this(), id, length, version, positions, std::move(staging)),
      DraftState::Destroy));
}

Status Draft::Put(uint32_t layer, const GroupView& view) {
  if (state_ == nullptr) return Status(StatusCode::kInvalidState, "an empty draft");
  const io::NoCancel guard;
  return CatchBadAlloc([&] { return state_->Put(layer, view); });
}

Status Draft::PutFromGpu(uint32_t layer, const KvView& view, uintptr_t ready) {
  if (state_ == nullptr) return Status(StatusCode::kInvalidState, "an empty draft");
  const io::NoCancel guard;
  return CatchBadAlloc([&] { return state_->PutFromGpu(layer, view, ready); });
}

Result<Ticket> Draft::Commit(const Delta& delta, const AppendOptions& options) {
  if (state_ == nullptr) return Status(StatusCode::kInvalidState, "an empty draft");
  const io::NoCancel guard;
  auto ticket = CatchBadAlloc([&] { return state_->Commit(delta, options); });
  if (ticket.ok()) state_.reset();
  return ticket;
}

void Draft::Abort() {
  if (state_ != nullptr) state_->Abort();
  state_.reset();
}

}  // namespace cairn
