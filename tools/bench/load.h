// SPDX-License-Identifier: Apache-2.0
//
// A run of operations as in a user's process: all latencies, processor time, page faults and the
// bytes written to the device.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/bench/bench.h"

namespace cairn::bench {

struct Work {
  uint32_t threads = 1;
  uint64_t ops_per_thread = 0;
  uint64_t bytes_per_op = 0;                       // KV.
  double seconds_max = 0;                          // Ends early once they have passed; 0: never.
  std::function<void(uint32_t thread)> prepare{};  // Before each op, not timed.
  std::function<Status(uint32_t thread, uint64_t op)> op{};
  std::function<Status()> at_end{};  // Counts in the rate and not as an op: what makes all durable.
};

// Runs work of one kind several times and sums it up.
class Load {
 public:
  // Runs it with threads of its own. Any failure ends it.
  Status Run(const Work& work);

  double p(double quantile) const { return Quantile(op_us_, quantile); }
  double longest_us() const;
  double gb_per_s() const { return Median(gb_per_s_); }
  const std::vector<double>& rates() const { return gb_per_s_; }
  double gb() const { return gb_; }  // KV of all runs.
  double cpu_s_per_gb() const { return cpu_s_ / gb_; }
  double device_bytes_per_byte() const { return device_bytes_ / (gb_ * 1e9); }
  // Counts the second half of each run: until then memory is touched for the first time.
  double faults_per_gb() const { return faults_ / (gb_ / 2); }

  double all_faults_per_gb() const { return all_faults_ / gb_; }

  // `<arm>_gb_per_s`, `_p50_us` and so on.
  void Describe(const std::string& arm, Report* report) const;

 private:
  std::vector<double> op_us_, gb_per_s_;
  double gb_ = 0, cpu_s_ = 0, faults_ = 0, all_faults_ = 0, device_bytes_ = 0;
};

// Medians to medians; the range is that of runs of the same number.
Ratio RatioOfRates(const std::vector<double>& rates, const std::vector<double>& others);

}  // namespace cairn::bench
