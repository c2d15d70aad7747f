// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/sparse/sparse_warmth.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "base/codec/fields.h"
#include "base/core/check.h"
#include "engine/config/constants.h"

namespace cairn::engine {

namespace {

enum FieldId : uint16_t { kGroup = 1, kPlanes = 2, kPieceTokens = 3, kPieces = 4 };

FieldWriter Encode(const SparseLayout& layout, std::span<const uint32_t> pieces) {
  FieldWriter fields;
  fields.U64(kGroup, layout.group);
  fields.U64(kPlanes, layout.plane_bits());
  fields.U64(kPieceTokens, layout.piece_tokens);
  fields.Bytes(kPieces, std::as_bytes(pieces));
  return fields;
}

// Existing pieces, without duplicates; nothing if the table is of other options.
std::optional<std::vector<uint32_t>> Decode(const SparseLayout& layout,
                                            std::span<const std::byte> frame) {
  const auto fields = FieldReader::Parse(frame);
  const uint16_t known[] = {kGroup, kPlanes, kPieceTokens, kPieces};
  if (!fields.ok() || !fields->CheckCritical(known).ok() ||
      fields->U64Or(kGroup, UINT64_MAX) != layout.group ||
      fields->U64Or(kPlanes, 0) != layout.plane_bits() ||
      fields->U64Or(kPieceTokens, 0) != layout.piece_tokens) {
    return std::nullopt;
  }
  const std::span<const std::byte> bytes = fields->BytesOr(kPieces, {});
  std::vector<uint32_t> pieces(bytes.size() / sizeof(uint32_t));
  if (!pieces.empty()) std::memcpy(pieces.data(), bytes.data(), pieces.size() * sizeof(uint32_t));
  std::erase_if(pieces, [&](uint32_t piece) { return piece >= layout.pieces; });
  std::vector<uint32_t> sorted = pieces;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return std::nullopt;
  if (pieces.size() > layout.slots) {
    pieces.erase(pieces.begin(), pieces.end() - static_cast<std::ptrdiff_t>(layout.slots));
  }
  return pieces;
}

}  // namespace

Result<bool> WriteWarmth(DerivedTables* derived, BranchId branch, NodeId node, uint64_t position,
                         const SparseLayout& layout, const PiecesByUse& pieces) {
  bool is_other = false;
  const auto write = [&](const DerivedTables::Owner& owner, sstable::SnapshotWriter* table) {
    is_other = owner.node != node;
    if (is_other) return Status(StatusCode::kConflict, "the branch has other content by now");
    table->BeginFragment({.node = static_cast<uint64_t>(owner.node),
                          .lane = 1 + layout.group,
                          .begin = owner.position,
                          .count = 1,
                          .page_rows = 1,
                          .slices = static_cast<uint32_t>(pieces.size())});
    for (const std::vector<uint32_t>& row : pieces) {
      const size_t kept = std::min(row.size(), kSparseWarmPiecesMax);
      const FieldWriter fields = Encode(layout, std::span(row).last(kept));
      CAIRN_RETURN_IF_ERROR(
          table->AddFrame(fields.bytes(), static_cast<uint32_t>(fields.bytes().size())));
    }
    return Status::Ok();
  };
  const Status made = derived->Make(branch, position, kSparseWarmthKind, write).status();
  if (is_other) return false;
  CAIRN_RETURN_IF_ERROR(made);
  return true;
}

Result<PiecesByUse> ReadWarmth(DerivedTables* derived, BranchId branch, uint64_t at_most,
                               const SparseLayout& layout) {
  CAIRN_ASSIGN_OR_RETURN(const DerivedTables::Found found,
                         derived->Find(branch, at_most, kSparseWarmthKind));
  PiecesByUse pieces;
  bool of_use = true;
  found.table->VerifyEach(
      [&](const sstable::FragmentEntry&, uint32_t, const sstable::FrameEntry&,
          std::span<const std::byte> frame) {
        auto row = Decode(layout, frame);
        of_use &= row.has_value();
        if (row.has_value()) pieces.push_back(std::move(*row));
        return Status::Ok();
      },
      [&](const Status&) { of_use = false; });
  if (of_use && pieces.size() == size_t{layout.layers} * layout.heads) return pieces;
  return Status(StatusCode::kNotFound, "what was saved of a session is of no use");
}

}  // namespace cairn::engine
