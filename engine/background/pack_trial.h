// SPDX-License-Identifier: Apache-2.0
//
// Whether tables would take less than a segment does for its KV, tried on some of it. Moving what
// does not get smaller costs a read and a write of each byte, and gains nothing.
//
// For the space thread. No lock may be held around calls.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/background/sealer.h"
#include "engine/background/space_deps.h"
#include "engine/tree/memory/seal_source.h"

namespace cairn::engine {

class PackTrial {
 public:
  PackTrial(const SpaceDeps& deps, const Sealer* sealer) : deps_(deps), sealer_(sealer) {}
  PackTrial(const PackTrial&) = delete;
  PackTrial& operator=(const PackTrial&) = delete;

  // Reads kTrialRows positions at kTrialFrames places, at most. A segment without KV counts as one
  // that gets smaller, and so does one that cannot be read: sealing it reports why.
  bool GetsSmaller(uint64_t segment) const;

 private:
  struct Sizes {
    uint64_t raw_bytes = 0, packed_bytes = 0;
  };
  Status Try(uint64_t segment, Sizes* sizes) const;
  Result<std::vector<SealSource>> SourcesOf(uint64_t segment, uint64_t node) const;
  Status TryOne(const SealSource& source, uint32_t number, Sizes* sizes) const;

  const SpaceDeps& deps_;
  const Sealer* const sealer_;
};

}  // namespace cairn::engine
