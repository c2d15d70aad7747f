// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// gcc's own header initialises its "undefined" vectors with themselves and then warns about it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/codec/hash_paths.h"

namespace cairn::internal {

uint64_t HashAvx512(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

}  // namespace cairn::internal
#endif
