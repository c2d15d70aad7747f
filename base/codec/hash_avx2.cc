// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/codec/hash_paths.h"

namespace cairn::internal {

uint64_t HashAvx2(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

}  // namespace cairn::internal
#endif
