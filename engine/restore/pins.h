// SPDX-License-Identifier: Apache-2.0
//
// Files that space management would like to recycle or delete, but that readers or appends under
// way still need: log segments from some number on, and snapshot tables. A pin is taken under the
// commit lock, where the plan is made, so that nothing the plan names is deleted before.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/core/mutex.h"
#include "engine/restore/plan.h"

namespace cairn::engine {

class Pins {
 public:
  enum class Of : uint8_t {
    kReader,
    kParts,  // Of a large append: in the log, but nothing in the tree names them yet.
  };

  // Unpins when it is destroyed.
  class Pin {
   public:
    Pin(Pins* pins, Of of, uint64_t lowest_segment, std::vector<uint64_t> tables);
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    Pins* const pins_;
    const Of of_;
    const uint64_t lowest_segment_;
    const std::vector<uint64_t> tables_;
  };

  // `on_end` is called by the thread that ends a pin, if a Hold... call had found something pinned.
  explicit Pins(std::function<void()> on_end) : on_end_(std::move(on_end)) {}

  std::unique_ptr<Pin> Take(const RestorePlan& plan);
  std::unique_ptr<Pin> Take(Of of, uint64_t lowest_segment, std::vector<uint64_t> tables = {}) {
    return std::make_unique<Pin>(this, of, lowest_segment, std::move(tables));
  }

  uint64_t LowestOfParts() const;  // UINT64_MAX: there are none.
  // Whether a log segment up to this one, or the table, is pinned.
  bool HoldSegment(uint64_t segment);
  bool HoldTable(uint64_t table);

 private:
  const std::function<void()> on_end_;
  mutable Mutex mutex_;
  bool awaited_ CAIRN_GUARDED_BY(mutex_) = false;  // on_end_ must be called when a pin ends.
  std::multiset<uint64_t> segments_ CAIRN_GUARDED_BY(mutex_), parts_ CAIRN_GUARDED_BY(mutex_);
  std::map<uint64_t, uint32_t> tables_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
