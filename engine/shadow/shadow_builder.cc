// SPDX-License-Identifier: Apache-2.0
#include "engine/shadow/shadow_builder.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/shadow/block_quantizer.h"
#include "base/shadow/landmarks.h"
#include "engine/shadow/constants.h"
#include "engine/shadow/shadow_table.h"
#include "engine/sparse/head_rows.h"

namespace cairn::engine {

namespace {

class Builder {
 public:
  Builder(const ShadowMeans& means, const ShadowShape& shape, const DerivedTables::Owner& owner,
          sstable::SnapshotWriter* table)
      : means_(means), shape_(shape), owner_(owner), table_(*table) {
    cosines_.resize(shape.rows());
    for (auto& row : cosines_) row.reserve(shape.plan.chunks);
  }

  // Parts of which no token is missing, as they are.
  Status TakeFrom(const DerivedTables::Found& old) {
    const auto on_part = [&](const ShadowPartLayout& part, size_t row,
                             std::span<const std::byte> frame) -> Status {
      if (part.tokens != kShadowPartTokens) return Status::Ok();
      if (row == 0) BeginPart(shape_, node(), part, &table_);
      taken_ = part.first + part.tokens;
      return AddPart(part, row, frame);
    };
    return ReadShadow(shape_, old.owner.position, old.table.get(), {on_part, nullptr});
  }

  Status MakeParts() {
    for (const ShadowPartLayout& part : PartsOf(shape_)) {
      if (part.first < taken_) continue;
      BeginPart(shape_, node(), part, &table_);
      const size_t row_bytes = size_t{part.tokens} * shape_.key_bytes;
      const size_t at_once = std::max<size_t>(1, kShadowReadBytes / row_bytes);
      std::vector<uint16_t> keys;
      for (size_t row = 0; row < shape_.rows(); row += at_once) {
        const size_t rows = std::min(at_once, shape_.rows() - row);
        CAIRN_RETURN_IF_ERROR(MakeRows(part, row, rows, &keys));
      }
      tokens_read_ += part.tokens;
    }
    return Status::Ok();
  }

  Status WriteAlways() {
    const uint32_t count = shape_.always_chunks();
    if (count == 0) return Status::Ok();
    BeginAlways(shape_, node(), &table_);
    for (size_t row = 0; row < shape_.rows(); ++row) {
      const std::vector<uint32_t> chunks = AlwaysOf(row);
      for (uint32_t first = 0; first < count; first += kShadowAlwaysChunks) {
        const auto some =
            std::span(chunks).subspan(first, std::min(kShadowAlwaysChunks, count - first));
        CAIRN_RETURN_IF_ERROR(WriteRowsOf(row, some));
      }
    }
    return Status::Ok();
  }

  Status End() { return WriteHead(shape_, node(), &table_); }
  uint64_t tokens_read() const { return tokens_read_; }

 private:
  uint64_t node() const { return static_cast<uint64_t>(owner_.node); }
  uint32_t LayerOf(size_t row) const { return static_cast<uint32_t>(row / shape_.heads); }
  uint32_t HeadOf(size_t row) const { return static_cast<uint32_t>(row % shape_.heads); }

  Status AddPart(const ShadowPartLayout& part, size_t row, std::span<const std::byte> frame) {
    const size_t had = cosines_[row].size();
    cosines_[row].resize(had + part.chunks);
    std::memcpy(&cosines_[row][had], &frame[part.cosines_at()], part.chunks * sizeof(float));
    return table_.AddFrame(frame, static_cast<uint32_t>(frame.size()));
  }

  Status MakeRows(const ShadowPartLayout& part, size_t row, size_t rows,
                  std::vector<uint16_t>* keys) {
    const size_t elements = size_t{part.tokens} * shape_.channels;
    keys->resize(rows * elements);
    std::vector<HeadRows> reads(rows);
    for (size_t i = 0; i < rows; ++i) {
      reads[i] = {.layer = LayerOf(row + i),
                  .plane = 0,
                  .head = HeadOf(row + i),
                  .first = part.first,
                  .tokens = part.tokens,
                  .into = reinterpret_cast<std::byte*>(keys->data() + i * elements)};
    }
    const auto row_bytes = shape_.row_bytes();
    CAIRN_RETURN_IF_ERROR(
        ReadHeadRows(means_.reads, owner_.node, shape_.group, row_bytes, reads, UINT64_MAX));
    for (size_t i = 0; i < rows; ++i) {
      const auto of = std::span<const uint16_t>(*keys).subspan(i * elements, elements);
      if (const auto unfit = shadow::FindUnfit(shape_.fp16, of); unfit.has_value()) {
        return Status(StatusCode::kInvalidArgument,
                      "shadow: layer " + std::to_string(LayerOf(row + i)) + ", head " +
                          std::to_string(HeadOf(row + i)) + ": the key of position " +
                          std::to_string(part.first + *unfit / shape_.channels) +
                          " is NaN, infinite or too large");
      }
      CAIRN_RETURN_IF_ERROR(AddPart(part, row + i, MakePart(shape_, part, of)));
    }
    return Status::Ok();
  }

