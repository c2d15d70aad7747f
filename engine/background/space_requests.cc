// SPDX-License-Identifier: Apache-2.0
#include "engine/background/space_requests.h"

#include <algorithm>

#include "base/core/check.h"
#include "engine/config/constants.h"

namespace cairn::engine {

using Lock = Committer::Lock;

static Status NotMadeInTime(const Status& refusal) {
  return Status(StatusCode::kDeadlineExceeded,
                "room was not made in time: " + std::string(refusal.message()));
}

// Never evict the branch whose own append is waiting for room.
class SpaceRequests::Registration {
 public:
  Registration(SpaceRequests* requests, std::optional<BranchId> id) : requests_(requests), id_(id) {
    if (!id_.has_value()) return;
    std::lock_guard lock(requests_->mutex_);
    requests_->requesting_.insert(*id_);
  }
  ~Registration() {
    if (!id_.has_value()) return;
    std::lock_guard lock(requests_->mutex_);
    requests_->requesting_.erase(requests_->requesting_.find(*id_));
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  SpaceRequests* const requests_;
  const std::optional<BranchId> id_;
};

Evict SpaceRequests::EvictOf(const NamespaceUsage& use) const {
  return use.policy.evict.value_or(deps_.options->evict);
}

Evict SpaceRequests::EvictOf(std::string_view ns) const {
  const NamespaceUsage* const use = tree_.FindNamespace(ns);
  return use == nullptr ? deps_.options->evict : EvictOf(*use);
}

// Under the commit lock.
bool SpaceRequests::SomethingMayGo() const {
  if (deps_.options->evict != Evict::kNever && tree_.sums().unloaded() > 0) return true;
  const Tree::Namespaces& all = tree_.namespaces();
  return std::any_of(all.begin(), all.end(),
                     [this](const auto& entry) { return EvictOf(entry.second) != Evict::kNever; });
}

bool SpaceRequests::RoomIsShort() const {
  if (deps_.options->max_bytes == UINT64_MAX && !refused_.load()) return false;
  std::lock_guard lock(mutex_);
  if (!SomethingMayGo()) return false;
  return refused_.load() || deps_.ledger->used_bytes() > deps_.gauge->EvictionBegins();
}

Status SpaceRequests::MakeRoom(std::optional<BranchId> id, uint64_t bytes, const Status& refusal,
                               uint64_t deadline_ns, std::optional<uint32_t>* first_round) {
  const Registration registration(this, id);
  const Result<Request> told = Submit(id, bytes, refusal, /*waits=*/true);
  if (told.status().code() == StatusCode::kNoSpace && SealingMayHelp(bytes, refusal)) {
    return AwaitReclaim(refusal, deadline_ns, first_round);
  }
  CAIRN_ASSIGN_OR_RETURN(const Request request, told);
  while (true) {
    const uint32_t seen = deps_.signals->rounds();
    CAIRN_ASSIGN_OR_RETURN(const Outcome outcome, OutcomeOf(id, request));
    if (outcome == Outcome::kInVain) return refusal;
    if (outcome == Outcome::kMade) break;
    CAIRN_RETURN_IF_ERROR(deps_.callbacks->CheckWritable());
    CAIRN_RETURN_IF_ERROR(RefusedWhilePaused(refusal));
    if (!deps_.signals->AwaitRound(seen, deadline_ns)) return NotMadeInTime(refusal);
  }
  deps_.log->SpaceWasFreed();
  return Status::Ok();
}

Status SpaceRequests::WhileRoomIsMade(BranchId id, uint64_t bytes, const Status& refusal) {
  if (refusal.code() != StatusCode::kNoSpace) return refusal;
  // If a request for no more bytes failed before, return that; the next call makes a new request.
  Outcome outcome = Outcome::kMade;
  std::optional<Request> before;
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
    const Result<Request> request = Submit(id, bytes, refusal, /*waits=*/false);
    // The call itself would have made room.
    if (request.status().code() == StatusCode::kNotFound) return refusal;
    CAIRN_RETURN_IF_ERROR(request.status());
    const MutexLock lock(&queue_mutex_);
    if (busy_.size() >= kBusyRequestsMax) busy_.clear();
    busy_[id] = *request;
  } else if (outcome == Outcome::kInVain) {
    const MutexLock lock(&queue_mutex_);
    busy_.erase(id);
    return refusal;
  }
  return Status(StatusCode::kBusy, "room is being made: " + std::string(refusal.message()));
}

// The log repeats a refusal until it tries again, and what the disk has is counted only then. Where
// the file system refuses what it says it has, the next calls learn that.
bool SpaceRequests::HasRoomAgain() {
  const uint64_t now_ns = deps_.world.scheduler->MonotonicNs();
  const uint64_t looked_ns = room_looked_ns_.load();
  if (looked_ns != 0 && now_ns < looked_ns + kRoomLookNs) return room_seen_.load();
  room_looked_ns_.store(now_ns);
  deps_.ledger->LookAtDisk();
  const bool seen = deps_.ledger->room(wal::Purpose::kData) >= deps_.options->segment_bytes;
  room_seen_.store(seen);
  if (seen) deps_.log->SpaceWasFreed();
  return seen;
}

// Nothing may be evicted, but sealing packs the log's content.
bool SpaceRequests::SealingMayHelp(uint64_t bytes, const Status& refusal) const {
  if (refusal.reason() == StatusReason::kNamespaceQuota) return false;
  if (bytes > deps_.gauge->DataBytesAtMost()) return false;
  std::lock_guard lock(mutex_);
  return !SomethingMayGo();
}

// For calls that may have nothing evicted: a release, when even the ballast is used up, and data.
// Waits while the space thread gives back what it can; the refusal stands if that leaves no room.
// Otherwise processes that end soon would be refused one after the other, each before the space
// thread has sealed what the others left.
Status SpaceRequests::AwaitReclaim(const Status& refusal, uint64_t deadline_ns,
                                   std::optional<uint32_t>* first_round) {
  const uint32_t now = deps_.signals->rounds();
  if (!first_round->has_value()) *first_round = now;
  CAIRN_RETURN_IF_ERROR(RefusedWhilePaused(refusal));
  // The round under way may have missed something, the next will not.
  if (now - **first_round >= 2 || deps_.rate_limiter->stopped()) return refusal;
  deps_.signals->Wake();
  const uint64_t now_ns = deps_.world.scheduler->MonotonicNs();
  if (now_ns >= deadline_ns) return NotMadeInTime(refusal);
  deps_.signals->AwaitRound(now, std::min(deadline_ns, now_ns + kRoomLookAgainNs));
  return Status::Ok();
}

// No room is made then, and the caller that waited for it might be the one that must resume.
Status SpaceRequests::RefusedWhilePaused(const Status& refusal) const {
  return deps_.rate_limiter->paused() ? refusal.WithContext("the background is paused")
                                      : Status::Ok();
}

// The outcome of a request.
Result<SpaceRequests::Outcome> SpaceRequests::OutcomeOf(std::optional<BranchId> id,
                                                        const Request& request) {
  bool made = false;
  {
    const MutexLock lock(&queue_mutex_);
    if (passes_done_ < request.pass) return Outcome::kPending;
    // Room that comes and goes on its own, such as a table of the index, does not count.
    made = made_for_ >= request.pass ||
           (deps_.ledger->used_bytes() < request.used_bytes &&
            deps_.ledger->room(wal::Purpose::kData) >= deps_.options->segment_bytes);
  }
  if (id.has_value()) {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const Head* head, deps_.access->LoadBranch(*id, &lock));
    const NamespaceUsage& use = *head->use;
    // Space given back by the store does not widen a quota.
    if (request.by_quota) {
      made = use.evictions != request.evictions ||
             use.bytes + request.quota.bytes <= use.policy.max_bytes;
    }
    made |= head->lengths[kTokenLane] != request.quota.length;
  }
  return made ? Outcome::kMade : Outcome::kInVain;
}

