// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace cairn::cli {

namespace {

constexpr std::chrono::milliseconds kEvery{200};
constexpr uint64_t kWidth = 30;

}  // namespace

ProgressBar::ProgressBar(bool wanted)
    : shown_(wanted && isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + kEvery) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
}

void ProgressBar::Update(uint64_t done, uint64_t total, const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || now < next_) return;
  next_ = now + kEvery;
  drawn_ = true;
  const uint64_t filled = total == 0 ? kWidth : kWidth * std::min(done, total) / total;
  std::fprintf(stderr, "\r\033[K[%s%s] %s", std::string(filled, '#').c_str(),
               std::string(kWidth - filled, '.').c_str(), text.c_str());
}

}  // namespace cairn::cli
