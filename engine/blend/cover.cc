// SPDX-License-Identifier: Apache-2.0
#include "engine/blend/cover.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

namespace cairn::engine {

namespace {

struct Worse {
  static auto RankOf(const ChunkMatch& match) {
    return std::tuple(match.end - match.begin, match.source != 0, match.node,
                      UINT64_MAX - match.begin, UINT64_MAX - match.source);
  }
  bool operator()(const ChunkMatch& a, const ChunkMatch& b) const { return RankOf(a) < RankOf(b); }
};

ChunkMatch Clipped(const ChunkMatch& match, uint64_t begin, uint64_t end) {
  return {
      .begin = begin, .end = end, .node = match.node, .source = match.source + begin - match.begin};
}

}  // namespace

std::vector<Piece> Cover(std::span<const ChunkMatch> matches, uint64_t from) {
  std::priority_queue<ChunkMatch, std::vector<ChunkMatch>, Worse> open;
  const auto add = [&](const ChunkMatch& match, uint64_t begin, uint64_t end) {
    if (begin < end && end - begin >= kMinBlendTokens) open.push(Clipped(match, begin, end));
  };
  for (const ChunkMatch& match : matches) add(match, std::max(match.begin, from), match.end);
  std::map<uint64_t, ChunkMatch> taken;  // By where they begin.
  while (!open.empty()) {
    const ChunkMatch match = open.top();
    open.pop();
    auto next = taken.upper_bound(match.begin);
    if (next != taken.begin() && std::prev(next)->second.end > match.begin) --next;
    if (next == taken.end() || next->second.begin >= match.end) {
      taken.emplace(match.begin, match);
      continue;
    }
    uint64_t at = match.begin;
    for (; next != taken.end() && next->second.begin < match.end; ++next) {
      add(match, at, next->second.begin);
      at = std::max(at, next->second.end);
    }
    add(match, at, match.end);
  }
  std::vector<Piece> pieces;
  for (const auto& [begin, match] : taken) {
    pieces.push_back(
        {.begin = begin, .end = match.end, .node = match.node, .source = match.source});
  }
  return pieces;
}

}  // namespace cairn::engine
