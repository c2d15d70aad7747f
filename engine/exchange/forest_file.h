// SPDX-License-Identifier: Apache-2.0
//
// The file of a forest: records (pack.h), each with its kind under "record":
//
//   forest                      the first
//   model                       before the first branch of it
//   branch, span.., state.., ids..   for each branch; a branch that it is forked from comes before
//
// and last a record of the digest alone, of fixed length, over all bytes before it.
#pragma once

#include <cstdint>

#include "engine/exchange/hex.h"
#include "engine/exchange/pack.h"

namespace cairn::engine {

inline constexpr uint64_t kForestVersion = 1;
inline constexpr uint64_t kForestEndBytes = 26;

inline PackRecord ForestEnd(const Digest& digest) {
  PackRecord record;
  const auto bytes = BytesOf(digest);
  record.Set("digest", PackBytes(bytes.begin(), bytes.end()));
  return record;
}

}  // namespace cairn::engine
