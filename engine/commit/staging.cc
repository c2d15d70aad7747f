// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/staging.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/codec/kv_copy.h"
#include "base/core/check.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/retention.h"

namespace cairn::engine {

Result<AlignedBuffer> StagingPool::Take(uint64_t bytes) {
  if (used_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes > max_bytes_) {
    used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return Status(StatusCode::kBusy, "staging memory: " + std::to_string(bytes) +
                                         " bytes are not free of " + std::to_string(max_bytes_));
  }
  budget_->Take(bytes);
  AlignedBuffer buffer = AlignedBuffer::TryAllocate(allocator_, bytes, 64);
  if (buffer.empty()) {
    used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    budget_->Return(bytes);
    return Status(StatusCode::kOutOfMemory,
                  "staging memory of " + std::to_string(bytes) + " bytes");
  }
  return buffer;
}

void StagingPool::Return(AlignedBuffer buffer) {
  const uint64_t bytes = std::exchange(buffer, AlignedBuffer()).size();
  used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  budget_->Return(bytes);
}

Result<std::unique_ptr<KvStaging>> KvStaging::Make(StagingPool* pool,
                                                   std::shared_ptr<const ModelSpec> model,
                                                   std::vector<uint64_t> positions,
                                                   uint64_t capacity) {
  CAIRN_CHECK(capacity > 0 && positions.size() == model->groups.size());
  auto staging = std::unique_ptr<KvStaging>(new KvStaging);
  staging->pool_ = pool;
  staging->positions_ = std::move(positions);
  staging->capacity_ = capacity;
  uint64_t bytes = 0;
  const uint64_t position_bytes = PositionKvBytes(*model);
  if (__builtin_mul_overflow(position_bytes, capacity, &bytes) || bytes > pool->max_bytes()) {
    return Status(StatusCode::kInvalidArgument,
                  std::to_string(capacity) + " positions of " + std::to_string(position_bytes) +
                      " bytes need more than all staging memory, " +
                      std::to_string(pool->max_bytes()) + " bytes (a share of max_memory_bytes)");
  }
  std::byte* at = nullptr;
  if (bytes != 0) {
    CAIRN_ASSIGN_OR_RETURN(staging->buffer_, pool->Take(bytes));
    at = staging->buffer_.data();
  }
  for (const LayerGroup& group : model->groups) {
    std::vector<PlaneMemory> planes;
    const size_t staged = KeepsStates(group) ? 0 : group.planes.size();
    for (const Plane& plane : std::span(group.planes).first(staged)) {
      PlaneMemory memory;
      for (uint32_t layer = 0; layer < group.layers; ++layer) {
        memory.bases.push_back(at);
        at += SliceBytes(plane, capacity);
      }
      memory.view.token_stride = plane.row_bytes;
      memory.view.head_stride = static_cast<int64_t>(capacity * plane.row_bytes);
      planes.push_back(std::move(memory));
    }
    staging->memory_.push_back(std::move(planes));
  }
  for (std::vector<PlaneMemory>& planes : staging->memory_) {
    std::vector<PlaneView> views;
    for (PlaneMemory& memory : planes) {
      memory.view.layer_bases = memory.bases;
      views.push_back(memory.view);
    }
    staging->plane_views_.push_back(std::move(views));
  }
  staging->model_ = std::move(model);
  return staging;
}

KvStaging::~KvStaging() {
  if (!buffer_.empty()) pool_->Return(std::move(buffer_));
}

void KvStaging::Put(const GroupView& view, uint32_t layer, uint32_t base_index) {
  const LayerGroup& group = model_->groups[view.group];
  const GroupView own = View(view.group, capacity_);
  CAIRN_CHECK(view.position >= own.position &&
              view.position + view.count <= own.position + capacity_);
  const PositionMap from(view, view.position, view.count);
  const PositionMap to(own, view.position, view.count);
  std::vector<std::byte> slice;
  for (size_t i = 0; i < group.planes.size(); ++i) {
    const Plane& plane = group.planes[i];
    slice.resize(SliceBytes(plane, view.count));
    GatherSlice(plane, view.planes[i], base_index, from, slice.data());
    ScatterSlice(plane, own.planes[i], layer, to, slice.data(), view.count, 0);
  }
}

Status KvStaging::PutFromGpu(const GpuSource& source, const GroupView& view, uint32_t layer) {
  const LayerGroup& group = model_->groups[view.group];
  const GroupView own = View(view.group, capacity_);
  const uint64_t end = view.position + view.count;
  std::vector<std::byte> rows;
  for (uint32_t i = 0; i < group.planes.size(); ++i) {
    const Plane& plane = group.planes[i];
    const uint64_t at_once = std::max<uint64_t>(1, kGpuGatherBytes / SliceBytes(plane, 1));
    for (uint64_t at = view.position; at < end;) {
      const uint64_t count = std::min(at_once, end - at);
      rows.resize(SliceBytes(plane, count));
      const GpuSource::Slice slice{0, 0, i, at, count, rows.data()};
      CAIRN_RETURN_IF_ERROR(source.Gather({&slice, 1}));
      const PositionMap to(own, at, count);
      ScatterSlice(plane, own.planes[i], layer, to, rows.data(), count, 0);
      at += count;
    }
  }
  return Status::Ok();
}

GroupView KvStaging::View(uint32_t group, uint64_t count) const {
  CAIRN_CHECK(count <= capacity_);
  GroupView view;
  view.group = group;
  view.position = positions_[group];
  view.count = count;
  view.planes = plane_views_[group];
  return view;
}

}  // namespace cairn::engine
