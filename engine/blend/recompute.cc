// SPDX-License-Identifier: Apache-2.0
#include "engine/blend/recompute.h"

#include <algorithm>
#include <cmath>

#include "base/core/check.h"
#include "engine/blend/constants.h"

namespace cairn::engine {

namespace {

class Runs {
 public:
  Runs(std::span<const TokenId> tokens, std::span<const Piece> pieces, const BlendOptions& options)
      : tokens_(tokens), pieces_(pieces), options_(options) {
    if (!pieces.empty() && pieces.front().prefix) exact_ = pieces.front().end;
  }

  std::vector<PromptRange> All() {
    AddGaps();
    for (size_t i = 0; i < pieces_.size(); ++i) AddPiece(i);
    AddSeparators();
    for (const PromptRange& range : options_.recompute) ranges_.push_back(range);
    ranges_.push_back({tokens_.size() - 1, tokens_.size()});
    for (PromptRange& range : ranges_) {
      const uint64_t over = range.end % options_.align_tokens;
      if (over != 0) range.end += options_.align_tokens - over;
      range.end = std::min<uint64_t>(range.end, tokens_.size());
    }
    return Joined(std::move(ranges_));
  }

 private:
  // What is exact stays.
  void Add(uint64_t begin, uint64_t end) {
    begin = std::max(begin, exact_);
    end = std::min<uint64_t>(end, tokens_.size());
    if (begin < end) ranges_.push_back({begin, end});
  }

  void AddGaps() {
    uint64_t at = 0;
    for (const Piece& piece : pieces_) {
      Add(at, piece.begin);
      at = piece.end;
    }
    Add(at, tokens_.size());
  }

  void AddPiece(size_t index) {
    const Piece& piece = pieces_[index];
    if (piece.prefix) return;
    const uint64_t around = options_.recompute_boundary;
    if (index == 0 || !pieces_[index - 1].GoesOnAs(piece)) {
      const auto share = static_cast<uint64_t>(
          std::ceil(options_.recompute_ratio * static_cast<double>(piece.end - piece.begin)));
      Add(piece.begin, piece.begin + std::max<uint64_t>(options_.recompute_first, share));
    }
    // The first token of a path drew attention as a sink, as it does nowhere else.
    if (piece.source == 0) Add(piece.begin, piece.begin + 1);
    const bool goes_on = index + 1 < pieces_.size() && piece.GoesOnAs(pieces_[index + 1]);
    if (!goes_on && piece.end < tokens_.size()) {
      Add(piece.end - std::min(piece.end - piece.begin, around), piece.end);
    }
    for (const uint64_t at : piece.differs) Add(at - std::min(at, around), at + 1 + around);
  }

  void AddSeparators() {
    uint64_t behind_last = 0;
    for (const std::vector<TokenId>& separator : options_.separators) {
      auto at = tokens_.begin();
      while ((at = std::search(at, tokens_.end(), separator.begin(), separator.end())) !=
             tokens_.end()) {
        const auto begin = static_cast<uint64_t>(at - tokens_.begin());
        Add(begin, begin + separator.size());
        behind_last = std::max<uint64_t>(behind_last, begin + separator.size());
        ++at;
      }
    }
    if (behind_last != 0) Add(behind_last, tokens_.size());
  }

  const std::span<const TokenId> tokens_;
  const std::span<const Piece> pieces_;
  const BlendOptions& options_;
  uint64_t exact_ = 0;
  std::vector<PromptRange> ranges_;
};

}  // namespace

std::vector<PromptRange> Joined(std::vector<PromptRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const PromptRange& a, const PromptRange& b) { return a.begin < b.begin; });
  std::vector<PromptRange> joined;
  for (const PromptRange& range : ranges) {
    if (!joined.empty() && range.begin < joined.back().end + kJoinedRuns) {
      joined.back().end = std::max(joined.back().end, range.end);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

std::vector<PromptRange> RecomputedOf(std::span<const TokenId> tokens,
                                      std::span<const Piece> pieces, const BlendOptions& options) {
  CAIRN_CHECK(!tokens.empty());
  return Runs(tokens, pieces, options).All();
}

}  // namespace cairn::engine
