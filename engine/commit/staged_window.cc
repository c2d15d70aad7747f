// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/staged_window.h"

#include <span>
#include <utility>

#include "base/codec/kv_copy.h"
#include "base/core/align.h"
#include "base/core/check.h"

namespace cairn::engine {

namespace {

uint64_t SliceRoom(const Plane& plane, uint64_t count) {
  return AlignUp(SliceBytes(plane, count), uint64_t{kSliceAlignment});
}

}  // namespace

Result<std::shared_ptr<StagedWindow>> StagedWindow::Make(StagingPool* pool, uint64_t bytes) {
  auto staged = std::shared_ptr<StagedWindow>(new StagedWindow);
  CAIRN_ASSIGN_OR_RETURN(staged->buffer_, pool->Take(bytes));
  staged->pool_ = pool;
  return staged;
}

StagedWindow::~StagedWindow() {
  if (pool_ != nullptr) pool_->Return(std::move(buffer_));
}

Status StagedWindow::Gather(const GpuSource& source, const ModelSpec& model, const Delta& delta,
                            const DeltaWindow& window) {
  CAIRN_CHECK(WindowKvBytes(model, delta, window) <= buffer_.size());
  bases_.clear();
  planes_.clear();
  groups_.assign(delta.kv->groups.begin(), delta.kv->groups.end());
  std::vector<GpuSource::Slice> slices;
  std::vector<size_t> first_plane;
  std::byte* at = buffer_.data();
  for (size_t i = 0; i < groups_.size(); ++i) {
    const LayerGroup& group = model.groups[groups_[i].group];
    const uint64_t begin = window.kv[i].position, count = window.kv[i].count;
    first_plane.push_back(planes_.size());
    for (uint32_t p = 0; p < group.planes.size(); ++p) {
      const Plane& plane = group.planes[p];
      PlaneView& view = planes_.emplace_back();
      view.token_stride = plane.row_bytes;
      view.head_stride = static_cast<int64_t>(count * plane.row_bytes);
      std::vector<std::byte*>& bases = bases_.emplace_back();
      for (uint32_t layer = 0; layer < group.layers; ++layer) {
        bases.push_back(at);
        if (count != 0) slices.push_back({i, layer, p, begin, count, at});
        at += SliceRoom(plane, count);
      }
    }
  }
  for (size_t i = 0; i < planes_.size(); ++i) planes_[i].layer_bases = bases_[i];
  for (size_t i = 0; i < groups_.size(); ++i) {
    GroupView& view = groups_[i];
    const size_t planes = model.groups[view.group].planes.size();
    view = {.group = view.group,
            .layer_begin = 0,
            .position = window.kv[i].position,
            .count = window.kv[i].count,
            .tokens_per_block = 0,
            .blocks = 0,
            .table = {},
            .planes = std::span(planes_).subspan(first_plane[i], planes)};
  }
  view_ = {.groups = groups_};
  delta_ = delta;
  delta_.kv = &view_;
  return source.Gather(slices);
}

}  // namespace cairn::engine
