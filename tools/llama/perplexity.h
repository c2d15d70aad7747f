// SPDX-License-Identifier: Apache-2.0
//
// How well a model predicts a text, and how far one prediction is from another.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/llama/transformer.h"

namespace cairn::llama {

struct TextLoss {
  double nats = 0;  // sum of -ln p(token | the tokens before it)
  int64_t tokens = 0;

  double perplexity() const { return std::exp(nats / static_cast<double>(tokens)); }
};

// Adds the loss of targets[row] under row `row` of the logits, for every row.
template <typename Scalar>
void AddRowLosses(std::span<const Scalar> logits, std::span<const int32_t> targets,
                  TextLoss* loss) {
  const size_t vocab_size = logits.size() / targets.size();
  for (size_t row = 0; row < targets.size(); ++row) {
    const std::span<const Scalar> scores = logits.subspan(row * vocab_size, vocab_size);
    const double max = static_cast<double>(*std::max_element(scores.begin(), scores.end()));
    double sum = 0;
    for (const Scalar score : scores) {
      sum += std::exp(static_cast<double>(score) - max);
    }
    loss->nats +=
        max + std::log(sum) - static_cast<double>(scores[static_cast<size_t>(targets[row])]);
    loss->tokens += 1;
  }
}

// Adds to `*loss` the loss of window[i] given window[0..i) for every i in [first_scored, end),
// where 1 <= first_scored <= end. The window starts at position 0 of `*cache`, which is
// overwritten.
template <typename Scalar>
void AddWindowLoss(std::span<const int32_t> window, size_t first_scored,
                   Transformer<Scalar>* transformer, KvCache* cache, TextLoss* loss) {
  constexpr size_t kRowsAtOnce = 256;  // bounds the memory for logits
  const size_t unscored_rows = first_scored - 1;
  transformer->Forward(window.first(unscored_rows), 0, LogitsOf::kNoRow, cache);
  for (size_t begin = unscored_rows; begin + 1 < window.size(); begin += kRowsAtOnce) {
    const size_t rows = std::min(kRowsAtOnce, window.size() - 1 - begin);
    const std::span<const Scalar> logits = transformer->Forward(
        window.subspan(begin, rows), static_cast<int>(begin), LogitsOf::kAllRows, cache);
    AddRowLosses(logits, window.subspan(begin + 1, rows), loss);
  }
}

// KL(of || from) in nats, of the distributions of the next token that two rows of logits stand for.
template <typename Scalar>
double Divergence(std::span<const Scalar> of, std::span<const Scalar> from) {
  const auto log_sum = [](std::span<const Scalar> logits) {
    const double max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    double sum = 0;
    for (const Scalar value : logits) sum += std::exp(static_cast<double>(value) - max);
    return max + std::log(sum);
  };
  const double sum_of = log_sum(of), sum_from = log_sum(from);
  double nats = 0;
  for (size_t i = 0; i < of.size(); ++i) {
    const double p = static_cast<double>(of[i]) - sum_of;
    nats += std::exp(p) * (p - static_cast<double>(from[i]) + sum_from);
  }
  return nats;
}

}  // namespace cairn::llama
