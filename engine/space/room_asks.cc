// SPDX-License-Identifier: Apache-2.0
#include "engine/space/room_asks.h"

#include <algorithm>

#include "base/core/check.h"
#include "engine/constants.h"

namespace cairn::engine {

using Lock = Committer::Lock;

static Status NotMadeInTime(const Status& refusal) {
  return Status(StatusCode::kDeadlineExceeded,
                "room was not made in time: " + std::string(refusal.message()));
}

// Never evict the branch whose own append is waiting for room.
class RoomAsks::Asking {
 public:
  Asking(RoomAsks* asks, std::optional<BranchId> id) : asks_(asks), id_(id) {
    if (!id_.has_value()) return;
    std::lock_guard lock(asks_->mutex_);
    asks_->asking_.insert(*id_);
  }
  ~Asking() {
    if (!id_.has_value()) return;
    std::lock_guard lock(asks_->mutex_);
    asks_->asking_.erase(asks_->asking_.find(*id_));
  }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  RoomAsks* const asks_;
  const std::optional<BranchId> id_;
};

Evict RoomAsks::EvictOf(const NamespaceUse& use) const {
  return use.policy.evict.value_or(means_.options->evict);
}

// Under the commit lock.
bool RoomAsks::SomethingMayGo() const {
  const Tree::Namespaces& all = tree_.namespaces();
  return std::any_of(all.begin(), all.end(),
                     [this](const auto& entry) { return EvictOf(entry.second) != Evict::kNever; });
}

bool RoomAsks::RoomIsShort() const {
  if (means_.options->max_bytes == UINT64_MAX && !refused_.load()) return false;
  std::lock_guard lock(mutex_);
  if (!SomethingMayGo()) return false;
  return refused_.load() || means_.ledger->used_bytes() > means_.gauge->EvictionBegins();
}

Status RoomAsks::MakeRoom(std::optional<BranchId> id, uint64_t bytes, const Status& refusal,
                          uint64_t deadline_ns, std::optional<uint32_t>* first_round) {
  const Asking asking(this, id);
  const Result<Asked> told = Ask(id, bytes, refusal, /*waits=*/true);
  if (told.status().code() == StatusCode::kNoSpace && SealingMayHelp(bytes, refusal)) {
    return AwaitReclaim(refusal, deadline_ns, first_round);
  }
  CAIRN_ASSIGN_OR_RETURN(const Asked asked, told);
  while (true) {
    const uint32_t seen = means_.signals->rounds();
    CAIRN_ASSIGN_OR_RETURN(const Outcome outcome, OutcomeOf(id, asked));
    if (outcome == Outcome::kInVain) return refusal;
    if (outcome == Outcome::kMade) break;
    CAIRN_RETURN_IF_ERROR(means_.host->CheckWritable());
    CAIRN_RETURN_IF_ERROR(RefusedWhilePaused(refusal));
    if (!means_.signals->AwaitRound(seen, deadline_ns)) return NotMadeInTime(refusal);
  }
  means_.log->SpaceWasFreed();
  return Status::Ok();
}

Status RoomAsks::WhileRoomIsMade(BranchId id, uint64_t bytes, const Status& refusal) {
  if (refusal.code() != StatusCode::kNoSpace) return refusal;
  // If as much was asked for before in vain, return that; the next call asks anew.
  Outcome outcome = Outcome::kMade;
  std::optional<Asked> before;
  {
    const MutexLock lock(&queue_mutex_);
    const auto found = busy_.find(id);
    if (found != busy_.end() && found->second.call_bytes <= bytes) before = found->second;
  }
  if (before.has_value()) {
    const Result<Outcome> known = OutcomeOf(id, *before);
    if (known.status().code() == StatusCode::kNotFound) return refusal;
    CAIRN_RETURN_IF_ERROR(known.status());
    outcome = *known;
  }
  if (outcome == Outcome::kMade) {
    const Result<Asked> asked = Ask(id, bytes, refusal, /*waits=*/false);
    // The call itself would have made room.
    if (asked.status().code() == StatusCode::kNotFound) return refusal;
    CAIRN_RETURN_IF_ERROR(asked.status());
    const MutexLock lock(&queue_mutex_);
    if (busy_.size() >= kBusyAsksMax) busy_.clear();
    busy_[id] = *asked;
  } else if (outcome == Outcome::kInVain) {
    const MutexLock lock(&queue_mutex_);
    busy_.erase(id);
    return refusal;
  }
  return Status(StatusCode::kBusy, "room is being made: " + std::string(refusal.message()));
}

// Nothing may be evicted, but sealing packs the log's content.
bool RoomAsks::SealingMayHelp(uint64_t bytes, const Status& refusal) const {
  if (refusal.reason() == StatusReason::kNamespaceQuota) return false;
  if (!means_.host->IsIngested(bytes) && bytes > means_.gauge->LogBytesAtMost()) return false;
  std::lock_guard lock(mutex_);
  return !SomethingMayGo();
}

// For calls that may have nothing evicted: a release, when even the ballast is used up, and data.
// Waits while the space thread gives back what it can; the refusal stands if that leaves no room.
// Otherwise processes that end soon would be refused one after the other, each before the space
// thread has sealed what the others left.
Status RoomAsks::AwaitReclaim(const Status& refusal, uint64_t deadline_ns,
                              std::optional<uint32_t>* first_round) {
  const uint32_t now = means_.signals->rounds();
  if (!first_round->has_value()) *first_round = now;
  CAIRN_RETURN_IF_ERROR(RefusedWhilePaused(refusal));
  // The round under way may have missed something, the next will not.
  if (now - **first_round >= 2 || means_.pacer->stopped()) return refusal;
  means_.signals->Kick();
  const uint64_t now_ns = means_.world.scheduler->MonotonicNs();
  if (now_ns >= deadline_ns) return NotMadeInTime(refusal);
  means_.signals->AwaitRound(now, std::min(deadline_ns, now_ns + kRoomLookAgainNs));
  return Status::Ok();
}

// No room is made then, and the caller that waited for it might be the one that must resume.
Status RoomAsks::RefusedWhilePaused(const Status& refusal) const {
  return means_.pacer->paused() ? refusal.WithContext("the background is paused") : Status::Ok();
}

// The outcome of an ask.
Result<RoomAsks::Outcome> RoomAsks::OutcomeOf(std::optional<BranchId> id, const Asked& asked) {
  bool made = false;
  {
    const MutexLock lock(&queue_mutex_);
    if (passes_done_ < asked.pass) return Outcome::kPending;
    // Room that came and went by itself, such as a table of the index, does not count.
    const uint64_t needed = means_.host->IsIngested(asked.call_bytes)
                                ? asked.call_bytes
                                : means_.options->segment_bytes;
    made = made_for_ >= asked.pass || (means_.ledger->used_bytes() < asked.used_bytes &&
                                       means_.ledger->room(wal::Purpose::kData) >= needed);
  }
  if (id.has_value()) {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const Head* head, means_.access->LoadBranch(*id, &lock));
    const NamespaceUse& use = *head->use;
    // Space given back by the store does not widen a quota.
    if (asked.by_quota) {
      made =
          use.evictions != asked.evictions || use.bytes + asked.ask.bytes <= use.policy.max_bytes;
    }
    made |= head->lengths[kTokenLane] != asked.ask.length;
  }
  return made ? Outcome::kMade : Outcome::kInVain;
}

