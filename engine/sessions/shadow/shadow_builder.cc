// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/shadow/shadow_builder.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/sessions/shadow/constants.h"
#include "engine/sessions/shadow/low_rank_rows.h"
#include "engine/sessions/shadow/shadow_parts.h"
#include "engine/sessions/shadow/shadow_table.h"

namespace cairn::engine {

namespace {

class Builder {
 public:
  Builder(const ShadowDeps& deps, const ShadowShape& shape, const DerivedTables::Owner& owner,
          sstable::SnapshotWriter* table)
      : from_{deps.reads, owner.node},
        shape_(shape),
        node_(static_cast<uint64_t>(owner.node)),
        table_(*table),
        always_(shape.rows()) {}

  // Parts of which no token is missing, as they are.
  Status TakeFrom(const DerivedTables::Found& old) {
    const auto on_part = [&](const ShadowPartLayout& part, size_t row,
                             std::span<const std::byte> frame) -> Status {
      if (part.tokens != kShadowPartTokens) return Status::Ok();
      taken_ = part.first + part.tokens;
      return AddPart(part, row, frame);
    };
    return ReadOld(old, {on_part, nullptr});
  }

  Status AddOthers() {
    return MakeParts(
        from_, shape_, taken_,
        [this](const ShadowPartLayout& part, size_t row, std::span<const std::byte> frame) {
          return AddPart(part, row, frame);
        });
  }

  Status WriteAlways() {
    if (shape_.always_chunks() == 0) return Status::Ok();
    BeginAlways(shape_, node_, &table_);
    for (size_t row = 0; row < shape_.rows(); ++row) {
      static_cast<void>(always_.Reset(shape_.plan, row));
      std::span<const uint32_t> left = always_.of(row);
      while (!left.empty()) {
        const auto some = left.first(std::min<size_t>(left.size(), kShadowAlwaysChunks));
        CAIRN_ASSIGN_OR_RETURN(const auto rows, ReadChunks(from_, shape_, row, some));
        const auto which = std::as_bytes(some);
        std::vector<std::byte> frame(which.begin(), which.end());
        frame.insert(frame.end(), rows.begin(), rows.end());
        CAIRN_RETURN_IF_ERROR(table_.AddFrame(frame, static_cast<uint32_t>(frame.size())));
        left = left.subspan(some.size());
      }
    }
    return Status::Ok();
  }

  Status End() { return WriteHead(shape_, node_, &table_); }

  // Writes vectors, and the coefficients of all tokens. Reuses an old table's basis; sets
  // `*is_stale` if it captures the new keys much worse than the old.
  Status WriteLowRank(const DerivedTables::Found* old, bool* is_stale) {
    CAIRN_ASSIGN_OR_RETURN(const LowRankRows rows, LowRankRows::Of(from_, shape_));
    std::vector<LayerBasis> bases;
    if (old != nullptr) {
      const auto on_basis = [&](uint32_t, const LayerBasis& one) {
        bases.push_back(one);
        return Status::Ok();
      };
      CAIRN_RETURN_IF_ERROR(ReadOld(*old, {.on_part = {}, .on_always = {}, .on_basis = on_basis}));
    }
    for (uint32_t layer = 0; layer < shape_.layers && old == nullptr; ++layer) {
      CAIRN_ASSIGN_OR_RETURN(bases.emplace_back(), rows.MakeBasis(layer));
    }
    CAIRN_RETURN_IF_ERROR(WriteBases(shape_, node_, bases, &table_));
    if (old != nullptr) {
      const auto on_rows = [&](const ShadowPartLayout& part, size_t layer,
                               std::span<const std::byte> frame) -> Status {
        if (part.tokens != kShadowPartTokens) return Status::Ok();
        if (layer == 0) BeginRows(shape_, node_, part, &table_);
        return table_.AddFrame(frame, static_cast<uint32_t>(frame.size()));
      };
      CAIRN_RETURN_IF_ERROR(
          ReadOld(*old, {.on_part = {}, .on_always = {}, .on_basis = {}, .on_rows = on_rows}));
    }
    std::vector<double> all(shape_.layers), kept(shape_.layers);
    for (const ShadowPartLayout& part : PartsOf(shape_)) {
      if (part.first < taken_) continue;
      BeginRows(shape_, node_, part, &table_);
      for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
        CAIRN_ASSIGN_OR_RETURN(const auto made, rows.MakeRows(layer, part, bases[layer].basis,
                                                              &all[layer], &kept[layer]));
        const auto bytes = std::as_bytes(std::span(made));
        CAIRN_RETURN_IF_ERROR(table_.AddFrame(bytes, static_cast<uint32_t>(bytes.size())));
      }
    }
    for (uint32_t layer = 0; layer < shape_.layers && old != nullptr; ++layer) {
      *is_stale |= IsStale(bases[layer], all[layer], kept[layer]);
    }
    return Status::Ok();
  }
  uint64_t tokens_read() const { return shape_.plan.covered - taken_; }

