// SPDX-License-Identifier: Apache-2.0
//
// Limits of CheckHealth, each with its reason. docs/prometheus/cairn.rules.yml has the same ones; a
// test compares them.
#pragma once

#include <cstdint>

namespace cairn::engine {

// A save stands between a decoded token and the answer: above this a reader of the stream notices.
inline constexpr double kSaveP95LimitSeconds = 0.050;
// A restore stands between a request and its first token, of which it should be a small part.
inline constexpr double kRestoreP95LimitSeconds = 0.100;
// Five of them lie above the 95th percentile: fewer are chance.
inline constexpr uint64_t kMinLatencySamples = 100;

// Success rate of a whole store. A failed restore is a conversation that must be computed again, so
// one in ten thousand is too many; a caller's cancellation is no failure.
inline constexpr double kRestoreSuccessLimit = 0.9999;
// One failure among fewer restores says nothing about a rate (and is counted all the same).
inline constexpr uint64_t kMinRestores = 100;

// Deltas a lane. At this length a chain is due to be sealed (max_delta_chain); a mean above it says
// that sealing does not keep up, and restores read many small records.
inline constexpr double kMeanChainLimit = 100;
// A few long conversations are a way to use a store and not yet a state of it.
inline constexpr uint64_t kMinChainLanes = 10;

// Stored bytes to raw bytes. One-token appends pad 2 KiB of KV to a block of 4 KiB, and an equal
// share may be waiting for reclaim: above four times, space is being lost. Lossless coding saves a
// third and int8 a half: below a tenth, files are missing.
inline constexpr double kStoredRatioMax = 4.0;
inline constexpr double kStoredRatioMin = 0.1;
// Sixteen segments of the default size, so that the one being filled does not decide.
inline constexpr uint64_t kMinRatioRawBytes = 1ull << 30;

// Age of what keeps the log's oldest segment from being given back. The longest reads take seconds;
// after a minute something is stuck, or leaked, and appends will wait at log_bytes_max.
inline constexpr double kLogPinnedLimitSeconds = 60;

static_assert(kStoredRatioMin < 1 && kStoredRatioMax > 1);
static_assert(kMinLatencySamples * 5 / 100 >= 5);

}  // namespace cairn::engine
