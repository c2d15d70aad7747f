// SPDX-License-Identifier: Apache-2.0
//
// Remembers hashes of paths at some of their block ends. An append to a long prompt then hashes
// only its own tokens, and so does a fork of it. The key is the node that the block's last token
// lies on, so all branches whose paths lead through the node share the hash.
//
// Memory is bounded: a hash is forgotten after kRememberedDigests others came and nobody asked for
// it.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/codec/hash.h"

namespace cairn::engine {

class PathDigests {
 public:
  struct Place {
    uint64_t node = 0;
    uint64_t end = 0;  // The end of a block whose last token lies on the node.
    Digest digest{};
  };

  // The last known place of the node in (begin, at_most]. Throws std::bad_alloc, as Add does.
  std::optional<Place> Last(uint64_t node, uint64_t begin, uint64_t at_most);
  void Add(const Place& place);
  // Forgets the places behind this position of the node: other content will come there.
  void Trim(uint64_t node, uint64_t position);
  void Clear();

 private:
  using Known = std::map<std::pair<uint64_t, uint64_t>, Digest>;  // By node and end.
  static std::optional<Place> LastIn(const Known& known, uint64_t node, uint64_t begin,
                                     uint64_t at_most);

  // When `young_` is full it becomes `old_`. A place that is found in `old_` is young again.
  Known young_, old_;
};

}  // namespace cairn::engine
