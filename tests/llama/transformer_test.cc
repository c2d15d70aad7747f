// SPDX-License-Identifier: Apache-2.0
//
// Property: the forward pass computes the Llama architecture with K and V rounded to bf16, and its
// bits depend neither on how the tokens were cut into calls nor on anything in the cache that a row
// may not see. Method: random models of several shapes, in float and double, against a plain
// transcription of the formulas in long double without cache or blocks; every chunking compared bit
// for bit with one token at a time, logits and cache both.

#include "tools/llama/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/llama/test_files.h"
#include "tools/llama/bf16.h"

namespace cairn::llama {
namespace {

// Grouped queries, a classifier of its own, one kv head for all, sizes that fill no vector.
const Config kShapes[] = {
    {.dim = 32,
     .hidden_dim = 24,
     .layers = 2,
     .heads = 4,
     .kv_heads = 2,
     .vocab_size = 50,
     .max_positions = 200},
    {.dim = 24,
     .hidden_dim = 37,
     .layers = 3,
     .heads = 2,
     .kv_heads = 2,
     .vocab_size = 31,
     .max_positions = 200,
     .shared_classifier = false},
    {.dim = 30,
     .hidden_dim = 7,
     .layers = 1,
     .heads = 3,
     .kv_heads = 1,
     .vocab_size = 33,
     .max_positions = 200},
};
constexpr int kTokens = 150;  // more than two blocks of rows

std::vector<int32_t> RandomTokens(const Config& config, int count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(generator() % static_cast<uint32_t>(config.vocab_size)));
  }
  return tokens;
}

// The formulas, one row after another. Everything is long double but K and V, which are rounded to
// bf16.
class Reference {
 public:
  using Row = std::vector<long double>;

  explicit Reference(const Checkpoint& checkpoint) : model_(checkpoint), c_(checkpoint.config()) {
    k_.resize(static_cast<size_t>(c_.layers));
    v_.resize(static_cast<size_t>(c_.layers));
  }

  // The logits of the token that comes next at `position`.
  Row Step(int32_t token, int position) {
    Row x(Size(c_.dim));
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = model_.embedding()[Size(token) * x.size() + i];
    }
    for (int layer = 0; layer < c_.layers; ++layer) {
      const Row a = Norm(x, model_.attention_norm(layer));
      Row q = Times(model_.wq(layer), a);
      Row k = Times(model_.wk(layer), a);
      Row v = Times(model_.wv(layer), a);
      Rotate(&q, position);
      Rotate(&k, position);
      k_[Size(layer)].push_back(Rounded(k));
      v_[Size(layer)].push_back(Rounded(v));
      Add(&x, Times(model_.wo(layer), Attend(q, layer)));
      const Row f = Norm(x, model_.ffn_norm(layer));
      Row gate = Times(model_.w1(layer), f);
      const Row up = Times(model_.w3(layer), f);
      for (size_t i = 0; i < gate.size(); ++i) {
        gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      }
      Add(&x, Times(model_.w2(layer), gate));
    }
    return Times(model_.classifier(), Norm(x, model_.final_norm()));
  }

 private:
  static size_t Size(int value) { return static_cast<size_t>(value); }

  static Row Norm(const Row& x, std::span<const float> weight) {
    long double squares = 0;
    for (const long double value : x) squares += value * value;
    Row out(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      out[i] = weight[i] * x[i] / std::sqrt(squares / static_cast<long double>(x.size()) + 1e-5L);
    }
    return out;
  }

  static Row Times(std::span<const float> matrix, const Row& x) {
    Row out(matrix.size() / x.size());
    for (size_t i = 0; i < matrix.size(); ++i) out[i / x.size()] += matrix[i] * x[i % x.size()];
    return out;
  }

  static void Add(Row* x, const Row& change) {
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] += change[i];
  }

  static Row Rounded(Row row) {
    for (long double& value : row) value = FloatFromBf16(Bf16FromFloat(static_cast<float>(value)));
    return row;
  }

  void Rotate(Row* heads, int position) const {
    for (size_t i = 0; i < heads->size(); i += 2) {
      const long double exponent =
          static_cast<long double>(i % Size(c_.head_dim())) / c_.head_dim();
      const long double angle =
          position * static_cast<long double>(static_cast<float>(std::pow(10000.0L, -exponent)));
      const long double first = (*heads)[i];
      const long double second = (*heads)[i + 1];
      (*heads)[i] = first * std::cos(angle) - second * std::sin(angle);
      (*heads)[i + 1] = first * std::sin(angle) + second * std::cos(angle);
    }
  }

  Row Attend(const Row& q, int layer) const {
    const size_t head_dim = Size(c_.head_dim());
    Row out(q.size());
    for (size_t head = 0; head < Size(c_.heads); ++head) {
      const size_t kv_head = head * Size(c_.kv_heads) / Size(c_.heads);
      Row weights;
      long double sum = 0;
      for (const Row& k : k_[Size(layer)]) {
        long double score = 0;
        for (size_t i = 0; i < head_dim; ++i)
          score += q[head * head_dim + i] * k[kv_head * head_dim + i];
        weights.push_back(std::exp(score / std::sqrt(static_cast<long double>(head_dim))));
        sum += weights.back();
      }
      for (size_t p = 0; p < weights.size(); ++p) {
        for (size_t i = 0; i < head_dim; ++i) {
          out[head * head_dim + i] += weights[p] / sum * v_[Size(layer)][p][kv_head * head_dim + i];
        }
      }
    }
    return out;
  }

  const Checkpoint& model_;
  const Config c_;
  std::vector<std::vector<Row>> k_, v_;  // [layer][position]
};

