// SPDX-License-Identifier: Apache-2.0
//
// exact. The chunks that a step needs, like shadow::SelectChunks: a block for each pair. It finds
// the key of the last selected chunk digit by digit, then writes the chunks in rising order.
#pragma once

#include <cstdint>

#include "gpu/kernels/shadow_head.h"
#include "gpu/lane.h"

namespace cairn::gpu {

struct SelectChunks {
  const ShadowHead* heads = nullptr;  // One per pair.
  const float* scores = nullptr;      // From ScoreChunks, with its strides.
  const shadow::TileSum* sums = nullptr;
  uint32_t* keys = nullptr;    // Room for pairs * score_stride; of no use afterwards.
  uint32_t* chunks = nullptr;  // Selected, ShadowHead::budget at most; `chunk_stride` a pair.
  uint32_t* counts = nullptr;  // One per pair.
  uint64_t score_stride = 0, chunk_stride = 0;
  uint32_t pairs = 0, tiles = 0, group = 1;

  // Threads of a block: the most that a pair can have to itself.
  static constexpr uint32_t kThreads = 512;
  static constexpr uint32_t kWarps = kThreads / kWarp;
  static constexpr uint32_t kDigitBits = 8;
  static constexpr uint32_t kDigits = 1u << kDigitBits;
};

// Shared by the threads of a block; behind it one float for each query head.
struct SelectShared {
  uint32_t bins[SelectChunks::kDigits];
  uint32_t lowest[SelectChunks::kWarps], highest[SelectChunks::kWarps];
  uint32_t count[SelectChunks::kWarps];                               // Selectable.
  uint32_t above[SelectChunks::kWarps], equal[SelectChunks::kWarps];  // The last one selected.
  uint32_t digit, left;
};

struct KeyRange {
  uint32_t lowest = UINT32_MAX, highest = 0, count = 0;

