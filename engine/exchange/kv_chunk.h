// SPDX-License-Identifier: Apache-2.0
//
// Pieces of a group's KV on their way between a store and a file. In memory, as in the tensors,
// the positions of one head follow each other: [layer][plane][head][position][row].
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cairn/kv_view.h"
#include "engine/exchange/branch_file.h"
#include "engine/exchange/hex.h"

namespace cairn::engine {

// Positions [begin, end) of one run, in layers [layer_begin, layer_end).
struct KvPiece {
  uint32_t group = 0, layer_begin = 0, layer_end = 0;
  size_t run = 0;
  uint64_t begin = 0, end = 0;
  uint64_t bytes = 0;
  // Where it stands in its tensors: rows of each head before it, of all that there are; and the
  // first layer's first tensor, an index in BranchFile::tensors.
  uint64_t first_row = 0, rows = 0;
  size_t first_tensor = 0;
};

// Cuts the KV of a file into pieces of `bytes_max`, which begin and end where blocks of digests do.
// `rows`, if it is given, says of a group how many positions a piece should have, of few layers
// where those are many; 0: as many as fit with all layers. A piece is larger where one block is.
std::vector<KvPiece> CutKv(const BranchFile& file, uint64_t bytes_max,
                           const std::function<uint64_t(uint32_t group)>& rows = {});

// A view of a piece's positions [begin, end), which lie in `memory` as above.
class PieceView {
 public:
  PieceView(const ModelSpec& model, const KvPiece& piece, std::span<std::byte> memory,
            uint64_t begin, uint64_t end);
  PieceView(const PieceView&) = delete;
  PieceView& operator=(const PieceView&) = delete;
  const KvView* view() const { return &view_; }

 private:
  std::vector<std::vector<std::byte*>> bases_;
  std::vector<PlaneView> planes_;
  GroupView group_;
  KvView view_;
};

// One head of a piece: where it lies in memory and, behind the header, in the file.
struct KvStrip {
  size_t tensor = 0;  // Index in BranchFile::tensors.
  uint32_t head = 0;
  uint32_t row_bytes = 0;
  uint64_t offset = 0;
  std::span<std::byte> bytes{};
};
std::vector<KvStrip> StripsOf(const BranchFile& file, const KvPiece& piece,
                              std::span<std::byte> memory);

// Digests of all tensors of KV, from those of their blocks. Different pieces may be added by
// several threads at once.
class KvDigests {
 public:
  explicit KvDigests(const BranchFile& file);
  void Add(const KvPiece& piece, const KvStrip& strip);
  // REQUIRES: all pieces were added.
  std::string Of(size_t tensor) const;

 private:
  const BranchFile& file_;
  std::vector<std::vector<uint64_t>> first_blocks_;  // By group and run; then the sum of all.
  std::vector<std::vector<Digest>> digests_;         // By tensor: by head, then by block.
};

}  // namespace cairn::engine