// Logits of every row and the cache, after computing `tokens` in calls of the given lengths (the
// last one repeats).
template <typename Scalar>
std::vector<Scalar> Run(const Checkpoint& checkpoint, const std::vector<int32_t>& tokens,
                        const std::vector<size_t>& chunks, KvCache* cache) {
  Transformer<Scalar> transformer(checkpoint);
  std::vector<Scalar> all;
  size_t chunk = 0;
  for (size_t begin = 0; begin < tokens.size();) {
    const size_t count =
        std::min(chunks[std::min(chunk++, chunks.size() - 1)], tokens.size() - begin);
    const std::span<const Scalar> logits =
        transformer.Forward(std::span(tokens).subspan(begin, count), static_cast<int>(begin),
                            LogitsOf::kAllRows, cache);
    all.insert(all.end(), logits.begin(), logits.end());
    begin += count;
  }
  return all;
}

bool SameBits(const KvCache& a, const KvCache& b) {
  const size_t bytes = a.size_bytes() / 2;
  return a.size_bytes() == b.size_bytes() && std::memcmp(a.K(0, 0, 0), b.K(0, 0, 0), bytes) == 0 &&
         std::memcmp(a.V(0, 0, 0), b.V(0, 0, 0), bytes) == 0;
}

template <typename Scalar>
bool SameBits(std::span<const Scalar> a, std::span<const Scalar> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Scalar)) == 0;
}

template <typename Scalar>
class TransformerTest : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(TransformerTest, Scalars);

TYPED_TEST(TransformerTest, PrefillEqualsDecodeBitwiseForEveryChunking) {
  for (const Config& shape : kShapes) {
    const Checkpoint checkpoint = RandomCheckpoint(shape, 11);
    const std::vector<int32_t> tokens = RandomTokens(shape, kTokens, 12);
    KvCache decoded(shape, kTokens);
    const std::vector<TypeParam> one_by_one = Run<TypeParam>(checkpoint, tokens, {1}, &decoded);
    for (const std::vector<size_t>& chunks :
         std::vector<std::vector<size_t>>{{150},
                                          {2},
                                          {3},
                                          {7},
                                          {64},
                                          {63, 66},
                                          {65, 1},
                                          {149, 1},
                                          {1, 2, 3, 5, 8, 13, 21, 34}}) {
      KvCache cache(shape, kTokens);
      const std::vector<TypeParam> logits = Run<TypeParam>(checkpoint, tokens, chunks, &cache);
      EXPECT_TRUE(SameBits<TypeParam>(logits, one_by_one)) << chunks[0];
      EXPECT_TRUE(SameBits(cache, decoded)) << chunks[0];
    }
  }
}

