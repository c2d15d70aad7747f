// SPDX-License-Identifier: Apache-2.0
//
// Counts what calls of the API did since the store was opened. The background counts its own work
// in its parts; replayed ops were counted before.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/commit/commit_observer.h"

namespace cairn::engine {

class CommitCounters final : public CommitObserver {
 public:
  void OnCommitted(const CommittedOp& op) noexcept override;

  uint64_t appends() const { return appends_.load(); }
  uint64_t tokens() const { return tokens_.load(); }
  uint64_t kv_bytes() const { return kv_bytes_.load(); }
  // The part of kv_bytes that fills wrote.
  uint64_t filled_bytes() const { return filled_bytes_.load(); }
  uint64_t forks() const { return forks_.load(); }
  uint64_t rewinds() const { return rewinds_.load(); }
  uint64_t drops() const { return drops_.load(); }

 private:
  std::atomic<uint64_t> appends_{0}, tokens_{0}, kv_bytes_{0}, filled_bytes_{0}, forks_{0},
      rewinds_{0}, drops_{0};
};

}  // namespace cairn::engine
