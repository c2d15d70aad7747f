// SPDX-License-Identifier: Apache-2.0
//
// M records: a model's description. Any model registered today fits one record; a longer one, from
// before there were limits, continues in further records.
#include <algorithm>

#include "base/core/check.h"
#include "engine/tree/records/tree_keys.h"

namespace cairn::engine {

namespace {

constexpr size_t kPieceKeyBytes = kIdKeyBytes + 4;

// Piece 0 has the model's own key.
std::string PieceKey(uint64_t model, uint32_t piece) {
  std::string key = Key('M', model);
  if (piece != 0) PutBig(&key, piece, 4);
  return key;
}

}  // namespace

Status PutModel(uint64_t id, const ModelSpec& spec, sstable::WriteBatch* batch) {
  const std::vector<std::byte> encoded = EncodeModel(spec);
  std::string_view rest = Text(encoded);
  for (uint32_t piece = 0; piece == 0 || !rest.empty(); ++piece) {
    const std::string_view part = rest.substr(0, sstable::kMaxValueBytes);
    CAIRN_RETURN_IF_ERROR(batch->Put(PieceKey(id, piece), part));
    rest.remove_prefix(part.size());
  }
  return Status::Ok();
}

Result<ModelSpec> GetModel(sstable::LsmIndex& index, uint64_t id) {
  std::string encoded;
  uint32_t piece = 0;
  const auto scan = index.NewScan({.end = Key('M', id + 1), .read = {}});
  for (scan->Seek(Key('M', id)); scan->valid(); scan->Next(), ++piece) {
    if (scan->key() != PieceKey(id, piece)) {
      return Damaged(scan->key(), "a piece of a model without the one before it");
    }
    encoded += *scan->value();
  }
  CAIRN_RETURN_IF_ERROR(scan->status());
  return DecodeModel(Bytes(encoded));
}

Result<std::optional<uint64_t>> GetModelId(std::string_view key) {
  if (key.size() == kIdKeyBytes) return std::optional(GetBig(key.substr(1)));
  if (key.size() == kPieceKeyBytes) return std::optional<uint64_t>();
  return Damaged(key, "no such kind");
}

}  // namespace cairn::engine
