// SPDX-License-Identifier: Apache-2.0
//
// The model of a frame: reference exponents, frequencies, and which flags pay. Integers only, so
// that a frame has the same bytes on every machine.
#include <algorithm>

#include "base/codec/kv64.h"

namespace cairn::internal {
namespace {

// At this number sampling costs a fifth of coding; with 64 lines frames would be a thousandth
// smaller.
constexpr uint32_t kModelLines = 32;
constexpr uint32_t kChoiceLines = 16;
constexpr uint32_t kChoiceStripes = 2;
// The reference lies this far above the mean: distances 0 to 14 then reach from 5 above the mean to
// 9 below. Magnitudes have a short tail upwards and a long one towards zero.
constexpr uint32_t kAboveMean = 5;
// Folding has to save this much per element, in 1/65536 bits: frequencies in 256ths fit 32 symbols
// worse than 16, and a small sample flatters the larger alphabet.
constexpr uint64_t kFoldingCost = 65536 / 20;
// A distance seen less often than once in this many takes the escape: an escape costs about 16
// bits, and the smallest frequency, a 256th of all slots, costs every other symbol its share.
constexpr uint64_t kRare = 2500;

// log2 in 1/65536, by squaring: no floating point, hence the same anywhere.
constexpr uint32_t Log2Fixed(uint64_t value) {
  uint32_t whole = 0;
  while (value >> (whole + 1) != 0) ++whole;
  uint64_t mantissa = whole > 31 ? value >> (whole - 31) : value << (31 - whole);  // [2^31, 2^32)
  uint32_t result = whole;
  for (int bit = 0; bit < 16; ++bit) {
    mantissa = (mantissa * mantissa) >> 31;
    result <<= 1;
    if (mantissa >> 32 != 0) {
      result |= 1;
      mantissa >>= 1;
    }
  }
  return result;
}

constexpr auto kLog2 = [] {
  std::array<uint32_t, kSlots + 1> table{};
  for (uint32_t i = 1; i <= kSlots; ++i) table[i] = Log2Fixed(i);
  return table;
}();

// `count` lines of full width, evenly spread; from the second of each step on, so that they are not
// the ones that the references were made from.
Sampling SampleLines(const Stripe& stripe, uint32_t count, bool second) {
  const uint32_t full =
      stripe.last_lanes == stripe.lanes || stripe.lines == 1 ? stripe.lines : stripe.lines - 1;
  Sampling sampling;
  sampling.count = std::min(count, full);
  sampling.step = full / sampling.count;
  sampling.first = second && sampling.step > 1 ? 1 : 0;
  return sampling;
}

using Counts = std::array<uint32_t, kMaxSymbols>;

using LaneSums = std::array<uint16_t, kLanes>;
using References = std::array<uint8_t, kLanes>;

LaneSums SumExponents(const Stripe& stripe, Kv64Kind kind, const uint8_t* elements,
                      const Kv64Loops& loops) {
  LaneSums sums{};
  loops.sum_exponents(kind, elements, stripe, SampleLines(stripe, kModelLines, false), sums.data());
  return sums;
}

// One for each channel, or the same for all. Idle lanes have none.
References MakeReferences(const Stripe& stripe, bool channel_base, const LaneSums& lane_sums) {
  const uint32_t lines = SampleLines(stripe, kModelLines, false).count;
  const uint32_t channels = channel_base ? stripe.channels : 1;
  References references{};
  for (uint32_t c = 0; c < channels; ++c) {
    uint32_t sum = 0, seen = 0;
    for (uint32_t lane = c; lane < stripe.lanes; lane += channels) {
      sum += lane_sums[lane];
      seen += lines;
    }
    const auto reference =
        static_cast<uint8_t>(std::min(255u, (sum + seen / 2) / seen + kAboveMean));
    for (uint32_t lane = c; lane < stripe.lanes; lane += channels) references[lane] = reference;
  }
  return references;
}

Counts CountSymbols(const Stripe& stripe, Kv64Kind kind, uint32_t lines,
                    const References& references, const uint8_t* elements, const Kv64Loops& loops) {
  Counts counts{};
  loops.count_symbols(kind, elements, stripe, SampleLines(stripe, lines, true), references.data(),
                      counts.data());
  return counts;
}

// Returns log2(value) in 1/65536; the value is rounded to 8 bits first.
uint64_t RoughLog2(uint64_t value) {
  const int excess = std::max(0, static_cast<int>(std::bit_width(value)) - 8);
  const uint64_t rounded = (value + (uint64_t{1} << excess >> 1)) >> excess;  // At most 256.
  return kLog2[rounded] + (static_cast<uint64_t>(excess) << 16);
}

// The sum of -log2(share) over all counted, in 1/65536 bits.
uint64_t Entropy(const uint32_t* counts, size_t size) {
  uint64_t total = 0, logs = 0;
  for (size_t i = 0; i < size; ++i) {
    if (counts[i] == 0) continue;
    total += counts[i];
    logs += counts[i] * RoughLog2(counts[i]);
  }
  const uint64_t whole = total * RoughLog2(total);
  return whole > logs ? whole - logs : 0;
}

// Turns counts into frequencies that sum to kSlots: rounds, then moves single slots where that
// costs least or gains most.
void Normalise(const Counts& counts, size_t symbols, std::array<uint8_t, kMaxSymbols>* frequency) {
  uint64_t total = 0;
  for (size_t i = 0; i < symbols; ++i) total += counts[i];
  std::array<uint32_t, kMaxSymbols> slots{};
  uint32_t sum = 0;
  for (size_t i = 0; i < symbols; ++i) {
    if (counts[i] == 0) continue;
    const auto share = static_cast<uint32_t>((counts[i] * uint64_t{kSlots} + total / 2) / total);
    slots[i] = std::clamp(share, 1u, kSlots - 1);
    sum += slots[i];
  }
  while (sum != kSlots) {
    const bool shrink = sum > kSlots;
    size_t best = symbols;
    uint64_t best_change = 0;
    for (size_t i = 0; i < symbols; ++i) {
      if (shrink ? slots[i] <= 1 : slots[i] == 0 || slots[i] == kSlots - 1) continue;
      const uint32_t other = shrink ? slots[i] - 1 : slots[i] + 1;
      const uint32_t apart =
          shrink ? kLog2[slots[i]] - kLog2[other] : kLog2[other] - kLog2[slots[i]];
      const uint64_t change = uint64_t{counts[i]} * apart;
      if (best == symbols || (shrink ? change < best_change : change > best_change)) {
        best = i;
        best_change = change;
      }
    }
    slots[best] += shrink ? -1u : 1u;
    sum += shrink ? -1u : 1u;
  }
  for (size_t i = 0; i < symbols; ++i) (*frequency)[i] = static_cast<uint8_t>(slots[i]);
}

}  // namespace

StripeModel MakeModel(const Stripe& stripe, Kv64Kind kind, bool channel_base,
                      const uint8_t* elements, const Kv64Loops& loops) {
  StripeModel model;
  model.reference =
      MakeReferences(stripe, channel_base, SumExponents(stripe, kind, elements, loops));
  Counts counts = CountSymbols(stripe, kind, kModelLines, model.reference, elements, loops);
  uint64_t total = 0;
  for (const uint32_t count : counts) total += count;
  for (uint32_t d = 0; d < kDistances; ++d) {
    uint32_t& same = counts[d];
    uint32_t& flipped = counts[d + kDistances];  // None without folded signs.
    if (d == kEscape) {
      same = std::max(same, 1u);
    } else if (uint64_t{same + flipped} * kRare < total || same + flipped == 0) {
      counts[kEscape] += same;
      counts[kEscape + kDistances] += flipped;
      same = flipped = 0;
      continue;
    }
    // Both signs have a frequency or none.
    if (kind.folded) {
      same = std::max(same, 1u);
      flipped = std::max(flipped, 1u);
    }
  }
  // A frequency fits a byte, so at least two symbols have one.
  if (!kind.folded && counts[kEscape] >= total) counts[0] = 1;
  Normalise(counts, kind.folded ? kMaxSymbols : kDistances, &model.frequency);
  return model;
}

uint8_t ChooseFlags(const FrameShape& shape, const uint8_t* raw, const Kv64Loops& loops) {
  const bool fp16 = shape.dtype == Dtype::kF16;
  const uint32_t stripes = StripeCount(shape);
  const uint32_t probes = std::min(stripes, kChoiceStripes);
  // The cost of the flags, one by one, in 1/65536 bits of the sampled elements.
  uint64_t plain = 0, folded = 0, channel_base = 0;
  for (uint32_t probe = 0; probe < probes; ++probe) {
    const Stripe stripe = StripeAt(shape, probe * stripes / probes);
    const uint8_t* elements = raw + stripe.first_byte;
    const uint64_t sampled = uint64_t{SampleLines(stripe, kChoiceLines, true).count} * stripe.lanes;
    const uint64_t all = uint64_t{stripe.lines} * stripe.lanes;
    const LaneSums sums = SumExponents(stripe, {fp16, false}, elements, loops);

    const References flat = MakeReferences(stripe, false, sums);
    Counts counts = CountSymbols(stripe, {fp16, true}, kChoiceLines, flat, elements, loops);
    const auto header = [&](uint64_t bytes) { return (8 * bytes * sampled << 16) / all; };
    folded += Entropy(counts.data(), kMaxSymbols) + sampled * kFoldingCost + header(kDistances);
    for (uint32_t d = 0; d < kDistances; ++d) counts[d] += counts[d + kDistances];
    plain += Entropy(counts.data(), kDistances) + (sampled << 16);

    const References own = MakeReferences(stripe, true, sums);
    counts = CountSymbols(stripe, {fp16, false}, kChoiceLines, own, elements, loops);
    channel_base += Entropy(counts.data(), kDistances) + (sampled << 16) + header(stripe.channels);
  }
  return static_cast<uint8_t>((channel_base < plain ? kFrameChannelBase : 0) |
                              (folded < plain ? kFrameFoldedSigns : 0));
}

}  // namespace cairn::internal
