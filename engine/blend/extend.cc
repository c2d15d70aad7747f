// SPDX-License-Identifier: Apache-2.0
#include "engine/blend/extend.h"

#include <algorithm>

#include "engine/blend/constants.h"
#include "engine/find/chunk_stretches.h"
#include "engine/restore/plan/plan.h"
#include "engine/tree/memory/path.h"

namespace cairn::engine {

bool SimilarWindow::Add(bool equal) {
  if (added_ < window_) {
    last_.push_back(equal);
  } else {
    if (last_[added_ % window_]) --equal_;
    last_[added_ % window_] = equal;
  }
  ++added_;
  if (equal) ++equal_;
  const auto counted = static_cast<double>(std::min(added_, window_));
  return static_cast<double>(equal_) >= ratio_ * counted;
}

Status PieceExtender::Extend(std::vector<Piece>* pieces) {
  if (options_.min_match_ratio >= 1.0) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(GoOn(pieces, /*to_right=*/true));
  JoinNeighbours(pieces);
  CAIRN_RETURN_IF_ERROR(GoOn(pieces, /*to_right=*/false));
  JoinNeighbours(pieces);
  return Status::Ok();
}

Status PieceExtender::GoOn(std::vector<Piece>* pieces, bool to_right) {
  std::vector<Side> sides = SidesOf(pieces, to_right);
  for (uint64_t reach = kExtendReach;; reach = std::min(4 * reach, kExtendReachMax)) {
    std::erase_if(sides, [](const Side& side) { return !side.open; });
    if (sides.empty()) return Status::Ok();
    for (Side& side : sides) SetRun(&side, reach, to_right);
    CAIRN_RETURN_IF_ERROR(Clip(&sides, to_right));
    std::vector<PathRun*> runs;
    for (Side& side : sides) {
      if (side.run.begin < side.run.end) runs.push_back(&side.run);
    }
    CAIRN_RETURN_IF_ERROR(ReadRuns(reader_, runs, query_.memory_only));
    for (Side& side : sides) Look(&side, to_right);
  }
}

std::vector<PieceExtender::Side> PieceExtender::SidesOf(std::vector<Piece>* pieces,
                                                        bool to_right) const {
  std::vector<Side> sides;
  for (size_t i = 0; i < pieces->size(); ++i) {
    Piece& piece = (*pieces)[i];
    if (piece.of_hit || piece.prefix) continue;
    Side side{.piece = &piece,
              .window = SimilarWindow(options_.chunk_tokens, options_.min_match_ratio)};
    if (to_right) {
      side.at = piece.end;
      side.other = i + 1 < pieces->size() ? &piece + 1 : nullptr;
      side.limit = side.other != nullptr ? side.other->begin : query_.tokens.size();
    } else {
      side.at = piece.begin;
      side.other = i != 0 ? &piece - 1 : nullptr;
      side.limit = side.other != nullptr ? side.other->end : 0;
      // The path begins somewhere.
      side.limit = std::max(side.limit, piece.begin - std::min(piece.begin, piece.source));
    }
    if (side.at == side.limit) continue;
    // The window begins with what the piece has, as seen from that side.
    const uint64_t known = std::min<uint64_t>(options_.chunk_tokens, piece.end - piece.begin);
    for (uint64_t k = known; k != 0; --k) {
      const uint64_t at = to_right ? piece.end - k : piece.begin + k - 1;
      side.window.Add(!std::binary_search(piece.differs.begin(), piece.differs.end(), at));
    }
    sides.push_back(std::move(side));
  }
  return sides;
}

void PieceExtender::SetRun(Side* side, uint64_t reach, bool to_right) const {
  const uint64_t left = to_right ? side->limit - side->at : side->at - side->limit;
  const uint64_t count = std::min(left, reach);
  const uint64_t first = to_right ? side->at : side->at - count;
  // Before the piece its source may be less than what it begins with.
  const uint64_t begin = first - side->piece->begin + side->piece->source;
  side->run = {.node = side->piece->node, .begin = begin, .end = begin + count};
}

// Cuts each side's run to what has exact KV beside the piece. Where there is none the side ends.
Status PieceExtender::Clip(std::vector<Side>* sides, bool to_right) {
  std::vector<uint64_t> nodes;
  for (const Side& side : *sides) nodes.push_back(side.run.node);
  Committer::Lock lock(write_.mutex());
  CAIRN_RETURN_IF_ERROR(write_.access->LoadNodes(nodes, query_.memory_only, &lock));
  const Tree& tree = write_.tree();
  for (Side& side : *sides) {
    PathRun& run = side.run;
    const uint64_t asked = run.end - run.begin;
    const Node* const node = tree.FindNode(run.node);
    std::vector<ChunkStretch> exact;
    if (node != nullptr) exact = ExactStretches(tree, *node, run.begin, run.end);
    if (!exact.empty() && to_right && exact.front().begin == run.begin) {
      run.end = exact.front().end;
    } else if (!exact.empty() && !to_right && exact.back().end == run.end) {
      run.begin = exact.back().begin;
    } else {
      run.end = run.begin;
    }
    if (run.end - run.begin < asked) {
      side.limit = to_right ? side.at + (run.end - run.begin) : side.at - (run.end - run.begin);
    }
    if (run.begin < run.end) {
      run.spans = CollectSpans(tree, HeadOfNode(*node), run.begin, run.end);
    }
  }
  return Status::Ok();
}

void PieceExtender::Look(Side* side, bool to_right) const {
  Piece& piece = *side->piece;
  const PathRun& run = side->run;
  side->open = !run.ids.empty();
  for (uint64_t k = 0; k < run.ids.size(); ++k) {
    const uint64_t source = to_right ? run.begin + k : run.end - 1 - k;
    const uint64_t at = to_right ? side->at++ : --side->at;
    const bool equal = IsSame(run, source, query_, at);
    if (!side->window.Add(equal)) {
      side->open = false;
      return;
    }
    if (!equal) {
      side->differs.push_back(at);
      continue;
    }
    if (to_right) {
      piece.end = at + 1;
    } else {
      piece.source = source;
      piece.begin = at;
    }
    TakeDiffers(side);
  }
  if (!side->open || side->at != side->limit) return;
  side->open = false;
  Reach(side, to_right);
}

void PieceExtender::TakeDiffers(Side* side) {
  std::vector<uint64_t>& all = side->piece->differs;
  all.insert(all.end(), side->differs.begin(), side->differs.end());
  side->differs.clear();
}

// All up to a piece that goes on there is similar: the two may be one.
void PieceExtender::Reach(Side* side, bool to_right) {
  Piece& piece = *side->piece;
  const Piece* const other = side->other;
  if (other == nullptr || other->prefix || other->of_hit || other->node != piece.node ||
      other->shift() != piece.shift() || side->limit != (to_right ? other->begin : other->end)) {
    return;
  }
  if (to_right) {
    piece.end = side->limit;
  } else {
    piece.source -= piece.begin - side->limit;
    piece.begin = side->limit;
  }
  TakeDiffers(side);
}

// Whether enough is equal wherever a window stands that has ids on both sides of `seam`.
bool PieceExtender::IsSimilarAt(const Piece& piece, uint64_t seam) const {
  const uint64_t window = options_.chunk_tokens;
  const uint64_t begin = seam - std::min(seam - piece.begin, window);
  const uint64_t end = std::min(piece.end, seam + window);
  // A piece that is shorter than a window counts as a whole.
  const uint64_t first_whole = std::min(begin + window, piece.end);
  SimilarWindow similar(window, options_.min_match_ratio);
  auto differs = std::lower_bound(piece.differs.begin(), piece.differs.end(), begin);
  for (uint64_t at = begin; at < end; ++at) {
    const bool equal = differs == piece.differs.end() || *differs != at;
    if (!equal) ++differs;
    if (!similar.Add(equal) && at + 1 >= first_whole) return false;
  }
  return true;
}

// Pieces that came together are one if that is similar, too. Else each ends with an id that is
// equal.
void PieceExtender::JoinNeighbours(std::vector<Piece>* pieces) const {
  std::vector<Piece> joined;
  for (Piece& piece : *pieces) {
    std::sort(piece.differs.begin(), piece.differs.end());
    if (!joined.empty() && !joined.back().prefix && !joined.back().of_hit &&
        joined.back().GoesOnAs(piece)) {
      Piece& before = joined.back();
      const uint64_t seam = before.end;
      const size_t differed = before.differs.size();
      before.end = piece.end;
      before.differs.insert(before.differs.end(), piece.differs.begin(), piece.differs.end());
      if (IsSimilarAt(before, seam)) continue;
      before.end = seam;
      before.differs.resize(differed);
    }
    joined.push_back(std::move(piece));
  }
  for (Piece& piece : joined) TrimEnds(&piece);
  *pieces = std::move(joined);
}

void PieceExtender::TrimEnds(Piece* piece) {
  while (!piece->differs.empty() && piece->differs.back() == piece->end - 1) {
    piece->differs.pop_back();
    --piece->end;
  }
  while (!piece->differs.empty() && piece->differs.front() == piece->begin) {
    piece->differs.erase(piece->differs.begin());
    ++piece->begin;
    ++piece->source;
  }
}

}  // namespace cairn::engine
