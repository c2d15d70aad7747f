// SPDX-License-Identifier: Apache-2.0
//
// The demo's findings: proofs and figures, as text for people or as one JSON object.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cairn/metrics.h"

namespace cairn::demo {

// Latencies that most hosts of a model can accept; the table says whether they are met.
inline constexpr double kSaveGoalMs = 50;
inline constexpr double kRestoreGoalMs = 100;

class Stopwatch {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Times of one kind of operation.
class Samples {
 public:
  void Add(double ms) { ms_.push_back(ms); }
  size_t count() const { return ms_.size(); }
  // The smallest sample that at least `quantile` of all are not above; 0 when there are none.
  double Quantile(double quantile) const;
  nlohmann::json ToJson() const;  // {"count": ..., "p50": ..., "p95": ..., "p99": ..., "max": ...}

 private:
  std::vector<double> ms_;
};

struct Proof {
  std::string claim;
  std::string difference;  // Empty: proved.
};

struct Kill {
  uint64_t acknowledged = 0;  // Tokens of the branch by the last acknowledgement.
  uint64_t recovered = 0;     // Tokens found afterwards.
  double open_ms = 0;
};

// Bytes of tokens, KV and what holds them.
struct Space {
  uint64_t position_bytes = 0;      // KV of one token.
  uint64_t stored_positions = 0;    // All branches together, shared ones once.
  uint64_t copied_positions = 0;    // If every branch were a copy.
  uint64_t fork_log_bytes = 0;      // That one fork wrote, the padding of its group included.
  uint64_t fork_own_positions = 0;  // That one fork went on for.
  StoreMetrics metrics;             // At the end.
};

struct Report {
  uint64_t seed = 0;
  uint64_t tokens = 0;  // Generated on the trunk.
  std::string io_name, sync_method;
  std::vector<Kill> kills;
  std::vector<Proof> proofs;
  Samples append, open, restore, recompute, fork;
  Space space;
  nlohmann::json branches = nlohmann::json::array();

  bool AllProved() const;
  nlohmann::json ToJson() const;
  std::string Table() const;  // Several lines, without the last line feed.
};

}  // namespace cairn::demo
