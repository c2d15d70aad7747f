// SPDX-License-Identifier: Apache-2.0

#include "tools/llama/transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "tools/llama/bf16.h"

namespace cairn::llama {
namespace {

// Rows that go through the layers together: enough to use each weight many times, few enough to
// stay in the cache.
constexpr size_t kRowsPerBlock = 64;

template <typename Scalar>
std::vector<Scalar> Convert(std::span<const float> values) {
  return std::vector<Scalar>(values.begin(), values.end());
}

template <typename Scalar>
void WriteBf16(const Scalar* from, size_t count, uint16_t* to) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = Bf16FromFloat(static_cast<float>(from[i]));
  }
}

template <typename Scalar>
const Scalar* Widen(const uint16_t* from, size_t count, std::vector<Scalar>* to) {
  to->resize(count);
  for (size_t i = 0; i < count; ++i) {
    (*to)[i] = static_cast<Scalar>(FloatFromBf16(from[i]));
  }
  return to->data();
}

}  // namespace

std::vector<float> InverseFrequencies(int head_dim) {
  std::vector<float> frequencies;
  for (int i = 0; i < head_dim; i += 2) {
    frequencies.push_back(
        static_cast<float>(std::pow(kRopeTheta, -static_cast<double>(i) / head_dim)));
  }
  return frequencies;
}

template <typename Scalar>
Transformer<Scalar>::Transformer(const Checkpoint& checkpoint)
    : config_(checkpoint.config()),
      inverse_frequencies_(InverseFrequencies(config_.head_dim())),
      embedding_(Convert<Scalar>(checkpoint.embedding())),
      layers_(static_cast<size_t>(config_.layers)),
      final_norm_(Convert<Scalar>(checkpoint.final_norm())) {
  const size_t dim = static_cast<size_t>(config_.dim);
  const size_t kv_dim = static_cast<size_t>(config_.kv_dim());
  const size_t hidden_dim = static_cast<size_t>(config_.hidden_dim);
  const size_t vocab_size = static_cast<size_t>(config_.vocab_size);
  for (int i = 0; i < config_.layers; ++i) {
    Layer& layer = layers_[static_cast<size_t>(i)];
    layer.attention_norm = Convert<Scalar>(checkpoint.attention_norm(i));
    layer.ffn_norm = Convert<Scalar>(checkpoint.ffn_norm(i));
    layer.wq = {checkpoint.wq(i), dim, dim};
    layer.wk = {checkpoint.wk(i), kv_dim, dim};
    layer.wv = {checkpoint.wv(i), kv_dim, dim};
    layer.wo = {checkpoint.wo(i), dim, dim};
    layer.w1 = {checkpoint.w1(i), hidden_dim, dim};
    layer.w2 = {checkpoint.w2(i), dim, hidden_dim};
    layer.w3 = {checkpoint.w3(i), hidden_dim, dim};
  }
  classifier_ = {checkpoint.classifier(), vocab_size, dim};

  stream_.resize(kRowsPerBlock * dim);
  normalized_.resize(kRowsPerBlock * dim);
  change_.resize(kRowsPerBlock * dim);
  q_.resize(kRowsPerBlock * dim);
  mixed_.resize(kRowsPerBlock * dim);
  k_.resize(kRowsPerBlock * kv_dim);
  v_.resize(kRowsPerBlock * kv_dim);
  gate_.resize(kRowsPerBlock * hidden_dim);
  up_.resize(kRowsPerBlock * hidden_dim);
}

template <typename Scalar>
std::span<const Scalar> Transformer<Scalar>::Forward(std::span<const int32_t> tokens,
                                                     int start_position, LogitsOf rows,
                                                     KvCache* cache) {
  std::vector<int> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), start_position);
  return ForwardAt(tokens, positions, rows, cache);
}

