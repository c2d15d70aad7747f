// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/shadow/session_vectors.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/core/check.h"
#include "engine/sessions/shadow/constants.h"
#include "engine/sessions/shadow/low_rank_rows.h"

namespace cairn::engine {

Result<SessionVectors> SessionVectors::Of(const LayerGroup& group) {
  CAIRN_ASSIGN_OR_RETURN(KeyRows keys, KeyRows::Of(group));
  return SessionVectors(std::move(keys));
}

void SessionVectors::Reset(std::vector<LayerBasis> bases, uint64_t covered) {
  bases_ = std::move(bases);
  table_covered_ = covered;
  sums_.all.assign(bases_.size(), 0.0);
  sums_.kept.assign(bases_.size(), 0.0);
  next_sums_ = sums_;
}

Status SessionVectors::PutRows(const ShadowRowsOf& from, const ShadowShape& shape, uint64_t had,
                               ShadowMemory* memory, DeviceUpload* upload, bool* serve) {
  CAIRN_CHECK(is_whole() && had >= table_covered_);
  next_sums_ = sums_;
  *serve = true;
  if (had == shape.plan.covered) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const LowRankRows rows, LowRankRows::Of(from, shape));
  Sums sums = sums_;
  for (const ShadowPartLayout& part : PartsOf(shape)) {
    if (part.first < had / kShadowPartTokens * kShadowPartTokens) continue;
    CAIRN_RETURN_IF_ERROR(PutTurns(part, memory, upload));
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      CAIRN_ASSIGN_OR_RETURN(const auto made, rows.MakeRows(layer, part, bases_[layer].basis,
                                                            &sums.all[layer], &sums.kept[layer]));
      CAIRN_RETURN_IF_ERROR(memory->PutRows(part, layer, std::as_bytes(std::span(made)), upload));
    }
    // The last part is made again when it has more tokens, and then counts from its beginning.
    if (part.tokens == kShadowPartTokens) next_sums_ = sums;
  }
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    *serve &= !IsStale(bases_[layer], sums.all[layer], sums.kept[layer]);
  }
  return Status::Ok();
}

void SessionVectors::Commit() {
  sums_ = next_sums_;
  is_whole_ = true;
}

Status SessionVectors::PutTurns(const ShadowPartLayout& part, ShadowMemory* memory,
                                DeviceUpload* upload) const {
  std::vector<RotaryTurn> turns(size_t{part.tokens} * keys_.pairs());
  keys_.Turns(part.first, turns);
  return memory->PutTurns(part.first, turns, upload);
}

}  // namespace cairn::engine
