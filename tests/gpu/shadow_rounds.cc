// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/shadow_rounds.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <vector>

#include "base/codec/rotary.h"
#include "base/shadow/chunk_scores.h"
#include "base/shadow/low_rank.h"
#include "base/shadow/rebuild.h"
#include "tests/base/shadow_samples.h"

namespace cairn::testing {
namespace {

constexpr uint32_t kChannels[] = {64, 80, 96, 128, 256};
constexpr uint32_t kBits[] = {4, 8, 16};
constexpr uint32_t kUntouched = 0xEEEEEEEE;

uint32_t DrawChunks(SeededRandom& random) {
  constexpr uint32_t kSpecial[] = {0, 1, 63, 64, 65, 255, 256, 257, 512, 700};
  return random.Below(2) == 0 ? kSpecial[random.Below(std::size(kSpecial))]
                              : static_cast<uint32_t>(random.Below(600));
}

std::vector<uint32_t> DrawAlways(SeededRandom& random, uint32_t chunks) {
  constexpr uint32_t kOneOf[] = {1, 2, 50, 1000000};
  const uint32_t one_of = kOneOf[random.Below(std::size(kOneOf))];
  std::vector<uint32_t> always(chunks / 32 + 1);
  for (uint32_t i = 0; i < chunks; ++i) {
    if (random.Below(one_of) == 0) always[i / 32] |= 1u << i % 32;
  }
  return always;
}

// Settings that all pairs of a launch share.
struct Case {
  explicit Case(SeededRandom& random)
      : layout{kChannels[random.Below(std::size(kChannels))],
               kBits[random.Below(std::size(kBits))]},
        fp16(random.Below(2) == 0),
        group(static_cast<uint32_t>(1 + random.Below(random.Below(8) == 0 ? 20 : 8))),
        pairs(static_cast<uint32_t>(random.Below(16) == 0 ? 0 : 1 + random.Below(3))) {}

  std::string Describe() const {
    return std::to_string(layout.channels) + " channels of " + (fp16 ? "fp16" : "bf16") + ", " +
           std::to_string(layout.bits) + " bits, group " + std::to_string(group);
  }

  shadow::BlockLayout layout;
  bool fp16;
  uint32_t group, pairs;
};

// One pair, on the host.
struct Pair {
  uint32_t chunks = 0, budget = 0;
  std::vector<uint32_t> always{};
  std::vector<std::byte> blocks{};
  std::vector<uint16_t> tail{};
  shadow::ChunkScores scores{};