template <typename Scalar>
std::span<const Scalar> Transformer<Scalar>::ForwardAt(std::span<const int32_t> tokens,
                                                       std::span<const int> positions,
                                                       LogitsOf rows, KvCache* cache) {
  Check(tokens, positions, *cache);
  const size_t dim = static_cast<size_t>(config_.dim);
  logits_.clear();
  for (size_t begin = 0; begin < tokens.size(); begin += kRowsPerBlock) {
    const size_t count = std::min(kRowsPerBlock, tokens.size() - begin);
    ForwardBlock(tokens.subspan(begin, count), positions.subspan(begin, count), cache);
    const bool is_last_block = begin + count == tokens.size();
    const size_t wanted =
        rows == LogitsOf::kAllRows ? count : (rows == LogitsOf::kLastRow && is_last_block ? 1 : 0);
    if (wanted > 0) {
      Normalize(final_norm_, count);
      const size_t end = logits_.size();
      logits_.resize(end + wanted * classifier_.outputs());
      classifier_.Multiply(normalized_.data() + (count - wanted) * dim, wanted,
                           logits_.data() + end);
    }
  }
  return logits_;
}

template <typename Scalar>
void Transformer<Scalar>::Check(std::span<const int32_t> tokens, std::span<const int> positions,
                                const KvCache& cache) const {
  if (cache.layers() != config_.layers || cache.kv_heads() != config_.kv_heads ||
      cache.head_dim() != config_.head_dim()) {
    throw std::out_of_range("the cache has the shape of another model");
  }
  if (tokens.size() != positions.size()) {
    throw std::out_of_range(std::to_string(tokens.size()) + " tokens at " +
                            std::to_string(positions.size()) + " positions");
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config_.vocab_size) {
      throw std::out_of_range("token " + std::to_string(tokens[i]) +
                              " is outside the vocabulary of " +
                              std::to_string(config_.vocab_size));
    }
    if (positions[i] < (i == 0 ? 0 : positions[i - 1] + 1) ||
        positions[i] >= cache.max_positions()) {
      throw std::out_of_range("position " + std::to_string(positions[i]) +
                              " does not ascend or is outside the " +
                              std::to_string(cache.max_positions()) + " positions of the cache");
    }
  }
}

template <typename Scalar>
void Transformer<Scalar>::ForwardBlock(std::span<const int32_t> tokens,
                                       std::span<const int> positions, KvCache* cache) {
  const size_t dim = static_cast<size_t>(config_.dim);
  for (size_t row = 0; row < tokens.size(); ++row) {
    std::copy_n(embedding_.data() + static_cast<size_t>(tokens[row]) * dim, dim,
                stream_.data() + row * dim);
  }
  for (int i = 0; i < config_.layers; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    Attend(layer, i, positions, cache);
    FeedForward(layer, tokens.size());
  }
}

template <typename Scalar>
void Transformer<Scalar>::Attend(const Layer& layer, int layer_index,
                                 std::span<const int> positions, KvCache* cache) {
  const size_t rows = positions.size();
  const size_t kv_dim = static_cast<size_t>(config_.kv_dim());
  Normalize(layer.attention_norm, rows);
  layer.wq.Multiply(normalized_.data(), rows, q_.data());
  layer.wk.Multiply(normalized_.data(), rows, k_.data());
  layer.wv.Multiply(normalized_.data(), rows, v_.data());
  for (size_t row = 0; row < rows; ++row) {
    Rotate(q_.data() + row * static_cast<size_t>(config_.dim), static_cast<size_t>(config_.heads),
           positions[row]);
    Rotate(k_.data() + row * kv_dim, static_cast<size_t>(config_.kv_heads), positions[row]);
    WriteBf16(k_.data() + row * kv_dim, kv_dim, cache->K(layer_index, positions[row], 0));
    WriteBf16(v_.data() + row * kv_dim, kv_dim, cache->V(layer_index, positions[row], 0));
  }
  for (int kv_head = 0; kv_head < config_.kv_heads; ++kv_head) {
    AttendHeads(layer_index, kv_head, positions, *cache);
  }
  layer.wo.Multiply(mixed_.data(), rows, change_.data());
  AddToStream(rows);
}

