// SPDX-License-Identifier: Apache-2.0
//
// What readers still need of files that space management would like to recycle or delete: log
// segments from some number on, and snapshot tables. A pin is taken under the commit lock, where
// the plan is made, so that nothing that the plan names is gone before.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "engine/restore/plan.h"

namespace cairn::engine {

class Pins {
 public:
  // Ends with the pin.
  class Pin {
   public:
    Pin(Pins* pins, uint64_t lowest_segment, std::vector<uint64_t> tables);
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    Pins* const pins_;
    const uint64_t lowest_segment_;
    const std::vector<uint64_t> tables_;
  };
  std::unique_ptr<Pin> Take(const RestorePlan& plan);
  std::unique_ptr<Pin> Take(uint64_t lowest_segment, std::vector<uint64_t> tables) {
    return std::make_unique<Pin>(this, lowest_segment, std::move(tables));
  }

  uint64_t LowestSegment() const;  // UINT64_MAX: none is needed.
  bool Needs(uint64_t table) const;

 private:
  mutable std::mutex mutex_;
  std::multiset<uint64_t> segments_;
  std::map<uint64_t, uint32_t> tables_;
};

}  // namespace cairn::engine