  std::vector<uint32_t> Selected() const { return shadow::SelectChunks(scores, always, budget); }
};

Pair DrawPair(SeededRandom& random) {
  Pair pair{.chunks = DrawChunks(random)};
  pair.always = DrawAlways(random, pair.chunks);
  pair.budget = static_cast<uint32_t>(random.Below(pair.chunks / (random.Below(2) + 1) + 3));
  return pair;
}

uint32_t MostChunks(const std::vector<Pair>& pairs) {
  uint32_t most = 0;
  for (const Pair& pair : pairs) most = std::max(most, pair.chunks);
  return most;
}

std::string Differ(const std::string& what, const std::vector<uint32_t>& is,
                   const std::vector<uint32_t>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (is[i] != expected[i]) {
      return what + " " + std::to_string(i) + ": " + std::to_string(is[i]) + " for " +
             std::to_string(expected[i]) + "; ";
    }
  }
  return "";
}

// All that a launch of the two kernels has on the machine.
struct Step {
  gpu::ScoreChunks score;
  gpu::SelectChunks select;
  std::vector<uint32_t> scores, sums;  // The expected values, as bits.
};

Step PrepareStep(KernelMachine& machine, SeededRandom& random, const Case& c,
                 const std::vector<Pair>& pairs) {
  Step step;
  const uint32_t most = MostChunks(pairs);
  const uint32_t tiles = shadow::TileCount(most) + static_cast<uint32_t>(random.Below(2));
  const uint64_t stride = most + random.Below(5);
  step.scores.assign(c.pairs * c.group * stride, kUntouched);
  step.sums.assign(size_t{2} * c.pairs * c.group * tiles, kUntouched);
  std::vector<gpu::ShadowHead> heads;
  uint32_t budget = 0;
  for (size_t p = 0; p < pairs.size(); ++p) {
    const Pair& pair = pairs[p];
    gpu::ShadowHead head{.chunks = pair.chunks, .budget = pair.budget};
    head.landmarks = reinterpret_cast<const uint8_t*>(machine.PutAll(pair.blocks));
    head.tail = machine.PutAll(pair.tail);
    head.always = machine.PutAll(pair.always);
    heads.push_back(head);
    budget = std::max(budget, pair.budget);
    const uint32_t own_tiles = shadow::TileCount(pair.chunks);
    for (size_t g = 0; g < c.group; ++g) {
      const size_t row = p * c.group + g;
      for (uint32_t i = 0; i < pair.chunks; ++i) {
        step.scores[row * stride + i] = BitsOfFloat(pair.scores.score[g * pair.chunks + i]);
      }
      for (uint32_t t = 0; t < own_tiles; ++t) {
        const shadow::TileSum& sum = pair.scores.tiles[g * own_tiles + t];
        step.sums[2 * (row * tiles + t)] = BitsOfFloat(sum.max);
        step.sums[2 * (row * tiles + t) + 1] = BitsOfFloat(sum.sum);
      }
    }
  }
  gpu::ScoreChunks& score = step.score;
  score.heads = machine.PutAll(heads);
  score.score_stride = stride;
  score.pairs = c.pairs;
  score.tiles = std::max(1u, tiles);
  score.group = c.group;
  score.channels = c.layout.channels;
  score.landmark_bits = c.layout.bits;
  score.fp16 = c.fp16;
  gpu::SelectChunks& select = step.select;
  select.heads = score.heads;
  select.score_stride = stride;
  select.chunk_stride = budget + random.Below(3);
  select.pairs = c.pairs;
  select.tiles = score.tiles;
  select.group = c.group;
  select.keys = machine.PutAll(std::vector<uint32_t>(c.pairs * stride));
  select.chunks = machine.PutAll(std::vector<uint32_t>(c.pairs * select.chunk_stride, kUntouched));
  select.counts = machine.PutAll(std::vector<uint32_t>(c.pairs, kUntouched));
  return step;
}

std::string CheckSelected(KernelMachine& machine, const Step& step,
                          const std::vector<Pair>& pairs) {
  const uint64_t stride = step.select.chunk_stride;
  std::vector<uint32_t> chunks(pairs.size() * stride, kUntouched), counts;
  for (size_t p = 0; p < pairs.size(); ++p) {
    const std::vector<uint32_t> selected = pairs[p].Selected();
    std::copy(selected.begin(), selected.end(),
              chunks.begin() + static_cast<ptrdiff_t>(p * stride));
    counts.push_back(static_cast<uint32_t>(selected.size()));
  }
  return Differ("count", machine.GetAll(step.select.counts, counts.size()), counts) +
         Differ("chunk", machine.GetAll(step.select.chunks, chunks.size()), chunks);
}

// Landmarks of a pair, and its scores for the queries.
void DrawLandmarks(SeededRandom& random, const Case& c, std::span<const float> queries, float scale,
                   Pair& pair) {
  const uint32_t channels = c.layout.channels;
  const Rows kind = kRows[random.Below(3)];  // Scores of the widest are no numbers.
  const std::vector<uint16_t> rows = MakeRows(random, kind, c.fp16, channels, pair.chunks);
  const size_t whole = pair.chunks / shadow::kBlockRows * shadow::kBlockRows * channels;
  pair.blocks = StoreBlocks(c.layout, c.fp16, std::span(rows).first(whole));
  pair.tail.assign(rows.begin() + static_cast<ptrdiff_t>(whole), rows.end());
  pair.tail.resize(size_t{shadow::kBlockRows} * channels, 0x7FFF);  // NaNs.
  pair.scores = shadow::ScoreChunks({.layout = c.layout,
                                     .fp16 = c.fp16,
                                     .chunks = pair.chunks,
                                     .blocks = pair.blocks,
                                     .tail = pair.tail,
                                     .always = pair.always},
                                    queries, scale);
}

}  // namespace