  std::vector<uint32_t> AlwaysOf(size_t row) const {
    std::vector<uint32_t> chunks(shape_.plan.sink_chunks);
    for (uint32_t i = 0; i < shape_.plan.sink_chunks; ++i) chunks[i] = i;
    const std::vector<uint32_t> outliers = shadow::FindOutliers(shape_.plan, cosines_[row]);
    chunks.insert(chunks.end(), outliers.begin(), outliers.end());
    return chunks;
  }

  // One frame: which chunks, their keys, their values.
  Status WriteRowsOf(size_t row, std::span<const uint32_t> chunks) {
    const uint32_t tokens = shape_.spec.chunk_tokens;
    const size_t keys = chunks.size() * tokens * shape_.key_bytes;
    std::vector<std::byte> frame(chunks.size_bytes() + keys +
                                 chunks.size() * tokens * shape_.value_bytes);
    std::memcpy(frame.data(), chunks.data(), chunks.size_bytes());
    std::vector<HeadRows> reads;
    for (size_t i = 0; i < chunks.size(); ++i) {
      for (const uint32_t plane : {0U, 1U}) {
        const size_t bytes = size_t{tokens} * (plane == 0 ? shape_.key_bytes : shape_.value_bytes);
        reads.push_back(
            {.layer = LayerOf(row),
             .plane = plane,
             .head = HeadOf(row),
             .first = uint64_t{chunks[i]} * tokens,
             .tokens = tokens,
             .into = &frame[chunks.size_bytes() + (plane == 0 ? 0 : keys) + i * bytes]});
      }
    }
    const auto row_bytes = shape_.row_bytes();
    CAIRN_RETURN_IF_ERROR(
        ReadHeadRows(means_.reads, owner_.node, shape_.group, row_bytes, reads, UINT64_MAX));
    return table_.AddFrame(frame, static_cast<uint32_t>(frame.size()));
  }

  const ShadowMeans& means_;
  const ShadowShape& shape_;
  const DerivedTables::Owner& owner_;
  sstable::SnapshotWriter& table_;
  std::vector<std::vector<float>> cosines_;  // By row.
  uint64_t taken_ = 0;                       // Tokens whose parts were there.
  uint64_t tokens_read_ = 0;
};

}  // namespace

Result<ShadowShape> ShapeOfBranch(const ShadowMeans& means, BranchId branch, uint32_t group,
                                  const ShadowSpec& spec, uint64_t end) {
  std::shared_ptr<const ModelSpec> model;
  uint64_t length = 0;
  {
    Committer::Lock lock;
    CAIRN_ASSIGN_OR_RETURN(const Head* const head, means.joined->LookAt(branch, &lock));
    length = head->lengths[kTokenLane];
    model = means.write->tree().FindModel(head->model);
  }
  if (end != UINT64_MAX && end > length) {
    return Status(StatusCode::kInvalidArgument, "shadow: end is " + std::to_string(end) +
                                                    "; the branch has " + std::to_string(length) +
                                                    " tokens");
  }
  return ShadowShape::Of(*model, group, spec, std::min(end, length));
}

ShadowInfo InfoOf(const ShadowShape& shape) {
  return {.tokens = shape.tokens,
          .covered = shape.plan.covered,
          .chunks = shape.plan.chunks,
          .always_chunks = shape.always_chunks(),
          .budget_chunks = shape.plan.budget_chunks};
}

Result<DerivedTables::Found> FindShadowTable(const ShadowMeans& means, BranchId branch,
                                             const ShadowShape& shape) {
  CAIRN_ASSIGN_OR_RETURN(DerivedTables::Found found,
                         means.derived->Find(branch, shape.plan.covered, shape.kind()));
  if (found.owner.position == shape.plan.covered) return found;
  return Status(StatusCode::kNotFound, "the shadow that is there covers " +
                                           std::to_string(found.owner.position) + " tokens, not " +
                                           std::to_string(shape.plan.covered));
}

Result<uint64_t> MakeShadowTable(const ShadowMeans& means, BranchId branch,
                                 const ShadowShape& shape) {
  uint64_t tokens_read = 0;
  bool old_is_lost = false;
  const auto make = [&](const DerivedTables::Found* old) {
    const auto write = [&](const DerivedTables::Owner& owner, sstable::SnapshotWriter* table) {
      Builder builder(means, shape, owner, table);
      if (old != nullptr) {
        const Status taken = builder.TakeFrom(*old);
        old_is_lost =
            taken.code() == StatusCode::kCorruption || taken.code() == StatusCode::kNotFound;
        CAIRN_RETURN_IF_ERROR(taken);
      }
      CAIRN_RETURN_IF_ERROR(builder.MakeParts());
      CAIRN_RETURN_IF_ERROR(builder.WriteAlways());
      tokens_read = builder.tokens_read();
      return builder.End();
    };
    return means.derived->Make(branch, shape.plan.covered, shape.kind(), write).status();
  };
  const auto old = means.derived->Find(branch, shape.plan.covered, shape.kind());
  Status made = make(old.ok() ? &*old : nullptr);
  if (!made.ok() && old_is_lost) made = make(nullptr);
  CAIRN_RETURN_IF_ERROR(made);
  return tokens_read;
}

}  // namespace cairn::engine
