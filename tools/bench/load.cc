// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/load.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "base/core/check.h"
#include "tools/bench/machine.h"

namespace cairn::bench {

Status Load::Run(const Work& work) {
  const uint64_t ops = work.threads * work.ops_per_thread;
  std::vector<std::vector<double>> us(work.threads);
  for (auto& one : us) one.reserve(work.ops_per_thread);
  std::atomic<uint64_t> done{0}, faults_at_half{0};
  std::atomic<bool> past_half{false};
  std::mutex mutex;
  Status failure;
  std::atomic<double> untimed_us{0};
  const double cpu = ProcessCpuSeconds();
  const uint64_t device = ProcessBytesWritten();
  const uint64_t faults = ProcessMinorFaults();
  const double begin = NowUs();
  const double end = work.seconds_max > 0 ? begin + work.seconds_max * 1e6 : HUGE_VAL;
  const auto body = [&](uint32_t thread) {
    for (uint64_t op = 0; op < work.ops_per_thread; ++op) {
      const double before = NowUs();
      if (before >= end) return;
      if (work.prepare) work.prepare(thread);
      const double start = NowUs();
      if (work.threads == 1) untimed_us = untimed_us + start - before;
      const Status status =
          Interrupted() ? Status(StatusCode::kCancelled, "interrupted") : work.op(thread, op);
      us[thread].push_back(NowUs() - start);
      const bool half = done.fetch_add(1) + 1 >= ops / 2 || start >= (begin + end) / 2;
      if (half && !past_half.exchange(true)) faults_at_half = ProcessMinorFaults();
      if (status.ok()) continue;
      const std::lock_guard lock(mutex);
      if (failure.ok()) failure = status;
      return;
    }
  };
  if (work.threads == 1) {
    body(0);
  } else {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < work.threads; ++i) threads.emplace_back(body, i);
    for (std::thread& thread : threads) thread.join();
  }
  CAIRN_RETURN_IF_ERROR(failure);
  if (work.at_end) CAIRN_RETURN_IF_ERROR(work.at_end());
  const double seconds = (NowUs() - begin - untimed_us) * 1e-6;
  cpu_s_ += ProcessCpuSeconds() - cpu;
  device_bytes_ += static_cast<double>(ProcessBytesWritten() - device);
  all_faults_ += static_cast<double>(ProcessMinorFaults() - faults);
  faults_ += static_cast<double>(ProcessMinorFaults() - faults_at_half);
  const double gb = static_cast<double>(done * work.bytes_per_op) * 1e-9;
  gb_ += gb;
  gb_per_s_.push_back(gb / seconds);
  for (const auto& one : us) op_us_.insert(op_us_.end(), one.begin(), one.end());
  return Status::Ok();
}

Ratio RatioOfRates(const std::vector<double>& rates, const std::vector<double>& others) {
  Ratio ratio{.value = Median(rates) / Median(others)};
  for (size_t i = 0; i < std::min(rates.size(), others.size()); ++i) {
    const double quotient = rates[i] / others[i];
    ratio.min = i == 0 ? quotient : std::min(ratio.min, quotient);
    ratio.max = i == 0 ? quotient : std::max(ratio.max, quotient);
  }
  return ratio;
}

double Load::longest_us() const {
  return op_us_.empty() ? 0 : *std::max_element(op_us_.begin(), op_us_.end());
}

void Load::Describe(const std::string& arm, Report* report) const {
  report->Value(arm + "_gb_per_s", gb_per_s(), "median of the runs");
  constexpr std::pair<const char*, double> kQuantiles[] = {
      {"_p50_us", 0.5}, {"_p95_us", 0.95}, {"_p99_us", 0.99}, {"_p999_us", 0.999}};
  for (const auto& [name, quantile] : kQuantiles) {
    report->Value(arm + name, p(quantile), "of an operation, all runs");
  }
  report->Value(arm + "_longest_us", longest_us(), "of all");
  report->Value(arm + "_cpu_s_per_gb", cpu_s_per_gb(), "of the whole process");
  report->Value(arm + "_faults_per_gb", faults_per_gb(), "minor page faults, second half of a run");
  report->Value(arm + "_device_per_byte", device_bytes_per_byte(), "bytes written a byte of KV");
}

}  // namespace cairn::bench