std::string ScoreChunksRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  const Case c(random);
  const uint32_t channels = c.layout.channels;
  const float scale = random.Below(2) == 0 ? 0.125F : static_cast<float>(random.Fraction());
  const uint64_t head_stride = channels + random.Below(4);
  const uint64_t pair_stride = c.group * head_stride + random.Below(4);
  const bool fp32 = random.Below(2) == 0;
  const std::vector<uint16_t> narrow = MakeRows(random, kRows[random.Below(3)], c.fp16, channels,
                                                (c.pairs * pair_stride + channels - 1) / channels);
  std::vector<float> wide;
  for (const uint16_t bits : narrow) {
    wide.push_back(Widened(c.fp16, bits) + (fp32 ? 1e-5F : 0.0F));
  }
  std::vector<Pair> pairs;
  for (uint64_t p = 0; p < c.pairs; ++p) {
    std::vector<float> queries;
    for (uint64_t g = 0; g < c.group; ++g) {
      const auto row = wide.begin() + static_cast<ptrdiff_t>(p * pair_stride + g * head_stride);
      queries.insert(queries.end(), row, row + channels);
    }
    pairs.push_back(DrawPair(random));
    DrawLandmarks(random, c, queries, scale, pairs.back());
  }
  Step step = PrepareStep(machine, random, c, pairs);
  std::vector<uint32_t> rubbish(step.scores.size(), kUntouched);
  auto* const scores = machine.PutAll(rubbish);
  rubbish.resize(step.sums.size(), kUntouched);
  auto* const sums = machine.PutAll(rubbish);
  step.score.queries = fp32 ? static_cast<const void*>(machine.PutAll(wide))
                            : static_cast<const void*>(machine.PutAll(narrow));
  step.score.fp32_queries = fp32;
  step.score.query_head_stride = head_stride;
  step.score.query_pair_stride = pair_stride;
  step.score.scale = scale;
  step.score.scores = reinterpret_cast<float*>(scores);
  step.score.sums = reinterpret_cast<shadow::TileSum*>(sums);
  step.select.scores = step.score.scores;
  step.select.sums = step.score.sums;
  machine.Launch(step.score);
  machine.Launch(step.select);
  const std::string differs =
      Differ("score", machine.GetAll(scores, step.scores.size()), step.scores) +
      Differ("sum", machine.GetAll(sums, step.sums.size()), step.sums) +
      CheckSelected(machine, step, pairs);
  machine.Clear();
  return differs.empty() ? "" : differs + c.Describe();
}

std::string SelectChunksRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  const Case c(random);
  std::vector<Pair> pairs;
  for (uint32_t p = 0; p < c.pairs; ++p) {
    Pair pair = DrawPair(random);
    // Few different scores, or all as far apart as they may be.
    const uint64_t kinds = 1 + random.Below(6);
    std::vector<float> score(size_t{c.group} * pair.chunks);
    for (size_t i = 0; i < score.size(); ++i) {
      const auto value = static_cast<float>(random.Below(kinds)) - 2.0F;
      score[i] = kinds < 6               ? value
                 : random.Below(50) == 0 ? -shadow::kInfinity
                                         : static_cast<float>(random.Fraction()) * 1e6F;
      if (shadow::IsAlways(pair.always.data(), static_cast<uint32_t>(i % pair.chunks))) {
        score[i] = -shadow::kInfinity;
      }
    }
    pair.scores = shadow::SumScores(std::move(score), pair.chunks, c.group);
    pairs.push_back(std::move(pair));
  }
  Step step = PrepareStep(machine, random, c, pairs);
  step.select.scores = reinterpret_cast<const float*>(machine.PutAll(step.scores));
  step.select.sums = reinterpret_cast<const shadow::TileSum*>(machine.PutAll(step.sums));
  machine.Launch(step.select);
  const std::string differs = CheckSelected(machine, step, pairs);
  machine.Clear();
  return differs.empty() ? "" : differs + c.Describe();
}

