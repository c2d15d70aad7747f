// SPDX-License-Identifier: Apache-2.0
//
// How a shadow session takes in what its branch has had since.
#include <string>
#include <utility>
#include <vector>

#include "base/core/out_of_memory.h"
#include "engine/sessions/shadow/constants.h"
#include "engine/sessions/shadow/shadow_session.h"

namespace cairn {

Status ShadowSessionState::Extend(uint64_t end) {
  const SparseArenaState::Deps& deps = arena_->deps();
  CAIRN_RETURN_IF_ERROR(deps.write->lifecycle->CheckUsable());
  const io::Turn::Holder turn(&turn_);
  CAIRN_ASSIGN_OR_RETURN(
      auto source, engine::SparseSource::Take(*deps.write, deps.coalesced, source_->branch(), end));
  const uint64_t had = info_.tokens;  // What an Extend that failed added does not count.
  if (source->tokens() < had || source->NodeBefore(had) != source_->NodeBefore(had)) {
    return Status(StatusCode::kConflict, "shadow: the branch was rewound to before token " +
                                             std::to_string(had) + ", which the session has");
  }
  if (source->tokens() > most_.tokens) {
    return Status(StatusCode::kInvalidArgument,
                  "shadow: the branch has " + std::to_string(source->tokens()) +
                      " tokens, tokens_max is " + std::to_string(most_.tokens));
  }
  CAIRN_ASSIGN_OR_RETURN(
      engine::ShadowShape shape,
      engine::ShadowShape::Of(source->model(), options_.group, options_.spec, source->tokens()));
  for (const Layer& layer : layers_) {
    CAIRN_RETURN_IF_ERROR(waits_.For(layer.ended, io::kNoDeadline));
  }
  bool renew = false;
  CAIRN_RETURN_IF_ERROR(Reset(&source, &shape, &renew));
  const Status loaded = Upload([&](engine::DeviceUpload* upload) -> Status {
    if (renew) return LoadAll(upload);
    CAIRN_RETURN_IF_ERROR(Grow(upload));
    return LoadNewest(upload);
  });
  CAIRN_RETURN_IF_ERROR(loaded);
  // Last, since it does not go back: what was above may fail for the content's sake.
  CAIRN_RETURN_IF_ERROR(fetches_ == nullptr ? OpenFetches() : fetches_->Extend(source_));
  ShadowInfo info = engine::InfoOf(shape_);
  if (renew) {
    info.table_bytes = info_.table_bytes;
    info.tokens_read = info_.tokens_read;
  }
  info_ = info;
  if (low_rank_.has_value() && !shape_.is_dense()) low_rank_->Commit();
  is_whole_ = true;
  return Status::Ok();
}

// Takes the longer content. `*renew`: all comes from a table of it. Where low-rank keys do not fit
// it the session is as it was.
Status ShadowSessionState::Reset(std::shared_ptr<const engine::SparseSource>* source,
                                 engine::ShadowShape* shape, bool* renew) {
  const ShadowInfo had = info_;
  std::swap(source_, *source);
  std::swap(shape_, *shape);
  info_.tokens_read = 0;
  const Status fits = CatchBadAlloc([&] { return FitLowRank(renew); });
  const StatusCode code = fits.code();
  if (code == StatusCode::kInvalidState || code == StatusCode::kNotFound ||
      code == StatusCode::kConflict) {
    std::swap(source_, *source);
    std::swap(shape_, *shape);
    info_ = had;
    return fits;
  }
  if (!is_whole_) always_->ForgetPlaces();  // It is not known which were put there.
  is_whole_ = false;
  for (Layer& layer : layers_) {
    layer.appended = 0;
    layer.step = Step::kNone;
  }
  return fits;
}

// Either the vectors serve the new keys, whose coefficients the device then has; or there is a
// table with others, and room for their number. What the session had on the device stays.
Status ShadowSessionState::FitLowRank(bool* renew) {
  if (!low_rank_.has_value() || shape_.is_dense()) return Status::Ok();
  bool serve = low_rank_->is_whole() && !HasLongerTable();
  if (serve) {
    const engine::ShadowRowsOf from{arena_->deps().reads, source_->node()};
    CAIRN_RETURN_IF_ERROR(Upload([&](engine::DeviceUpload* upload) {
      return low_rank_->PutRows(from, shape_, info_.covered, memory_.get(), upload, &serve);
    }));
  }
  *renew = !serve;
  if (serve) return Status::Ok();
  const auto check_room = [this](sstable::SnapshotTable* table) -> Status {
    CAIRN_ASSIGN_OR_RETURN(const uint32_t rank, engine::MostRank(shape_, table));
    if (rank <= rank_) return Status::Ok();
    return Status(StatusCode::kInvalidState,
                  "shadow: the longer context needs " + std::to_string(rank) +
                      " vectors, and the session has room for " + std::to_string(rank_) +
                      "; open another session of the branch");
  };
  return WithTable(check_room, [] { return Status::Ok(); });
}

// Somebody made one of this content meanwhile: a session opened now would have its vectors.
bool ShadowSessionState::HasLongerTable() const {
  const auto longest =
      arena_->deps().derived->Find(source_->branch(), shape_.plan.covered, shape_.kind());
  return longest.ok() && longest->owner.position > low_rank_->table_covered();
}

// Puts the parts from the first that was not full. The device has what info_ covers; a part that a
// failed Extend rewrote has the same bytes.
Status ShadowSessionState::Grow(engine::DeviceUpload* upload) {
  CAIRN_RETURN_IF_ERROR(memory_->Reset(shape_, upload));
  const engine::ShadowRowsOf from{arena_->deps().reads, source_->node()};
  const uint64_t first = info_.covered / engine::kShadowPartTokens * engine::kShadowPartTokens;
  const auto on_part = [&](const engine::ShadowPartLayout& part, size_t row,
                           std::span<const std::byte> frame) {
    always_->TakePart(part, row, frame);
    return memory_->PutPart(part, row, frame, upload);
  };
  CAIRN_RETURN_IF_ERROR(MakeParts(from, shape_, first, on_part));
  for (size_t row = 0; row < shape_.rows() && !shape_.is_dense(); ++row) {
    CAIRN_RETURN_IF_ERROR(PutChunks(row, upload));
    CAIRN_RETURN_IF_ERROR(memory_->PutAlways(row, always_->of(row), upload));
  }
  return Status::Ok();
}

// The rows of chunks that are always attended to since now.
Status ShadowSessionState::PutChunks(size_t row, engine::DeviceUpload* upload) {
  const std::vector<engine::AlwaysChunks::Place> places = always_->Reset(shape_.plan, row);
  if (places.empty()) return Status::Ok();
  const engine::ShadowRowsOf from{arena_->deps().reads, source_->node()};
  std::vector<uint32_t> chunks;
  for (const engine::AlwaysChunks::Place& place : places) chunks.push_back(place.chunk);
  CAIRN_ASSIGN_OR_RETURN(const auto rows, ReadChunks(from, shape_, row, chunks));
  const auto layer = static_cast<uint32_t>(row / shape_.heads);
  const auto head = static_cast<uint32_t>(row % shape_.heads);
  const uint32_t tokens = shape_.spec.chunk_tokens;
  const size_t key_bytes = size_t{tokens} * shape_.key_bytes;
  const size_t value_bytes = size_t{tokens} * shape_.value_bytes;
  const auto keys = std::span<const std::byte>(rows).first(chunks.size() * key_bytes);
  const auto values = std::span<const std::byte>(rows).subspan(keys.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const uint64_t token = uint64_t{places[i].at} * tokens;
    CAIRN_RETURN_IF_ERROR(upload->Add(memory_->resident_keys(layer, head, token),
                                      keys.subspan(i * key_bytes, key_bytes)));
    CAIRN_RETURN_IF_ERROR(upload->Add(memory_->resident_values(layer, head, token),
                                      values.subspan(i * value_bytes, value_bytes)));
  }
  return Status::Ok();
}

}  // namespace cairn