 private:
  Status ReadOld(const DerivedTables::Found& old, const ShadowFrames& frames) const {
    return ReadShadow(shape_, old.owner.position, old.table.get(), frames);
  }
  Status AddPart(const ShadowPartLayout& part, size_t row, std::span<const std::byte> frame) {
    if (row == 0) BeginPart(shape_, node_, part, &table_);
    always_.TakePart(part, row, frame);
    return table_.AddFrame(frame, static_cast<uint32_t>(frame.size()));
  }

  const ShadowRowsOf from_;
  const ShadowShape& shape_;
  const uint64_t node_;
  sstable::SnapshotWriter& table_;
  AlwaysChunks always_;
  uint64_t taken_ = 0;  // Tokens whose parts the old table had.
};

}  // namespace

namespace {

Result<uint64_t> LengthOf(const ShadowDeps& deps, BranchId branch) {
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* const head, deps.coalesced->LookAt(branch, &lock));
  return head->lengths[kTokenLane];
}

}  // namespace

Result<ShadowShape> ShapeOfBranch(const ShadowDeps& deps, BranchId branch, uint32_t group,
                                  const ShadowSpec& spec, uint64_t end) {
  std::shared_ptr<const ModelSpec> model;
  uint64_t length = 0;
  {
    Committer::Lock lock;
    CAIRN_ASSIGN_OR_RETURN(const Head* const head, deps.coalesced->LookAt(branch, &lock));
    length = head->lengths[kTokenLane];
    model = deps.write->tree().FindModel(head->model);
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

Result<DerivedTables::Found> FindShadowTable(const ShadowDeps& deps, BranchId branch,
                                             const ShadowShape& shape) {
  CAIRN_ASSIGN_OR_RETURN(DerivedTables::Found found,
                         deps.derived->Find(branch, shape.plan.covered, shape.kind()));
  if (found.owner.position == shape.plan.covered) return found;
  return Status(StatusCode::kNotFound, "the shadow that is there covers " +
                                           std::to_string(found.owner.position) + " tokens, not " +
                                           std::to_string(shape.plan.covered));
}

Result<uint64_t> MakeShadowTable(const ShadowDeps& deps, BranchId branch,
                                 const ShadowShape& shape) {
  uint64_t tokens_read = 0;
  bool old_is_lost = false;  // It is of no use: all is computed again.
  const auto write = [&](const DerivedTables::Owner& owner,
                         sstable::SnapshotWriter* table) -> Status {
    Builder builder(deps, shape, owner, table);
    // Found under the lease of what is written: the branch may have become another before.
    Result<DerivedTables::Found> old = Status(StatusCode::kNotFound, "it is of no use");
    if (!old_is_lost) old = deps.derived->FindFor(branch, owner);
    if (old.ok()) {
      const Status taken = builder.TakeFrom(*old);
      old_is_lost =
          taken.code() == StatusCode::kCorruption || taken.code() == StatusCode::kNotFound;
      CAIRN_RETURN_IF_ERROR(taken);
    }
    CAIRN_RETURN_IF_ERROR(builder.AddOthers());
    CAIRN_RETURN_IF_ERROR(builder.WriteAlways());
    tokens_read = builder.tokens_read();
    CAIRN_RETURN_IF_ERROR(builder.End());
    if (!shape.is_low_rank()) return Status::Ok();
    bool is_stale = false;
    CAIRN_RETURN_IF_ERROR(builder.WriteLowRank(old.ok() ? &*old : nullptr, &is_stale));
    if (!is_stale) return Status::Ok();
    old_is_lost = true;
    return Status(StatusCode::kNotFound, "shadow: its vectors are those of other keys");
  };
  const auto make = [&] {
    return deps.derived->Make(branch, shape.plan.covered, shape.kind(), write).status();
  };
  Status made = make();
  if (!made.ok() && old_is_lost) made = make();
  if (made.code() == StatusCode::kInvalidArgument) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t length, LengthOf(deps, branch));
    if (length < shape.plan.covered) {
      return Status(StatusCode::kConflict, "shadow: the branch was rewound to before token " +
                                               std::to_string(shape.plan.covered) +
                                               " while its shadow was made");
    }
  }
  CAIRN_RETURN_IF_ERROR(made);
  deps.totals->shadows_made.fetch_add(1, std::memory_order_relaxed);
  deps.totals->shadow_tokens_read.fetch_add(tokens_read, std::memory_order_relaxed);
  return tokens_read;
}

}  // namespace cairn::engine
