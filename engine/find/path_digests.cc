// SPDX-License-Identifier: Apache-2.0
#include "engine/find/path_digests.h"

#include <iterator>

#include "base/core/check.h"
#include "engine/find/constants.h"

namespace cairn::engine {

std::optional<PathDigests::Place> PathDigests::LastIn(const Known& known, uint64_t node,
                                                      uint64_t begin, uint64_t at_most) {
  const auto behind = known.upper_bound({node, at_most});
  if (behind == known.begin()) return std::nullopt;
  const auto& [at, digest] = *std::prev(behind);
  if (at.first != node || at.second <= begin) return std::nullopt;
  return Place{.node = node, .end = at.second, .digest = digest};
}

std::optional<PathDigests::Place> PathDigests::Last(uint64_t node, uint64_t begin,
                                                    uint64_t at_most) {
  const std::optional<Place> young = LastIn(young_, node, begin, at_most);
  const std::optional<Place> old = LastIn(old_, node, begin, at_most);
  if (!old.has_value() || (young.has_value() && young->end >= old->end)) return young;
  Add(*old);
  return old;
}

void PathDigests::Add(const Place& place) {
  CAIRN_CHECK(place.end % kPrefixBlock == 0);
  if (young_.size() >= kRememberedDigests) {
    old_.swap(young_);
    young_.clear();
  }
  young_.insert_or_assign({place.node, place.end}, place.digest);
}

void PathDigests::Trim(uint64_t node, uint64_t position) {
  for (Known* const known : {&young_, &old_}) {
    known->erase(known->upper_bound({node, position}), known->upper_bound({node, UINT64_MAX}));
  }
}

void PathDigests::Clear() {
  young_.clear();
  old_.clear();
}

}  // namespace cairn::engine
