// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/micro/micro.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "base/core/check.h"
#include "tools/bench/machine.h"

namespace cairn::bench::micro {
namespace {

constexpr uint64_t kPoolBytes = 32 << 20;  // More than a core caches for itself.

}  // namespace

Meter::Meter(::benchmark::State* state, uint64_t items, uint64_t bytes)
    : state_(*state), items_(items), bytes_(bytes), faults_before_(ProcessMinorFaults()) {}

Meter::~Meter() {
  const auto faults = static_cast<double>(faults_ + ProcessMinorFaults() - faults_before_);
  const auto rounds = static_cast<uint64_t>(state_.iterations());
  state_.SetItemsProcessed(static_cast<int64_t>(rounds * items_));
  if (bytes_ == 0 || rounds == 0) return;
  state_.SetBytesProcessed(static_cast<int64_t>(rounds * bytes_));
  state_.counters["faults_per_gb"] = faults / (static_cast<double>(rounds * bytes_) * 1e-9);
}

void Meter::Pause() {
  state_.PauseTiming();
  faults_ += ProcessMinorFaults() - faults_before_;
}

void Meter::Resume() {
  faults_before_ = ProcessMinorFaults();
  state_.ResumeTiming();
}

bool Failed(::benchmark::State* state, const Status& status) {
  if (!status.ok()) state->SkipWithError(status.ToString().c_str());
  return !status.ok();
}

std::vector<uint32_t> ShuffledOrder(uint32_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  return order;
}

const KvPool& SharedPool(uint64_t token_bytes, Layout layout) {
  static std::map<std::pair<uint64_t, Layout>, std::unique_ptr<KvPool>> pools;
  auto& pool = pools[{token_bytes, layout}];
  if (pool == nullptr) {
    auto model = ModelOfTokenBytes(token_bytes);
    CAIRN_CHECK(model.ok());
    pool = std::make_unique<KvPool>(*model, layout, kPoolBytes / token_bytes, /*seed=*/1);
  }
  return *pool;
}

}  // namespace cairn::bench::micro