// Tells the space thread what is wanted; returns the refusal if nothing may be evicted. Does not
// wait.
Result<RoomAsks::Asked> RoomAsks::Ask(std::optional<BranchId> id, uint64_t bytes,
                                      const Status& refusal, bool waits) {
  std::string ns;
  Asked asked{.call_bytes = bytes, .used_bytes = means_.ledger->used_bytes()};
  {
    Lock lock(mutex_);
    bool allowed = SomethingMayGo();
    if (id.has_value()) {
      CAIRN_ASSIGN_OR_RETURN(const Head* head, means_.access->LoadBranch(*id, &lock));
      const NamespaceUse& use = *head->use;
      asked.by_quota = refusal.reason() == StatusReason::kNamespaceQuota;
      if (asked.by_quota) {
        // A table may hold more than the given bytes, appends that wait to be coalesced take room
        // as well, and parts of a batch may be for other namespaces.
        const uint64_t more = use.refused_bytes - std::min(use.refused_bytes, use.bytes);
        allowed = EvictOf(use) != Evict::kNever && std::min(bytes, more) <= use.policy.max_bytes;
        bytes = more;
      }
      ns = head->ns;
      asked.ask = {.bytes = bytes, .length = head->lengths[kTokenLane]};
      asked.evictions = use.evictions;
    }
    // Nothing is evicted for an append that the log could never hold.
    if (!asked.by_quota && !means_.host->IsIngested(bytes))
      allowed &= bytes <= means_.gauge->LogBytesAtMost();
    if (!allowed) return refusal;
  }
  if (waits) CAIRN_RETURN_IF_ERROR(RefusedWhilePaused(refusal));
  {
    const MutexLock lock(&queue_mutex_);
    if (asked.by_quota) {
      QuotaAsk& ask = waiting_[ns][static_cast<uint64_t>(*id)];
      const uint64_t before = ask.length == asked.ask.length ? ask.bytes : 0;
      ask = {.bytes = std::max(before, asked.ask.bytes), .length = asked.ask.length};
    } else {
      refused_.store(true);
    }
    asked.pass = ++passes_wanted_;
  }
  means_.signals->Kick();
  return asked;
}

// ---------------------------------------------------------------- passes

RoomAsks::Pass RoomAsks::BeginPass() {
  Pass pass;
  const MutexLock lock(&queue_mutex_);
  pass.asks.swap(waiting_);
  pass.number = passes_wanted_;
  return pass;
}

void RoomAsks::EndPass(Pass pass, Ended ended) {
  const MutexLock lock(&queue_mutex_);
  CAIRN_CHECK(passes_done_ <= pass.number && pass.number <= passes_wanted_);
  if (ended == Ended::kAwaitsReaders) {
    for (auto& [ns, asks] : pass.asks) waiting_[ns].merge(asks);
    return;
  }
  passes_done_ = pass.number;
  if (ended == Ended::kMade) made_for_ = pass.number;
  if (passes_wanted_ == pass.number) refused_.store(false);
}

}  // namespace cairn::engine
