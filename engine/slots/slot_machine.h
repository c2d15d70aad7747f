// SPDX-License-Identifier: Apache-2.0
//
// The states of slots (cairn/kv_slots.h), as plain values: no memory, no lock, no clock. So a test
// can copy it, and explore all orders of what may happen.
//
// `Rules` says which rules are kept: in the product all of them. A test takes one out and sees
// whether its exploration notices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "cairn/kv_slots.h"

namespace cairn::engine {

enum class SlotRule : uint8_t {
  kAllRanksFill,       // A slot is filled once all ranks have reported.
  kCopiedAll,          // A rank that failed has filled nothing.
  kGoneIsNotFilled,    // Neither has one that is gone.
  kOneReportEach,      // A second report of a rank is not another's.
  kUseIsCompared,      // A report of an earlier use counts for nothing.
  kRestoreFirst,       // Ranks are told of a load when it has been restored.
  kLeftUntilCopied,    // A use that was given up keeps its slot while ranks may touch it,
  kLeftUntilRestored,  // or a restore may.
  kAppendGoesOn,       // An append keeps its slot, though the request is over.
  kGoneIsCounted,      // A use does not wait for a rank that is gone.
  kNoneWithoutRank,    // No use begins while a rank is gone.
};

struct AllSlotRules {
  static constexpr bool Keeps(SlotRule /*rule*/) { return true; }
};

template <typename Rules>
class SlotMachine {
 public:
  SlotMachine(uint32_t slots, uint32_t ranks) : slots_(slots), gone_(ranks, false), ranks_(ranks) {
    for (Slot& slot : slots_) slot.reported.resize(ranks);
  }

  Result<SlotUse> Begin(SlotState as) {
    CAIRN_CHECK(as == SlotState::kFilling || as == SlotState::kRestoring);
    if (gone_count_ != 0 && Rules::Keeps(SlotRule::kNoneWithoutRank)) {
      return Status(StatusCode::kBusy, "slots: " + std::to_string(gone_count_) + " of " +
                                           std::to_string(ranks_) + " ranks are gone");
    }
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      const uint32_t at = (next_ + i) % static_cast<uint32_t>(slots_.size());
      Slot& slot = slots_[at];
      if (slot.state != SlotState::kFree) continue;
      next_ = at + 1;
      slot.number = ++uses_;
      Move(&slot, as);
      if (as == SlotState::kRestoring && !Rules::Keeps(SlotRule::kRestoreFirst)) {
        Tell(&slot, SlotState::kEmptying);
      }
      if (as == SlotState::kFilling) Await(&slot);
      return SlotUse{at, slot.number};
    }
    ++refused_;
    return Status(StatusCode::kBusy,
                  "slots: none of " + std::to_string(slots_.size()) + " is free");
  }

  Result<SlotNews> Report(const SlotUse& use, uint32_t rank, bool copied) {
    Result<SlotNews> news = TryReport(use, rank, copied);
    if (!news.ok()) ++strange_;
    return news;
  }

  Status BeginAppend(const SlotUse& use) {
    CAIRN_ASSIGN_OR_RETURN(Slot * slot, Find(use));
    CAIRN_RETURN_IF_ERROR(Expect(*slot, SlotState::kFilled));
    Move(slot, SlotState::kAppending);
    return Status::Ok();
  }
  Status EndAppend(const SlotUse& use) {
    CAIRN_ASSIGN_OR_RETURN(Slot * slot, Find(use));
    CAIRN_RETURN_IF_ERROR(Expect(*slot, SlotState::kAppending));
    Free(slot);
    return Status::Ok();
  }

  Result<bool> EndRestore(const SlotUse& use, bool restored) {
    CAIRN_ASSIGN_OR_RETURN(Slot * slot, Find(use));
    if (slot->state == SlotState::kLeft && slot->restoring) {
      Free(slot);
      return false;
    }
    CAIRN_RETURN_IF_ERROR(Expect(*slot, SlotState::kRestoring));
    if (!restored || gone_count_ != 0) {
      ++failed_;
      Free(slot);
      return false;
    }
    Tell(slot, SlotState::kEmptying);
    return true;
  }