TYPED_TEST(TransformerTest, ComputesTheFormulas) {
  // Where an activation lies next to a rounding boundary of bf16, float and long double round K or
  // V apart, by 2^-8 of one element; double all but never does.
  const double tolerance = std::is_same_v<TypeParam, float> ? 5e-2 : 1e-9;
  for (const Config& shape : kShapes) {
    const Checkpoint checkpoint = RandomCheckpoint(shape, 21);
    const std::vector<int32_t> tokens = RandomTokens(shape, 40, 22);
    KvCache cache(shape, 40);
    const std::vector<TypeParam> logits = Run<TypeParam>(checkpoint, tokens, {40}, &cache);
    Reference reference(checkpoint);
    double worst = 0;
    double largest = 0;
    size_t next = 0;
    for (size_t position = 0; position < tokens.size(); ++position) {
      for (const long double expected :
           reference.Step(tokens[position], static_cast<int>(position))) {
        worst = std::max(worst, std::abs(static_cast<double>(expected - logits[next++])));
        largest = std::max(largest, std::abs(static_cast<double>(expected)));
      }
    }
    EXPECT_LT(worst, tolerance * largest);
    EXPECT_GT(largest, 1);
  }
}

TYPED_TEST(TransformerTest, LastRowIsTheLastOfAllRows) {
  const Config& shape = kShapes[0];
  const Checkpoint checkpoint = RandomCheckpoint(shape, 31);
  Transformer<TypeParam> transformer(checkpoint);
  for (const int count : {1, 64, 65, 128}) {
    const std::vector<int32_t> tokens = RandomTokens(shape, count, 32);
    KvCache cache(shape, count);
    const auto all = transformer.Forward(tokens, 0, LogitsOf::kAllRows, &cache);
    ASSERT_EQ(all.size(), static_cast<size_t>(count * shape.vocab_size));
    const std::vector<TypeParam> expected(all.end() - shape.vocab_size, all.end());
    EXPECT_TRUE(
        SameBits<TypeParam>(transformer.Forward(tokens, 0, LogitsOf::kLastRow, &cache), expected));
    EXPECT_TRUE(transformer.Forward(tokens, 0, LogitsOf::kNoRow, &cache).empty());
  }
}

TYPED_TEST(TransformerTest, ARestoredCacheContinuesWithTheSameBits) {
  const Config& shape = kShapes[1];
  const Checkpoint checkpoint = RandomCheckpoint(shape, 41);
  const std::vector<int32_t> tokens = RandomTokens(shape, 100, 42);
  KvCache original(shape, 100);
  const std::vector<TypeParam> logits = Run<TypeParam>(checkpoint, tokens, {100}, &original);

  // Positions 0..59, moved row by row into a cache of another capacity that held NaN everywhere.
  KvCache restored(shape, 130);
  std::memset(restored.K(0, 0, 0), 0xff, restored.size_bytes() / 2);
  std::memset(restored.V(0, 0, 0), 0xff, restored.size_bytes() / 2);
  const size_t row_bytes = original.position_stride() * sizeof(uint16_t);
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int position = 0; position < 60; ++position) {
      std::memcpy(restored.K(layer, position, 0), original.K(layer, position, 0), row_bytes);
      std::memcpy(restored.V(layer, position, 0), original.V(layer, position, 0), row_bytes);
    }
  }
  Transformer<TypeParam> another(checkpoint);
  const auto rest =
      another.Forward(std::span(tokens).subspan(60), 60, LogitsOf::kAllRows, &restored);
  EXPECT_TRUE(SameBits<TypeParam>(rest, std::span<const TypeParam>(logits).subspan(60u * 31u)));
}

