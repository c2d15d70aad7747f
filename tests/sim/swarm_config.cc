// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/swarm_config.h"

namespace cairn::sim {
namespace {

constexpr const char* kNames[kFeatures] = {
    "errors",     "full-errors", "interrupts", "short",    "cancelled",   "losing-syncs",
    "slow",       "stuck",       "broken",     "lost",     "misdirected", "rot",
    "small-disk", "cap",         "power-loss", "kill",     "impatience",  "large",
    "mixed",      "sealing",     "copies",     "follower", "finds",       "objects"};

template <typename T, size_t kChoices>
T OneOf(SeededRandom& random, const T (&choices)[kChoices]) {
  return choices[random.Below(kChoices)];
}

// A life has some hundred operations of the disk.
uint32_t OneIn(Feature feature, SeededRandom& random) {
  switch (feature) {
    case Feature::kInterrupts:
    case Feature::kShort:
    case Feature::kSlow: return OneOf(random, {3U, 20U, 100U});
    case Feature::kLost:
    case Feature::kMisdirected:
    case Feature::kRot:
    case Feature::kBroken: return OneOf(random, {100U, 500U});
    default: return OneOf(random, {50U, 300U, 1000U});
  }
}

Options DrawOptions(SeededRandom& random, bool cap) {
  // The larger ones are not wholly allocated at first.
  const uint64_t kSegment = OneOf(random, {256U << 10, 256U << 10, 1U << 20});
  Options options;
  options.create_if_missing = true;
  options.segment_bytes = kSegment;
  options.spare_segments_min = 1;
  options.spare_segments_max = OneOf(random, {1U, 3U});
  options.max_memory_bytes = 16 << 20;
  options.hot_tail_bytes = 256 << 10;
  options.executor_threads = OneOf(random, {1U, 3U});
  options.submit_copy_max_bytes = OneOf(random, {1U << 10, 4U << 10, 1U << 20});
  options.delta_batch_tokens = OneOf(random, {1U, 1U, 4U, 16U});
  options.replay_records_max = OneOf(random, {2U, 16U, 8192U});
  options.max_delta_chain = OneOf(random, {2U, 8U, 100U});
  options.snapshot_interval_tokens = OneOf(random, {0U, 64U, 1024U});
  options.log_bytes_max = OneOf(random, {4 * kSegment, 8 * kSegment, uint64_t{1} << 30});
  options.tree_memory_bytes = OneOf(random, {0U, 64U << 20});
  options.background_bytes_per_second = OneOf(random, {0U, 0U, 1U << 20});
  if (cap) {
    options.max_bytes = OneOf(random, {16U, 32U}) * kSegment;
    options.log_bytes_max = 4 * kSegment;
    options.evict = Evict::kKv;
  }
  return options;
}

}  // namespace

const char* FeatureName(Feature feature) { return kNames[static_cast<size_t>(feature)]; }

SwarmConfig::SwarmConfig(uint64_t seed) {
  SeededRandom random(seed ^ 0x73776172'6d000000);
  for (size_t i = 0; i < static_cast<size_t>(Feature::kFinds); ++i) {
    const auto feature = static_cast<Feature>(i);
    const bool lie =
        feature == Feature::kLost || feature == Feature::kMisdirected || feature == Feature::kRot;
    // After a lie little can be asked of a store, and little goes on where nothing is written.
    const bool rare = lie || feature == Feature::kBroken || feature == Feature::kFullErrors;
    features[i] = random.Below(rare ? 6 : 2) == 0;
    one_in[i] = OneIn(feature, random);
  }
  // These came later, and draw by themselves: a run without them is what it was before.
  SeededRandom later(seed ^ 0x66696e64);
  for (const Feature feature : {Feature::kFinds, Feature::kObjects}) {
    features[static_cast<size_t>(feature)] = later.Below(2) == 0;
  }
  if (has(Feature::kSmallDisk)) disk.copies_on_write = later.Below(2) == 0;
  // KV that is evicted comes back by a fill; nobody gives states again.
  if (has(Feature::kCap)) features[static_cast<size_t>(Feature::kMixed)] = false;
  clients = 1 + static_cast<uint32_t>(random.Below(6));
  life_operations_max = OneOf(random, {10U, 40U, 100U});
  const uint64_t speed = OneOf(random, {0U, 1U, 20U});
  disk.read = {10'000 * speed, 100'000 * speed};
  disk.write = {5'000 * speed, 50'000 * speed};
  disk.durable = {20'000 * speed, 200'000 * speed};
  disk.metadata = {1'000 * speed, 10'000 * speed};
  if (has(Feature::kSmallDisk)) disk.capacity_bytes = OneOf(random, {3U, 5U, 9U}) << 20;
  options = DrawOptions(random, has(Feature::kCap));
}

bool SwarmConfig::has_errors() const {
  return has(Feature::kErrors) || has(Feature::kInterrupts) || has(Feature::kShort) ||
         has(Feature::kCancelled) || has(Feature::kLosingSyncs) || has(Feature::kBroken);
}

bool SwarmConfig::has_small_room() const {
  return has(Feature::kFullErrors) || has(Feature::kSmallDisk) || has(Feature::kCap);
}

std::string SwarmConfig::ToString() const {
  std::string text = std::to_string(clients) + " clients";
  for (size_t i = 0; i < kFeatures; ++i) {
    if (!features[i]) continue;
    text += ", " + std::string(kNames[i]);
    if (i <= static_cast<size_t>(Feature::kRot)) text += " 1/" + std::to_string(one_in[i]);
  }
  return text;
}

}  // namespace cairn::sim
