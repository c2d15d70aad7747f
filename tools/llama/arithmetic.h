// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the forward pass. Every result is a function of its own row alone, summed in an
// order that is fixed here and depends neither on how many rows are computed together nor on the
// width of the machine's vectors: loops are written so that a compiler which may not reassociate
// can still vectorise them. With that, the same calls give the same bits on any IEEE machine (built
// with -ffp-contract=off, without -ffast-math).

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace cairn::llama {

// One 16-byte vector, as GCC and Clang spell it. Its operators work element by element, so using it
// changes no result; it is here because compilers do not find the vectors in these loops by
// themselves.
template <typename Scalar>
struct Vector {
  typedef Scalar Type __attribute__((vector_size(16)));
  static constexpr size_t kWidth = 16 / sizeof(Scalar);

  static Type Load(const Scalar* from) {
    Type vector;
    std::memcpy(&vector, from, sizeof(vector));
    return vector;
  }
};

// Long sums run in this many interleaved partial sums, which are then folded: the upper half onto
// the lower, until one is left.
inline constexpr size_t kLanes = 8;

// The sum of term(i) over i in [0, count); `vector_term(i)` is term(i), ..., term(i + width - 1).
template <typename Scalar, typename Term, typename VectorTerm>
Scalar SumInLanes(size_t count, Term term, VectorTerm vector_term) {
  using V = Vector<Scalar>;
  constexpr size_t kVectors = kLanes / V::kWidth;
  typename V::Type sums[kVectors] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[v] += vector_term(i + v * V::kWidth);
    }
  }
  Scalar lanes[kLanes];
  std::memcpy(lanes, sums, sizeof(lanes));
  for (; i < count; ++i) {
    lanes[i % kLanes] += term(i);
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) {
      lanes[lane] += lanes[lane + half];
    }
  }
  return lanes[0];
}

template <typename Scalar>
Scalar DotProduct(const Scalar* a, const Scalar* b, size_t count) {
  using V = Vector<Scalar>;
  return SumInLanes<Scalar>(
      count, [=](size_t i) { return a[i] * b[i]; },
      [=](size_t i) { return V::Load(a + i) * V::Load(b + i); });
}

template <typename Scalar>
Scalar Sum(const Scalar* a, size_t count) {
  return SumInLanes<Scalar>(
      count, [=](size_t i) { return a[i]; }, [=](size_t i) { return Vector<Scalar>::Load(a + i); });
}

// e^x for x <= 0 or moderately positive (the C library's exp differs in its last bit between
// processors). x = n ln 2 + r with |r| <= ln 2 / 2, and the Taylor series of e^r by Horner's rule
// until its terms fall below half a unit in the last place. Results below the smallest normal
// number are 0.
template <typename Scalar>
Scalar Exp(Scalar x) {
  static_assert(std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>);
  constexpr bool kIsFloat = std::is_same_v<Scalar, float>;
  using Bits = std::conditional_t<kIsFloat, int32_t, int64_t>;
  constexpr int kTerms = kIsFloat ? 7 : 13;
  constexpr int kMantissaBits = kIsFloat ? 23 : 52;
  constexpr Bits kBias = kIsFloat ? 127 : 1023;
  // ln 2 in two parts; the first has enough trailing zeros for its product with any n here to be
  // exact.
  constexpr Scalar kLn2High = kIsFloat ? Scalar(0x1.62e4p-1) : Scalar(0x1.62e42fee00000p-1);
  constexpr Scalar kLn2Low = kIsFloat ? Scalar(0x1.7f7d1cp-20) : Scalar(0x1.a39ef35793c76p-33);
  constexpr Scalar kLargest = kIsFloat ? Scalar(88) : Scalar(709);
  constexpr Scalar kSmallest = kIsFloat ? Scalar(-87) : Scalar(-708);

  const Scalar bounded = x > kLargest ? kLargest : (x < kSmallest ? kSmallest : x);
  const Scalar n = std::floor(bounded * Scalar(1.4426950408889634) + Scalar(0.5));
  const Scalar r = (bounded - n * kLn2High) - n * kLn2Low;
  Scalar series = 1;
  for (int term = kTerms; term >= 1; --term) {
    series = series * r * (Scalar(1) / Scalar(term)) + Scalar(1);
  }
  const Scalar power =
      std::bit_cast<Scalar>(static_cast<Bits>((static_cast<Bits>(n) + kBias) << kMantissaBits));
  return x < kSmallest ? Scalar(0) : series * power;
}