TYPED_TEST(TransformerTest, RecomputingScatteredRowsGivesTheirBitsBack) {
  const Config& shape = kShapes[0];
  const Checkpoint checkpoint = RandomCheckpoint(shape, 51);
  const std::vector<int32_t> tokens = RandomTokens(shape, 120, 52);
  KvCache cache(shape, 120);
  const std::vector<TypeParam> logits = Run<TypeParam>(checkpoint, tokens, {120}, &cache);
  KvCache damaged = cache;
  std::vector<int> positions;
  std::vector<int32_t> chosen;
  for (int position = 3; position < 120; position += position % 5 + 1) {
    positions.push_back(position);
    chosen.push_back(tokens[static_cast<size_t>(position)]);
    for (int layer = 0; layer < shape.layers; ++layer) {
      std::memset(damaged.K(layer, position, 0), 0xff, 2 * damaged.position_stride());
      std::memset(damaged.V(layer, position, 0), 0xff, 2 * damaged.position_stride());
    }
  }
  Transformer<TypeParam> transformer(checkpoint);
  const auto again = transformer.ForwardAt(chosen, positions, LogitsOf::kAllRows, &damaged);
  EXPECT_TRUE(SameBits(damaged, cache));
  for (size_t row = 0; row < positions.size(); ++row) {
    EXPECT_TRUE(SameBits<TypeParam>(
        again.subspan(row * 50, 50),
        std::span<const TypeParam>(logits).subspan(static_cast<size_t>(positions[row]) * 50, 50)));
  }
}

TYPED_TEST(TransformerTest, RefusesWhatDoesNotFitAndWritesNothing) {
  const Config& shape = kShapes[0];
  Transformer<TypeParam> transformer(RandomCheckpoint(shape, 61));
  KvCache cache(shape, 10);
  const KvCache before = cache;
  const auto forward = [&](std::vector<int32_t> tokens, std::vector<int> positions) {
    transformer.ForwardAt(tokens, positions, LogitsOf::kNoRow, &cache);
  };
  EXPECT_THROW(forward({1, 50}, {0, 1}), std::out_of_range);
  EXPECT_THROW(forward({1, -1}, {0, 1}), std::out_of_range);
  EXPECT_THROW(forward({1, 1}, {9, 10}), std::out_of_range);
  EXPECT_THROW(forward({1, 1}, {-1, 0}), std::out_of_range);
  EXPECT_THROW(forward({1, 1}, {1, 1}), std::out_of_range);
  EXPECT_THROW(forward({1, 1}, {1}), std::out_of_range);
  EXPECT_TRUE(SameBits(cache, before));
  KvCache other(kShapes[1], 10);
  EXPECT_THROW(transformer.Forward(std::vector<int32_t>{1}, 0, LogitsOf::kNoRow, &other),
               std::out_of_range);
}

TEST(KvCache, StridesDescribeTheLayout) {
  const Config& shape = kShapes[0];
  const KvCache cache(shape, 10);
  EXPECT_EQ(cache.size_bytes(), 2u * 2 * 10 * 2 * 8 * sizeof(uint16_t));
  for (int layer = 0; layer < 2; ++layer) {
    for (int position = 0; position < 10; ++position) {
      for (int head = 0; head < 2; ++head) {
        const size_t offset = static_cast<size_t>(layer) * cache.layer_stride() +
                              static_cast<size_t>(position) * cache.position_stride() +
                              static_cast<size_t>(head) * cache.head_stride();
        EXPECT_EQ(cache.K(layer, position, head), cache.K(0, 0, 0) + offset);
        EXPECT_EQ(cache.V(layer, position, head), cache.V(0, 0, 0) + offset);
      }
    }
  }
}

}  // namespace
}  // namespace cairn::llama