// Passes the request to the space thread; returns the refusal if nothing may be evicted. Does not
// wait.
Result<SpaceRequests::Request> SpaceRequests::Submit(std::optional<BranchId> id, uint64_t bytes,
                                                     const Status& refusal, bool waits) {
  std::string ns;
  Request request{.call_bytes = bytes, .used_bytes = deps_.ledger->used_bytes()};
  {
    Lock lock(mutex_);
    bool allowed = SomethingMayGo();
    if (id.has_value()) {
      CAIRN_ASSIGN_OR_RETURN(const Head* head, deps_.access->LoadBranch(*id, &lock));
      const NamespaceUsage& use = *head->use;
      request.by_quota = refusal.reason() == StatusReason::kNamespaceQuota;
      if (request.by_quota) {
        // A table may hold more than the given bytes, appends that wait to be coalesced take room
        // as well, and parts of a batch may be for other namespaces.
        const uint64_t more = use.refused_bytes - std::min(use.refused_bytes, use.bytes);
        allowed = EvictOf(use) != Evict::kNever && std::min(bytes, more) <= use.policy.max_bytes;
        bytes = more;
      }
      ns = head->ns;
      request.quota = {.bytes = bytes, .length = head->lengths[kTokenLane]};
      request.evictions = use.evictions;
    }
    // Nothing is evicted for an append that an empty store could not hold.
    if (!request.by_quota) allowed &= bytes <= deps_.gauge->DataBytesAtMost();
    if (!allowed) return refusal;
  }
  if (waits) CAIRN_RETURN_IF_ERROR(RefusedWhilePaused(refusal));
  {
    const MutexLock lock(&queue_mutex_);
    if (request.by_quota) {
      QuotaRequest& quota = waiting_[ns][static_cast<uint64_t>(*id)];
      const uint64_t before = quota.length == request.quota.length ? quota.bytes : 0;
      quota = {.bytes = std::max(before, request.quota.bytes), .length = request.quota.length};
    } else {
      refused_.store(true);
    }
    request.pass = ++passes_wanted_;
  }
  deps_.signals->Wake();
  return request;
}

// ---------------------------------------------------------------- passes

SpaceRequests::Pass SpaceRequests::BeginPass() {
  Pass pass;
  const MutexLock lock(&queue_mutex_);
  pass.requests.swap(waiting_);
  pass.number = passes_wanted_;
  return pass;
}

void SpaceRequests::EndPass(Pass pass, Ended ended) {
  const MutexLock lock(&queue_mutex_);
  CAIRN_CHECK(passes_done_ <= pass.number && pass.number <= passes_wanted_);
  if (ended == Ended::kAwaitsReaders) {
    for (auto& [ns, requests] : pass.requests) waiting_[ns].merge(requests);
    return;
  }
  passes_done_ = pass.number;
  if (ended == Ended::kMade) made_for_ = pass.number;
  if (passes_wanted_ == pass.number) refused_.store(false);
}

}  // namespace cairn::engine