  Result<SlotState> Leave(const SlotUse& use) {
    CAIRN_ASSIGN_OR_RETURN(Slot * slot, Find(use));
    switch (slot->state) {
      case SlotState::kFilling:
      case SlotState::kEmptying:
        if (Rules::Keeps(SlotRule::kLeftUntilCopied)) {
          Move(slot, SlotState::kLeft);
        } else {
          Free(slot);
        }
        break;
      case SlotState::kRestoring:
        if (Rules::Keeps(SlotRule::kLeftUntilRestored)) {
          Move(slot, SlotState::kLeft);
        } else {
          Free(slot);
        }
        break;
      case SlotState::kFilled: Free(slot); break;
      case SlotState::kAppending:
        if (!Rules::Keeps(SlotRule::kAppendGoesOn)) Free(slot);
        break;
      case SlotState::kLeft: break;
      case SlotState::kFree: CAIRN_CHECK(false);  // Find refuses it.
    }
    return slot->state;
  }

  Status RankGone(uint32_t rank) {
    CAIRN_RETURN_IF_ERROR(CheckRank(rank));
    if (gone_[rank]) return Status(StatusCode::kConflict, RankText(rank) + " is gone already");
    gone_[rank] = true;
    ++gone_count_;
    for (Slot& slot : slots_) {
      if (slot.missing == 0 || slot.reported[rank] || !Rules::Keeps(SlotRule::kGoneIsCounted)) {
        continue;
      }
      Note(&slot, rank, !Rules::Keeps(SlotRule::kGoneIsNotFilled));
    }
    return Status::Ok();
  }
  Status RankCame(uint32_t rank) {
    CAIRN_RETURN_IF_ERROR(CheckRank(rank));
    if (!gone_[rank]) return Status(StatusCode::kConflict, RankText(rank) + " is not gone");
    gone_[rank] = false;
    --gone_count_;
    return Status::Ok();
  }

