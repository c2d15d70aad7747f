// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/leftovers.h"

#include <iterator>

#include "engine/tree/memory/reserve_more.h"

namespace cairn::engine {

void Leftovers::Reserve(size_t more) {
  ReserveMore(&undecided_, more);
  ReserveMore(&untrimmed_, more);
}

bool Leftovers::EraseUndecided(uint64_t node) { return std::erase(undecided_, node) != 0; }

void Leftovers::MarkUntrimmed(uint64_t node, uint64_t bytes) {
  untrimmed_.push_back(node);
  untrimmed_bytes_ += bytes;
}

void Leftovers::EraseUntrimmed(uint64_t node) {
  const auto found = std::find(untrimmed_.rbegin(), untrimmed_.rend(), node);  // Near the end.
  if (found != untrimmed_.rend()) untrimmed_.erase(std::prev(found.base()));
}

}  // namespace cairn::engine