std::string RebuildKeysRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  Case c(random);
  c.layout.bits = kBits[random.Below(2)];
  const uint32_t channels = c.layout.channels;
  const uint32_t chunk_tokens = 1u << random.Below(5);
  const uint64_t row_stride = channels + 2 * random.Below(3);
  const auto slots = static_cast<uint32_t>(1 + random.Below(30));
  const uint64_t pair_stride = slots * chunk_tokens * row_stride + 2 * random.Below(3);
  std::vector<uint16_t> expected(c.pairs * pair_stride, 0xEEEE);
  gpu::RebuildKeys k{.pair_stride = pair_stride,
                     .row_stride = row_stride,
                     .chunk_stride = slots + random.Below(3),
                     .pairs = c.pairs,
                     .most = slots + static_cast<uint32_t>(random.Below(3)),
                     .chunk_tokens = chunk_tokens,
                     .channels = channels,
                     .key_bits = c.layout.bits,
                     .fp16 = c.fp16};
  k.into = machine.PutAll(expected);
  std::vector<gpu::ShadowHead> heads(c.pairs);
  std::vector<uint32_t> chunks(c.pairs * k.chunk_stride), counts, first_new;
  std::vector<int32_t> slot_of(chunks.size(), 0);
  const bool all_new = random.Below(2) == 0;
  for (uint32_t p = 0; p < c.pairs; ++p) {
    const auto blocks = static_cast<uint32_t>(1 + random.Below(4));
    const std::vector<std::byte> stored =
        StoreBlocks(c.layout, c.fp16,
                    MakeRows(random, kRows[random.Below(std::size(kRows))], c.fp16, channels,
                             size_t{blocks} * shadow::kBlockRows));
    heads[p].keys = reinterpret_cast<const uint8_t*>(machine.PutAll(stored));
    counts.push_back(static_cast<uint32_t>(random.Below(slots + 1)));
    first_new.push_back(all_new ? 0 : static_cast<uint32_t>(random.Below(slots)));
    std::vector<int32_t> order(slots);
    std::iota(order.begin(), order.end(), 0);
    for (uint32_t i = 0; i < counts[p]; ++i) {
      std::swap(order[i], order[i + random.Below(slots - i)]);
      const size_t at = p * k.chunk_stride + i;
      chunks[at] =
          static_cast<uint32_t>(random.Below(blocks * (shadow::kBlockRows / chunk_tokens)));
      slot_of[at] = random.Below(4) == 0 ? -1 : order[i];
      if (slot_of[at] < 0 || i < first_new[p]) continue;
      std::vector<uint16_t> rows(size_t{chunk_tokens} * channels);
      shadow::RebuildChunk(c.layout, c.fp16, stored, chunks[at], chunk_tokens, rows);
      for (size_t row = 0; row < chunk_tokens; ++row) {
        const size_t into =
            p * pair_stride + (static_cast<size_t>(order[i]) * chunk_tokens + row) * row_stride;
        std::copy_n(rows.begin() + static_cast<ptrdiff_t>(row * channels), channels,
                    expected.begin() + static_cast<ptrdiff_t>(into));
      }
    }
  }
  k.heads = machine.PutAll(heads);
  k.chunks = machine.PutAll(chunks);
  k.counts = machine.PutAll(counts);
  k.slots = machine.PutAll(slot_of);
  k.first_new = all_new ? nullptr : machine.PutAll(first_new);
  machine.Launch(k);
  const std::vector<uint16_t> is = machine.GetAll(k.into, expected.size());
  machine.Clear();
  const auto at = std::mismatch(is.begin(), is.end(), expected.begin());
  if (at.first == is.end()) return "";
  return "element " + std::to_string(at.first - is.begin()) + ": " + std::to_string(*at.first) +
         " for " + std::to_string(*at.second) + "; " + c.Describe();
}

