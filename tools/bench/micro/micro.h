// SPDX-License-Identifier: Apache-2.0
//
// Shared by the small benchmarks. Each defines its iteration: a number of items and of bytes.
// Memory is touched before the loop, as in a store that has run for a while; if bytes are moved,
// remaining minor page faults are reported.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/status.h"
#include "tools/bench/kv_source.h"

namespace cairn::bench::micro {

// Lives around the loop of one benchmark.
class Meter {
 public:
  // `bytes` of 0: nothing is moved.
  Meter(::benchmark::State* state, uint64_t items, uint64_t bytes);
  ~Meter();
  // Neither time nor faults are counted between the two.
  void Pause();
  void Resume();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

 private:
  ::benchmark::State& state_;
  const uint64_t items_, bytes_;
  uint64_t faults_before_, faults_ = 0;
};

// Ends the benchmark with an error, which the program turns into its exit status.
bool Failed(::benchmark::State* state, const Status& status);

// 0 to count - 1, shuffled: an order that no processor foresees.
std::vector<uint32_t> ShuffledOrder(uint32_t count);

// KV of ModelOfTokenBytes(token_bytes), touched; made once per program, since filling it takes
// longer than what is measured.
const KvPool& SharedPool(uint64_t token_bytes, Layout layout);

inline void DoNotOptimize(const auto& value) { ::benchmark::DoNotOptimize(value); }

// Each adds its benchmarks.
void RegisterChunks();
void RegisterCodec();
void RegisterCopies();
void RegisterHashes();
void RegisterPageCache();
void RegisterRotary();
void RegisterTree();
void RegisterLog();
void RegisterLookups();
void RegisterStore();

}  // namespace cairn::bench::micro