// The query heads that share one kv head, for every row of the block.
template <typename Scalar>
void Transformer<Scalar>::AttendHeads(int layer_index, int kv_head, std::span<const int> positions,
                                      const KvCache& cache) {
  const size_t head_dim = static_cast<size_t>(config_.head_dim());
  const size_t dim = static_cast<size_t>(config_.dim);
  const size_t group = static_cast<size_t>(config_.heads / config_.kv_heads);
  WidenHead(layer_index, kv_head, static_cast<size_t>(positions.back()) + 1, cache);
  const size_t capacity = keys_.outputs();
  const Scalar scale = Scalar(1) / std::sqrt(static_cast<Scalar>(head_dim));
  for (size_t row = 0; row < positions.size(); ++row) {
    const size_t visible = static_cast<size_t>(positions[row]) + 1;
    const size_t first_head = row * dim + static_cast<size_t>(kv_head) * group * head_dim;
    keys_.MultiplyPart(q_.data() + first_head, head_dim, group, visible, head_dim, scores_.data(),
                       capacity);
    for (size_t head = 0; head < group; ++head) {
      Scalar* scores = scores_.data() + head * capacity;
      for (size_t position = 0; position < visible; ++position) {
        scores[position] *= scale;
      }
      Softmax(scores, visible);
    }
    values_.MultiplyPart(scores_.data(), capacity, group, head_dim, visible,
                         mixed_.data() + first_head, head_dim);
  }
}

// Converts positions [0, context) of one head of the cache to `Scalar`, packed for multiplication.
template <typename Scalar>
void Transformer<Scalar>::WidenHead(int layer_index, int kv_head, size_t context,
                                    const KvCache& cache) {
  const size_t head_dim = static_cast<size_t>(config_.head_dim());
  if (keys_.outputs() < context) {
    const size_t capacity = std::max(context, 2 * keys_.outputs());
    keys_ = Matrix<Scalar>(capacity, head_dim);
    values_ = Matrix<Scalar>(head_dim, capacity);
    scores_.resize(static_cast<size_t>(config_.heads / config_.kv_heads) * capacity);
  }
  for (size_t position = 0; position < context; ++position) {
    const uint16_t* k = cache.K(layer_index, static_cast<int>(position), kv_head);
    const uint16_t* v = cache.V(layer_index, static_cast<int>(position), kv_head);
    keys_.SetOutput(position, Widen(k, head_dim, &widened_));
    values_.SetInput(position, Widen(v, head_dim, &widened_));
  }
}

template <typename Scalar>
void Transformer<Scalar>::FeedForward(const Layer& layer, size_t rows) {
  Normalize(layer.ffn_norm, rows);
  layer.w1.Multiply(normalized_.data(), rows, gate_.data());
  layer.w3.Multiply(normalized_.data(), rows, up_.data());
  for (size_t i = 0; i < rows * static_cast<size_t>(config_.hidden_dim); ++i) {
    const Scalar silu = gate_[i] / (Scalar(1) + Exp(-gate_[i]));
    gate_[i] = silu * up_[i];
  }
  layer.w2.Multiply(gate_.data(), rows, change_.data());
  AddToStream(rows);
}

template <typename Scalar>
void Transformer<Scalar>::Rotate(Scalar* heads, size_t head_count, int position) const {
  const size_t pairs = inverse_frequencies_.size();
  for (size_t i = 0; i < pairs; ++i) {
    // The product of a position and a float32 is exact in double.
    const double angle = position * static_cast<double>(inverse_frequencies_[i]);
    const Scalar cosine = static_cast<Scalar>(std::cos(angle));
    const Scalar sine = static_cast<Scalar>(std::sin(angle));
    for (size_t head = 0; head < head_count; ++head) {
      Scalar* pair = heads + (head * pairs + i) * 2;
      const Scalar first = pair[0];
      const Scalar second = pair[1];
      pair[0] = first * cosine - second * sine;
      pair[1] = first * sine + second * cosine;
    }
  }
}

template <typename Scalar>
void Transformer<Scalar>::Normalize(const std::vector<Scalar>& weight, size_t rows) {
  const size_t dim = weight.size();
  for (size_t row = 0; row < rows; ++row) {
    RmsNorm(stream_.data() + row * dim, weight.data(), dim, normalized_.data() + row * dim);
  }
}

template <typename Scalar>
void Transformer<Scalar>::AddToStream(size_t rows) {
  for (size_t i = 0; i < rows * static_cast<size_t>(config_.dim); ++i) {
    stream_[i] += change_[i];
  }
}

template class Transformer<float>;
template class Transformer<double>;

}  // namespace cairn::llama