std::string RebuildLowRankRound(KernelMachine& machine, uint64_t seed) {
  SeededRandom random(seed);
  const Case c(random);
  const uint32_t channels = c.layout.channels, all = c.pairs * channels;
  const auto rank = static_cast<uint32_t>(1 + random.Below(20));
  const uint32_t chunk_tokens = 1u << random.Below(5);
  const auto chunks = static_cast<uint32_t>(1 + random.Below(40));
  const uint32_t tokens = chunks * chunk_tokens;
  LayerGroup group = LayerGroup::FullAttention(1, std::max(1u, c.pairs), channels,
                                               c.fp16 ? Dtype::kF16 : Dtype::kBf16);
  const uint32_t width = channels / (1u << random.Below(2));
  group.inv_freq = RotaryFrequencies(width, 10'000.0);
  RotarySpec& rotary = group.planes[0].rotary;
  rotary.width = width;
  rotary.first = (channels - width) / 2;
  if (random.Below(2) == 0) rotary.pairing = RotaryPairing::kAdjacent;
  const auto rotation = Rotation::Of(group, 0);
  if (!rotation.ok()) return rotation.status().ToString();

  shadow::LowRankBasis basis{.fp16 = c.fp16, .channels = all, .rank = rank};
  basis.vectors = MakeRows(random, kRows[0], c.fp16, std::max(8u, all), rank);
  const std::vector<uint16_t> coefficients = MakeRows(random, kRows[0], c.fp16, rank, tokens);
  std::vector<RotaryTurn> turns(size_t{tokens} * rotation->pairs());
  for (uint64_t t = 0; t < tokens; ++t) {
    const uint64_t from = 0, to = t;
    rotation->Between({&from, 1}, {&to, 1},
                      std::span(turns).subspan(t * rotation->pairs(), rotation->pairs()));
  }
  const auto slots = static_cast<uint32_t>(1 + random.Below(20));
  gpu::RebuildLowRank k{.pair_stride = uint64_t{slots} * chunk_tokens * channels + random.Below(3),
                        .chunk_stride = slots + random.Below(3),
                        .pairs = c.pairs,
                        .most = slots + static_cast<uint32_t>(random.Below(3)),
                        .chunk_tokens = chunk_tokens,
                        .channels = channels,
                        .rank = rank,
                        .turned = rotation->pairs(),
                        .window = rotary.first,
                        .adjacent = rotary.pairing == RotaryPairing::kAdjacent,
                        .fp16 = c.fp16};
  std::vector<uint16_t> expected(c.pairs * k.pair_stride, 0xEEEE);
  std::vector<uint32_t> which(c.pairs * k.chunk_stride), counts;
  std::vector<int32_t> slot_of(which.size(), -1);
  for (uint32_t p = 0; p < c.pairs; ++p) {
    counts.push_back(static_cast<uint32_t>(random.Below(slots + 1)));
    for (uint32_t i = 0; i < counts[p]; ++i) {
      const size_t at = p * k.chunk_stride + i;
      which[at] = static_cast<uint32_t>(random.Below(chunks));
      slot_of[at] = random.Below(5) == 0 ? -1 : static_cast<int32_t>(i);
      for (uint32_t t = 0; slot_of[at] >= 0 && t < chunk_tokens; ++t) {
        const uint64_t token = uint64_t{which[at]} * chunk_tokens + t;
        const auto row = std::span(expected).subspan(
            p * k.pair_stride + (uint64_t{i} * chunk_tokens + t) * channels, channels);
        shadow::RebuildRow(basis, std::span(coefficients).subspan(token * rank, rank), p * channels,
                           row);
        const auto bytes = std::as_writable_bytes(row);
        rotation->Turn(std::span(turns).subspan(token * k.turned, k.turned), bytes, bytes);
      }
    }
  }
  k.coefficients = machine.PutAll(coefficients);
  k.vectors = machine.PutAll(basis.vectors);
  k.turns = reinterpret_cast<const float*>(machine.PutAll(turns));
  k.chunks = machine.PutAll(which);
  k.counts = machine.PutAll(counts);
  k.slots = machine.PutAll(slot_of);
  const std::vector<uint16_t> untouched(expected.size(), 0xEEEE);
  k.into = machine.PutAll(untouched);
  machine.Launch(k);
  const std::vector<uint16_t> is = machine.GetAll(k.into, expected.size());
  machine.Clear();
  const auto at = std::mismatch(is.begin(), is.end(), expected.begin());
  if (at.first == is.end()) return "";
  return "element " + std::to_string(at.first - is.begin()) + ": " + std::to_string(*at.first) +
         " for " + std::to_string(*at.second) + "; rank " + std::to_string(rank) + ", " +
         c.Describe();
}

}  // namespace cairn::testing
