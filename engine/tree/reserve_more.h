// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace cairn::engine {

// Room for so many more, and when there is none for twice as many: what takes it op by op is moved
// a few times in all.
template <typename T>
void ReserveMore(std::vector<T>* entries, size_t more) {
  const size_t needed = entries->size() + more;
  if (entries->capacity() < needed) entries->reserve(2 * needed);
}

}  // namespace cairn::engine
