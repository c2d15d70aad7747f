// SPDX-License-Identifier: Apache-2.0
//
// Extends pieces, whose ids are all equal, into what is left between them, while ids stay similar:
// of each BlendOptions::chunk_tokens in a row the share min_match_ratio is equal; of a piece that
// is shorter, of all of it. To the right first, then to the left; each end is an id that is equal.
// A piece that comes to one that goes on where it ends is one with it. KV stays exact in all
// groups.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cairn/blend.h"
#include "engine/blend/piece.h"
#include "engine/commit/write_deps.h"
#include "engine/find/path_runs.h"

namespace cairn::engine {

// Counts how many of the last `window` ids are equal.
class SimilarWindow {
 public:
  SimilarWindow(uint64_t window, double ratio) : window_(window), ratio_(ratio) {}
  // Whether enough are, with this one.
  bool Add(bool equal);

 private:
  uint64_t window_;
  double ratio_;
  std::vector<bool> last_;  // The newest, by their number modulo the window.
  uint64_t added_ = 0, equal_ = 0;
};

class PieceExtender {
 public:
  // All outlive this. A node is of the query's model, and of one of these namespaces.
  PieceExtender(const WriteDeps& write, Reader* reader, const PrefixQuery& query,
                const BlendOptions& options)
      : write_(write), reader_(reader), query_(query), options_(options) {}

  // A prefix stays as it is. kBusy with memory_only, kIoError, kOutOfMemory, kCorruption.
  Status Extend(std::vector<Piece>* pieces);

 private:
  // One side of a piece that may go on.
  struct Side {
    Piece* piece = nullptr;
    const Piece* other = nullptr;  // The next one on that side, if any.
    uint64_t limit = 0;            // Position of the query.
    uint64_t at = 0;               // Looked at so far.
    SimilarWindow window;
    std::vector<uint64_t> differs{};  // Behind the last one that is equal.
    PathRun run{};
    bool open = true;
  };

  Status GoOn(std::vector<Piece>* pieces, bool to_right);
  std::vector<Side> SidesOf(std::vector<Piece>* pieces, bool to_right) const;
  void SetRun(Side* side, uint64_t reach, bool to_right) const;
  Status Clip(std::vector<Side>* sides, bool to_right);
  void Look(Side* side, bool to_right) const;
  static void TakeDiffers(Side* side);
  static void Reach(Side* side, bool to_right);
  bool IsSimilarAt(const Piece& piece, uint64_t seam) const;
  void JoinNeighbours(std::vector<Piece>* pieces) const;
  static void TrimEnds(Piece* piece);

  const WriteDeps& write_;
  Reader* const reader_;
  const PrefixQuery& query_;
  const BlendOptions& options_;
};

}  // namespace cairn::engine
