// SPDX-License-Identifier: Apache-2.0
//
// Files that space management would like to recycle or delete, but that readers or appends under
// way still need: log segments and snapshot tables. A pin is taken under the
// commit lock, where the plan is made, so that nothing the plan names is deleted before.
//
// There are as many pins as reads under way, so each question looks at all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "engine/restore/plan/plan.h"

namespace cairn::engine {

class Pins {
 public:
  // What needs the files. The numbers are StoreMetrics::log_pinned_by.
  enum class Of : uint8_t {
    kBranch = 1,  // A read of a branch.
    kNode = 2,    // A read of a node's path: of a hit, or for a search.
    kParts = 3,   // A large append: its parts are in the log, and no node names them yet.
    kVerify = 4,
    kReplay = 5,  // The log failed, and is read again.
  };
  struct Holder {
    Of of = Of::kBranch;
    uint64_t id = 0;               // The branch's or node's number; 0: none.
    std::string ToString() const;  // "a read of branch 7"
  };

  // Unpins when it is destroyed. If there is no memory its constructor throws and pins nothing.
  class Pin {
   public:
    Pin(Pins* pins, Holder holder, uint64_t lowest_segment, std::vector<uint64_t> segments,
        std::vector<uint64_t> tables);
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    friend class Pins;
    Pins* const pins_;
    const Holder holder_;
    const uint64_t lowest_segment_;  // It and all above...
    // ...or these, and these tables; both ascending.
    const std::vector<uint64_t> segments_, tables_;
    const uint64_t since_ns_;
    std::list<const Pin*> alone_;  // Holds the entry until it is among the others.
    const std::list<const Pin*>::const_iterator entry_;
  };

  // Who needs a segment: of several the first one that came.
  struct Held {
    Holder holder{};
    uint64_t segment = 0;
    uint64_t since_ns = 0;                        // By the clock of the constructor.
    std::string ToString(uint64_t now_ns) const;  // "segment 5 has been needed for 3 s by ...".
  };

  // `now_ns` is the monotonic clock. `on_end` is called by the thread that ends a pin, if a Hold...
  // call had found something pinned.
  Pins(std::function<uint64_t()> now_ns, std::function<void()> on_end)
      : now_ns_(std::move(now_ns)), on_end_(std::move(on_end)) {}

  std::unique_ptr<Pin> Take(Holder holder, const RestorePlan& plan);
  // Segments from this one on.
  std::unique_ptr<Pin> TakeFrom(Holder holder, uint64_t lowest_segment) {
    return std::make_unique<Pin>(this, holder, lowest_segment, std::vector<uint64_t>(),
                                 std::vector<uint64_t>());
  }
  // These files; both ascend.
  std::unique_ptr<Pin> Take(Holder holder, std::vector<uint64_t> segments,
                            std::vector<uint64_t> tables) {
    return std::make_unique<Pin>(this, holder, UINT64_MAX, std::move(segments), std::move(tables));
  }

  uint64_t LowestOfParts() const;  // UINT64_MAX: there are none.
  // Whether the log segment, or the table, is pinned.
  bool HoldSegment(uint64_t segment);
  bool HoldTable(uint64_t table);
  std::optional<Held> HolderOf(uint64_t segment) const;

 private:
  const Pin* FirstOf(uint64_t segment) const CAIRN_REQUIRES(mutex_);

  const std::function<uint64_t()> now_ns_;
  const std::function<void()> on_end_;
  mutable Mutex mutex_;
  bool awaited_ CAIRN_GUARDED_BY(mutex_) = false;       // on_end_ must be called when a pin ends.
  std::list<const Pin*> all_ CAIRN_GUARDED_BY(mutex_);  // The oldest first.
};

}  // namespace cairn::engine