  Result<SlotState> StateOf(const SlotUse& use) const {
    CAIRN_ASSIGN_OR_RETURN(const Slot* slot, Find(use));
    return slot->state;
  }
  Result<uint32_t> MissingReports(const SlotUse& use) const {
    CAIRN_ASSIGN_OR_RETURN(const Slot* slot, Find(use));
    return slot->missing;
  }
  SlotCounts Counts() const {
    SlotCounts counts{.slots = slots_.size(),
                      .uses = uses_,
                      .refused = refused_,
                      .failed = failed_,
                      .strange = strange_};
    uint64_t* const of[] = {&counts.free,      &counts.filling,  &counts.filled, &counts.appending,
                            &counts.restoring, &counts.emptying, &counts.left};
    for (const Slot& slot : slots_) ++*of[static_cast<size_t>(slot.state)];
    return counts;
  }
  // Gives all that its future depends on to `see`: equal machines give the same numbers.
  template <typename See>
  void Visit(const See& see) const {
    for (const Slot& slot : slots_) {
      for (const uint64_t value :
           {static_cast<uint64_t>(slot.state), slot.number, uint64_t{slot.missing},
            uint64_t{slot.restoring}, uint64_t{slot.has_failed}}) {
        see(value);
      }
      for (const bool reported : slot.reported) see(uint64_t{reported});
    }
    for (const bool gone : gone_) see(uint64_t{gone});
    see(uint64_t{next_});
    see(uses_);
  }
  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }
  uint32_t ranks() const { return ranks_; }

 private:
  struct Slot {
    SlotState state = SlotState::kFree;
    uint64_t number = 0;           // The number of its use.
    uint32_t missing = 0;          // Ranks that were told, and have not reported.
    bool restoring = false;        // A restore may write to it.
    bool has_failed = false;       // A rank did not copy.
    std::vector<bool> reported{};  // By rank.
  };

  // Which states may follow which: rows in the order of SlotState, a bit for each next one.
  static bool MayFollow(SlotState from, SlotState to) {
    constexpr auto bit = [](SlotState state) { return 1u << static_cast<unsigned>(state); };
    constexpr unsigned next[] = {
        bit(SlotState::kFilling) | bit(SlotState::kRestoring),
        bit(SlotState::kFilled) | bit(SlotState::kFree) | bit(SlotState::kLeft),
        bit(SlotState::kAppending) | bit(SlotState::kFree),
        bit(SlotState::kFree),
        bit(SlotState::kEmptying) | bit(SlotState::kFree) | bit(SlotState::kLeft),
        bit(SlotState::kFree) | bit(SlotState::kLeft),
        bit(SlotState::kFree)};
    return (next[static_cast<size_t>(from)] & bit(to)) != 0;
  }
  void Move(Slot* slot, SlotState to) {
    CAIRN_CHECK(MayFollow(slot->state, to));
    if (to == SlotState::kRestoring) slot->restoring = true;
    slot->state = to;
  }
  void Free(Slot* slot) {
    Move(slot, SlotState::kFree);
    slot->missing = 0;
    slot->restoring = slot->has_failed = false;
  }
  void Tell(Slot* slot, SlotState as) {
    Move(slot, as);
    slot->restoring = false;
    Await(slot);
  }
  void Await(Slot* slot) {
    slot->missing = ranks_;
    slot->reported.assign(ranks_, false);
  }

  std::string RankText(uint32_t rank) const { return "slots: rank " + std::to_string(rank); }
  Status CheckRank(uint32_t rank) const {
    if (rank < ranks_) return Status::Ok();
    return Status(StatusCode::kInvalidArgument,
                  RankText(rank) + " of " + std::to_string(ranks_) + " does not exist");
  }
  Result<const Slot*> Find(const SlotUse& use) const {
    if (use.slot >= slots_.size()) {
      return Status(StatusCode::kInvalidArgument, "slots: slot " + std::to_string(use.slot) +
                                                      " of " + std::to_string(slots_.size()) +
                                                      " does not exist");
    }
    const Slot& slot = slots_[use.slot];
    const bool same = slot.number == use.number || !Rules::Keeps(SlotRule::kUseIsCompared);
    if (use.number == 0 || slot.state == SlotState::kFree || !same) {
      return Status(StatusCode::kStale, "slots: use " + std::to_string(use.number) + " of slot " +
                                            std::to_string(use.slot) + " is over");
    }
    return &slot;
  }
  Result<Slot*> Find(const SlotUse& use) {
    CAIRN_ASSIGN_OR_RETURN(const Slot* found, static_cast<const SlotMachine*>(this)->Find(use));
    return const_cast<Slot*>(found);
  }
  static Status Expect(const Slot& slot, SlotState state) {
    if (slot.state == state) return Status::Ok();
    return Status(StatusCode::kInvalidState, std::string("slots: the slot is ") +
                                                 SlotStateName(slot.state) + ", not " +
                                                 SlotStateName(state));
  }

  Result<SlotNews> TryReport(const SlotUse& use, uint32_t rank, bool copied) {
    CAIRN_RETURN_IF_ERROR(CheckRank(rank));
    CAIRN_ASSIGN_OR_RETURN(Slot * slot, Find(use));
    if (slot->missing == 0) {
      return Status(StatusCode::kInvalidState, "slots: the slot is " +
                                                   std::string(SlotStateName(slot->state)) +
                                                   ", and no report of it is missing");
    }
    if ((slot->reported[rank] && Rules::Keeps(SlotRule::kOneReportEach)) || gone_[rank]) {
      return Status(StatusCode::kConflict, RankText(rank) + " has reported already, or is gone");
    }
    return Note(slot, rank, copied);
  }

  SlotNews Note(Slot* slot, uint32_t rank, bool copied) {
    slot->reported[rank] = true;
    slot->has_failed |= !copied && Rules::Keeps(SlotRule::kCopiedAll);
    --slot->missing;
    const bool over = slot->missing == 0 || (slot->state == SlotState::kFilling &&
                                             !Rules::Keeps(SlotRule::kAllRanksFill));
    SlotNews news{slot->state, over, over && !slot->has_failed};
    if (!over) return news;
    if (slot->has_failed) ++failed_;
    if (slot->state == SlotState::kFilling && !slot->has_failed) {
      slot->missing = 0;
      Move(slot, SlotState::kFilled);
    } else {
      if (slot->state == SlotState::kLeft) news.all_copied = false;
      Free(slot);
    }
    news.state = slot->state;
    return news;
  }

  std::vector<Slot> slots_;
  std::vector<bool> gone_;  // By rank.
  uint32_t ranks_;
  uint32_t gone_count_ = 0;
  uint32_t next_ = 0;  // Where the search for a free one begins.
  uint64_t uses_ = 0, refused_ = 0, failed_ = 0, strange_ = 0;
};

}  // namespace cairn::engine
