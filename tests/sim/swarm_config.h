// SPDX-License-Identifier: Apache-2.0
//
// The parts of one run of the swarm, drawn from its seed. Each run leaves out about half of all
// faults and of all client operations: so a fault that hides another one does not do so in every
// run (Groce, Zhang, Eide, Chen, Regehr, "Swarm testing", ISSTA 2012).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/core/seeded_random.h"
#include "cairn/options.h"
#include "sim/disk.h"

namespace cairn::sim {

enum class Feature : uint8_t {
  // Faults of operations of the disk.
  kErrors,       // EIO.
  kFullErrors,   // ENOSPC that comes and goes.
  kInterrupts,   // EINTR and EAGAIN.
  kShort,        // Transfers in pieces.
  kCancelled,    // ECANCELED, as of requests linked to one that failed.
  kLosingSyncs,  // Syncs that fail, and the next ones succeed with the bytes gone.
  kSlow,
  kStuck,
  kBroken,  // From some operation on, until the next crash, nothing is written any more.
  // Lies of the disk.
  kLost,         // Writes that are acknowledged and not done...
  kMisdirected,  // ...or done elsewhere.
  kRot,
  // The room there is.
  kSmallDisk,
  kCap,  // Caps the store, and a namespace that may evict KV.
  // How a life ends, other than by closing.
  kPowerLoss,
  kKill,
  // Operations of clients.
  kImpatience,  // They cancel, and give little time.
  kLarge,       // Large appends.
  kMixed,       // Branches of MixedModel.
  kSealing,     // Compact, Flush, Verify, pauses.
  kCopies,
  kFollower,
  kFinds,    // FindPrefix.
  kObjects,  // Bytes under keys.
  kCount,
};
inline constexpr size_t kFeatures = static_cast<size_t>(Feature::kCount);
const char* FeatureName(Feature feature);

struct SwarmConfig {
  explicit SwarmConfig(uint64_t seed);

  bool has(Feature feature) const { return features[static_cast<size_t>(feature)]; }
  bool has_errors() const;  // Operations may fail for another reason than room.
  bool has_small_room() const;
  std::string ToString() const;

  std::array<bool, kFeatures> features{};
  std::array<uint32_t, kFeatures> one_in{};  // Operations of the disk that it strikes.
  uint32_t clients = 1;
  uint64_t life_operations_max = 0;  // Operations of clients between two openings.
  io::SimDiskOptions disk{};
  Options options{};
};

}  // namespace cairn::sim
