// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace cairn::engine {

// Room for `more` elements, and if there is not enough, for twice as many: so a container that
// grows op by op is moved only a few times.
template <typename T>
void ReserveMore(std::vector<T>* entries, size_t more) {
  const size_t needed = entries->size() + more;
  if (entries->capacity() < needed) entries->reserve(2 * needed);
}

}  // namespace cairn::engine
