// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/kv_chunk.h"

#include <algorithm>

namespace cairn::engine {

namespace {

uint64_t LayerBytes(const LayerGroup& group) { return group.token_bytes() / group.layers; }

// The first position of the block behind the one of `position`, or of the `step` behind it.
uint64_t NextBoundary(uint64_t position, uint64_t step) { return (position / step + 1) * step; }

}  // namespace

std::vector<KvPiece> CutKv(const BranchFile& file, uint64_t bytes_max,
                           const std::function<uint64_t(uint32_t group)>& rows) {
  std::vector<KvPiece> pieces;
  size_t first_tensor = 0;
  for (uint32_t index = 0; index < file.groups.size(); ++index) {
    const LayerGroup& group = file.model.groups[index];
    const GroupKv& kv = file.groups[index];
    const uint64_t n = kv.digest_positions;
    const uint64_t rows_wanted = rows ? rows(index) : 0;
    const uint64_t layers_least = rows_wanted != 0 ? 1 : group.layers;
    const uint64_t fit = bytes_max / std::max<uint64_t>(1, LayerBytes(group) * layers_least);
    const uint64_t wanted = rows_wanted != 0 ? std::min(fit, rows_wanted) : fit;
    const uint64_t step = std::max(n, wanted / n * n);
    const uint64_t all_rows = kv.positions();
    uint64_t row = 0;
    for (size_t run = 0; run < kv.runs.size(); ++run) {
      for (uint64_t begin = kv.runs[run].begin; begin < kv.runs[run].end;) {
        const uint64_t end = std::min(NextBoundary(begin, step), kv.runs[run].end);
        const uint64_t layer_bytes = (end - begin) * LayerBytes(group);
        const uint64_t layers =
            std::clamp<uint64_t>(bytes_max / layer_bytes, layers_least, group.layers);
        for (uint32_t layer = 0; layer < group.layers; layer += static_cast<uint32_t>(layers)) {
          const auto layer_end =
              static_cast<uint32_t>(std::min<uint64_t>(layer + layers, group.layers));
          pieces.push_back({.group = index,
                            .layer_begin = layer,
                            .layer_end = layer_end,
                            .run = run,
                            .begin = begin,
                            .end = end,
                            .bytes = (layer_end - layer) * layer_bytes,
                            .first_row = row,
                            .rows = all_rows,
                            .first_tensor = first_tensor + layer * group.planes.size()});
        }
        row += end - begin;
        begin = end;
      }
    }
    if (!kv.runs.empty()) first_tensor += size_t{group.layers} * group.planes.size();
  }
  return pieces;
}

PieceView::PieceView(const ModelSpec& model, const KvPiece& piece, std::span<std::byte> memory,
                     uint64_t begin, uint64_t end) {
  const LayerGroup& group = model.groups[piece.group];
  bases_.resize(group.planes.size());
  std::byte* at = memory.data();
  for (uint32_t layer = piece.layer_begin; layer < piece.layer_end; ++layer) {
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      const Plane& spec = group.planes[plane];
      bases_[plane].push_back(at + (begin - piece.begin) * spec.row_bytes);
      at += uint64_t{spec.heads} * (piece.end - piece.begin) * spec.row_bytes;
    }
  }
  for (size_t plane = 0; plane < group.planes.size(); ++plane) {
    const uint64_t row_bytes = group.planes[plane].row_bytes;
    planes_.push_back({.layer_bases = bases_[plane],
                       .token_stride = static_cast<int64_t>(row_bytes),
                       .head_stride = static_cast<int64_t>((piece.end - piece.begin) * row_bytes)});
  }
  group_ = {.group = piece.group,
            .layer_begin = piece.layer_begin,
            .position = begin,
            .count = end - begin,
            .planes = planes_};
  view_.groups = {&group_, 1};
}

std::vector<KvStrip> StripsOf(const BranchFile& file, const KvPiece& piece,
                              std::span<std::byte> memory) {
  const LayerGroup& group = file.model.groups[piece.group];
  size_t tensor = piece.first_tensor;
  std::vector<KvStrip> strips;
  uint64_t at = 0;
  for (uint32_t layer = piece.layer_begin; layer < piece.layer_end; ++layer) {
    for (const Plane& plane : group.planes) {
      const uint64_t bytes = (piece.end - piece.begin) * plane.row_bytes;
      for (uint32_t head = 0; head < plane.heads; ++head) {
        strips.push_back({.tensor = tensor,
                          .head = head,
                          .row_bytes = plane.row_bytes,
                          .offset = file.tensors[tensor].offset +
                                    (head * piece.rows + piece.first_row) * plane.row_bytes,
                          .bytes = memory.subspan(at, bytes)});
        at += bytes;
      }
      ++tensor;
    }
  }
  return strips;
}

KvDigests::KvDigests(const BranchFile& file) : file_(file) {
  for (const GroupKv& group : file.groups) {
    std::vector<uint64_t> firsts = {0};
    for (const Range& run : group.runs) {
      const uint64_t n = group.digest_positions;
      firsts.push_back(firsts.back() + (run.end + n - 1) / n - run.begin / n);
    }
    first_blocks_.push_back(std::move(firsts));
  }
  for (const KvTensor& tensor : file.tensors) {
    const Plane& plane = file.model.groups[tensor.group].planes[tensor.plane];
    digests_.emplace_back(plane.heads * first_blocks_[tensor.group].back());
  }
}

void KvDigests::Add(const KvPiece& piece, const KvStrip& strip) {
  const GroupKv& group = file_.groups[piece.group];
  const std::vector<uint64_t>& firsts = first_blocks_[piece.group];
  const uint64_t n = group.digest_positions;
  const uint64_t run_begin = group.runs[piece.run].begin;
  for (uint64_t begin = piece.begin; begin < piece.end;) {
    const uint64_t end = std::min(NextBoundary(begin, n), piece.end);
    const uint64_t block = firsts[piece.run] + begin / n - run_begin / n;
    digests_[strip.tensor][strip.head * firsts.back() + block] = HashWide(strip.bytes.subspan(
        (begin - piece.begin) * strip.row_bytes, (end - begin) * strip.row_bytes));
    begin = end;
  }
}

std::string KvDigests::Of(size_t tensor) const {
  std::vector<std::byte> bytes;
  for (const Digest& digest : digests_[tensor]) {
    const auto canonical = BytesOf(digest);
    bytes.insert(bytes.end(), canonical.begin(), canonical.end());
  }
  return HexOf(HashWide(bytes));
}

}  // namespace cairn::engine