// Turns scores into probabilities in place. `count` >= 1; the scores are finite.
template <typename Scalar>
void Softmax(Scalar* scores, size_t count) {
  Scalar max = scores[0];
  for (size_t i = 1; i < count; ++i) {
    max = scores[i] > max ? scores[i] : max;
  }
  for (size_t i = 0; i < count; ++i) {
    scores[i] = Exp(scores[i] - max);
  }
  const Scalar scale = Scalar(1) / Sum(scores, count);
  for (size_t i = 0; i < count; ++i) {
    scores[i] *= scale;
  }
}

template <typename Scalar>
void RmsNorm(const Scalar* x, const Scalar* weight, size_t count, Scalar* out) {
  const Scalar mean_square = DotProduct(x, x, count) / static_cast<Scalar>(count);
  const Scalar scale = Scalar(1) / std::sqrt(mean_square + Scalar(1e-5));
  for (size_t i = 0; i < count; ++i) {
    out[i] = weight[i] * (x[i] * scale);
  }
}

// A matrix of [outputs][inputs], packed in panels of kColumns outputs, [panel][input][column]: each
// output is a plain sum over the inputs in ascending order, and the vectors run across outputs.
template <typename Scalar>
class Matrix {
 public:
  Matrix() = default;
  Matrix(size_t outputs, size_t inputs)
      : outputs_(outputs),
        inputs_(inputs),
        panels_((outputs + kColumns - 1) / kColumns * kColumns * inputs) {}

  // `weights` is row-major [outputs][inputs], as in the checkpoint.
  Matrix(std::span<const float> weights, size_t outputs, size_t inputs) : Matrix(outputs, inputs) {
    for (size_t output = 0; output < outputs; ++output) {
      for (size_t input = 0; input < inputs; ++input) {
        At(output, input) = static_cast<Scalar>(weights[output * inputs + input]);
      }
    }
  }

  size_t outputs() const { return outputs_; }
  size_t inputs() const { return inputs_; }

  Scalar& At(size_t output, size_t input) {
    return panels_[(output / kColumns * inputs_ + input) * kColumns + output % kColumns];
  }

  // At(output, input) for every input, and for every output.
  void SetOutput(size_t output, const Scalar* values) {
    Scalar* column = &At(output, 0);
    for (size_t input = 0; input < inputs_; ++input) {
      column[input * kColumns] = values[input];
    }
  }
  void SetInput(size_t input, const Scalar* values) {
    for (size_t output = 0; output < outputs_; output += kColumns) {
      std::memcpy(&At(output, input), values + output,
                  std::min(outputs_ - output, kColumns) * sizeof(Scalar));
    }
  }

  // out[row][output] = sum over input of x[row][input] * At(output, input). Row-major, no gaps.
  void Multiply(const Scalar* x, size_t rows, Scalar* out) const {
    MultiplyPart(x, inputs_, rows, outputs_, inputs_, out, outputs_);
  }

  // The same with the first `outputs` outputs and the first `inputs` inputs alone; the rows of x
  // and out are `x_stride` and `out_stride` elements apart.
  void MultiplyPart(const Scalar* x, size_t x_stride, size_t rows, size_t outputs, size_t inputs,
                    Scalar* out, size_t out_stride) const {
    for (size_t first = 0; first < outputs; first += kColumns) {
      const Scalar* panel = panels_.data() + first * inputs_;
      const size_t bytes = std::min(outputs - first, kColumns) * sizeof(Scalar);
      size_t row = 0;
      for (; row + 2 <= rows; row += 2) {
        MultiplyPanel<2>(panel, inputs, x + row * x_stride, x_stride, bytes,
                         out + row * out_stride + first, out_stride);
      }
      if (row < rows) {
        MultiplyPanel<1>(panel, inputs, x + row * x_stride, x_stride, bytes,
                         out + row * out_stride + first, out_stride);
      }
    }
  }

 private:
  static constexpr size_t kColumns = 16;

  template <size_t kRows>
  static void MultiplyPanel(const Scalar* panel, size_t inputs, const Scalar* x, size_t x_stride,
                            size_t bytes, Scalar* out, size_t out_stride) {
    using V = Vector<Scalar>;
    constexpr size_t kVectors = kColumns / V::kWidth;
    typename V::Type sums[kRows][kVectors] = {};
    for (size_t input = 0; input < inputs; ++input) {
      for (size_t v = 0; v < kVectors; ++v) {
        const typename V::Type weights = V::Load(panel + input * kColumns + v * V::kWidth);
        for (size_t row = 0; row < kRows; ++row) {
          sums[row][v] += x[row * x_stride + input] * weights;
        }
      }
    }
    for (size_t row = 0; row < kRows; ++row) {
      std::memcpy(out + row * out_stride, sums[row], bytes);
    }
  }

  size_t outputs_ = 0;
  size_t inputs_ = 0;
  std::vector<Scalar> panels_;
};

}  // namespace cairn::llama
