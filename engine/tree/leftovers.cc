// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/leftovers.h"

#include <iterator>

#include "engine/tree/reserve_more.h"

namespace cairn::engine {

void Leftovers::Reserve(size_t more) {
  ReserveMore(&undecided_, more);
  ReserveMore(&loose_, more);
}

bool Leftovers::EraseUndecided(uint64_t node) { return std::erase(undecided_, node) != 0; }

void Leftovers::NoteLoose(uint64_t node, uint64_t bytes) {
  loose_.push_back(node);
  loose_bytes_noted_ += bytes;
}

void Leftovers::EraseLoose(uint64_t node) {
  const auto found = std::find(loose_.rbegin(), loose_.rend(), node);  // Near the end.
  if (found != loose_.rend()) loose_.erase(std::prev(found.base()));
}

}  // namespace cairn::engine
