// SPDX-License-Identifier: Apache-2.0
//
// One line on standard error that is redrawn, if that is a terminal and it takes a while. Used by
// one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace cairn::cli {

class ProgressBar {
 public:
  explicit ProgressBar(bool wanted);
  ~ProgressBar();  // Wipes it away.

  // `text` describes `done` of `total` in words.
  void Update(uint64_t done, uint64_t total, const std::string& text);

 private:
  const bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace cairn::cli