  CAIRN_GPU void Add(uint32_t other_lowest, uint32_t other_highest, uint32_t other_count) {
    lowest = other_lowest < lowest ? other_lowest : lowest;
    highest = other_highest > highest ? other_highest : highest;
    count += other_count;
  }
};

// Chunks with a larger key are selected, and the first `equal` of those with this key.
struct LastKey {
  uint32_t key = 0, equal = 0;
};

// By query head max + log(sum), behind SelectShared.
template <typename Lane>
CAIRN_GPU void SumTiles(const Lane& at, const SelectChunks& k, uint32_t pair, uint32_t tiles) {
  float* const log_sums = at.template Shared<float>(sizeof(SelectShared));
  for (uint32_t g = at.warp(); g < k.group; g += SelectChunks::kWarps) {
    const shadow::TileSum* const sums = k.sums + (uint64_t{pair} * k.group + g) * k.tiles;
    float max = -shadow::kInfinity, sum = 0.0F;
    for (uint32_t t = at.lane(); t < tiles; t += kWarp) max = shadow::Max(max, sums[t].max);
    max = WarpMax(at, max);
    for (uint32_t t = at.lane(); t < tiles; t += kWarp) {
      sum = sum + sums[t].sum * shadow::Exp(sums[t].max - max);
    }
    sum = WarpAdd(at, sum);
    if (at.lane() == 0) log_sums[g] = max + shadow::Log(sum);
  }
}

// A key for each chunk: ordered by its worth, 0 for those that cannot be selected. All are written
// when it returns.
template <typename Lane>
CAIRN_GPU KeyRange MakeKeys(const Lane& at, const SelectChunks& k, const ShadowHead& head,
                            uint32_t pair, uint32_t* keys) {
  auto* const shared = at.template Shared<SelectShared>(0);
  const float* const log_sums = at.template Shared<float>(sizeof(SelectShared));
  const float* const scores = k.scores + uint64_t{pair} * k.group * k.score_stride;
  KeyRange range;
  for (uint32_t i = at.thread(); i < head.chunks; i += SelectChunks::kThreads) {
    float best = -shadow::kInfinity;
    for (uint32_t g = 0; g < k.group; ++g) {
      best = shadow::Max(best, scores[g * k.score_stride + i] - log_sums[g]);
    }
    const bool selectable = !shadow::IsAlways(head.always, i);
    const uint32_t key = selectable ? shadow::OrderedBits(best) : 0;
    keys[i] = key;
    if (selectable) range.Add(key, key, 1);
  }
  CAIRN_UNROLL
  for (uint32_t apart = kWarp / 2; apart > 0; apart /= 2) {
    const uint32_t other = at.lane() ^ apart;
    const uint32_t lowest = at.Shuffle(range.lowest, other);
    const uint32_t highest = at.Shuffle(range.highest, other);
    range.Add(lowest, highest, at.Shuffle(range.count, other));
  }
  if (at.lane() == 0) {
    shared->lowest[at.warp()] = range.lowest;
    shared->highest[at.warp()] = range.highest;
    shared->count[at.warp()] = range.count;
  }
  at.SyncBlock();
  KeyRange all;
  for (uint32_t w = 0; w < SelectChunks::kWarps; ++w) {
    all.Add(shared->lowest[w], shared->highest[w], shared->count[w]);
  }
  return all;
}

// One warp finds the digit of the `left`-th largest key, and how many keys with that digit are left
// to select.
template <typename Lane>
CAIRN_GPU void FindDigit(const Lane& at, SelectShared* shared, uint32_t left) {
  constexpr uint32_t kOfLane = SelectChunks::kDigits / kWarp;
  const uint32_t* const bins = shared->bins + at.lane() * kOfLane;
  uint32_t mine = 0;
  for (uint32_t i = 0; i < kOfLane; ++i) mine += bins[i];
  uint32_t above = mine;  // And in all bins of higher lanes.
  CAIRN_UNROLL
  for (uint32_t apart = 1; apart < kWarp; apart *= 2) {
    const uint32_t more = at.Shuffle(above, at.lane() + apart);
    if (at.lane() + apart < kWarp) above += more;
  }
  if (above < left || above - mine >= left) return;
  above -= mine;
  uint32_t i = kOfLane - 1;
  for (; above + bins[i] < left; --i) above += bins[i];
  shared->digit = at.lane() * kOfLane + i;
  shared->left = left - above;
}

// REQUIRES: more selectable chunks than the budget, which is not 0.
template <typename Lane>
CAIRN_GPU LastKey FindLastKey(const Lane& at, const ShadowHead& head, const uint32_t* keys,
                              const KeyRange& range) {
  auto* const shared = at.template Shared<SelectShared>(0);
  // Digits of the distance from the lowest key: the first of them separates keys, too.
  uint32_t known = 0, left = head.budget, bits = at.BitWidth(range.highest - range.lowest);
  while (bits > 0) {
    const uint32_t digit_bits = bits < SelectChunks::kDigitBits ? bits : SelectChunks::kDigitBits;
    const uint32_t rest = bits - digit_bits;
    for (uint32_t i = at.thread(); i < SelectChunks::kDigits; i += SelectChunks::kThreads) {
      shared->bins[i] = 0;
    }
    at.SyncBlock();
    for (uint32_t i = at.thread(); i < head.chunks; i += SelectChunks::kThreads) {
      // Key 0 wraps around and is farther than all others: they are at most that of 0.0.
      const uint32_t distance = keys[i] - range.lowest;
      if (uint64_t{distance} >> bits != known) continue;
      at.AtomicAdd(&shared->bins[distance >> rest & ((1u << digit_bits) - 1)], 1);
    }
    at.SyncBlock();
    if (at.warp() == 0) FindDigit(at, shared, left);
    at.SyncBlock();
    known = known << digit_bits | shared->digit;
    left = shared->left;
    bits = rest;
  }
  return {range.lowest + known, left};
}

// Each warp writes the selected ones of a run of chunks.
template <typename Lane>
CAIRN_GPU void WriteSelected(const Lane& at, const ShadowHead& head, const uint32_t* keys,
                             const LastKey& last, uint32_t* chunks) {
  auto* const shared = at.template Shared<SelectShared>(0);
  const uint32_t of_warp = (head.chunks / SelectChunks::kWarps / kWarp + 1) * kWarp;
  const uint32_t begin = at.warp() * of_warp;
  const uint32_t end = begin + of_warp < head.chunks ? begin + of_warp : head.chunks;
  uint32_t above = 0, equal = 0;
  for (uint32_t first = begin; first < end; first += kWarp) {
    const uint32_t key = first + at.lane() < end ? keys[first + at.lane()] : 0;
    const Votes<2> votes = at.Ballots(Votes<2>{{key > last.key, key == last.key}});
    above += at.PopCount(votes.of[0]);
    equal += at.PopCount(votes.of[1]);
  }
  if (at.lane() == 0) {
    shared->above[at.warp()] = above;
    shared->equal[at.warp()] = equal;
  }
  at.SyncBlock();
  above = equal = 0;  // Before this warp's.
  for (uint32_t w = 0; w < at.warp(); ++w) {
    above += shared->above[w];
    equal += shared->equal[w];
  }
  for (uint32_t first = begin; first < end; first += kWarp) {
    const uint32_t chunk = first + at.lane();
    const uint32_t key = chunk < end ? keys[chunk] : 0;
    const bool is_above = key > last.key, is_equal = key == last.key;
    const Votes<2> votes = at.Ballots(Votes<2>{{is_above, is_equal}});
    const uint32_t before = Below(at.lane());
    const uint32_t above_here = above + at.PopCount(votes.of[0] & before);
    const uint32_t equal_here = equal + at.PopCount(votes.of[1] & before);
    if (is_above || (is_equal && equal_here < last.equal)) {
      chunks[above_here + (equal_here < last.equal ? equal_here : last.equal)] = chunk;
    }
    above += at.PopCount(votes.of[0]);
    equal += at.PopCount(votes.of[1]);
  }
}

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const SelectChunks& k) {
  const uint32_t pair = at.block();
  if (pair >= k.pairs) return;
  const ShadowHead& head = k.heads[pair];
  uint32_t* const keys = k.keys + pair * k.score_stride;
  SumTiles(at, k, pair, shadow::TileCount(head.chunks));
  at.SyncBlock();
  const KeyRange range = MakeKeys(at, k, head, pair, keys);
  const uint32_t count = range.count < head.budget ? range.count : head.budget;
  if (at.thread() == 0) k.counts[pair] = count;
  if (count == 0) return;
  // Keys of all selectable chunks are above 0.
  LastKey last;
  if (count < range.count) last = FindLastKey(at, head, keys, range);
  WriteSelected(at, head, keys, last, k.chunks + pair * k.chunk_stride);
}

}  // namespace cairn::gpu
