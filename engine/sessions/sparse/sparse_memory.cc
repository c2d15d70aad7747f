// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/sparse/sparse_memory.h"

#include <cstring>
#include <numeric>
#include <span>

#include "base/core/align.h"
#include "base/core/check.h"
#include "base/core/out_of_memory.h"

namespace cairn::engine {

namespace {

// Parts of a layer's memory, one behind the other.
class Parts {
 public:
  uint64_t Add(uint64_t count, uint64_t bytes) {
    const uint64_t at = end_;
    end_ = AlignUp(end_ + count * bytes, gpu::kDeviceAlignment);
    return at;
  }
  uint64_t end() const { return end_; }

 private:
  uint64_t end_ = 0;
};

}  // namespace

SparseMemory::SparseMemory(const GpuWaits* waits, const SparseLayout& layout)
    : waits_(*waits), layout_(layout) {
  const uint64_t heads = layout_.heads;
  const uint64_t slots = heads * layout_.slots, wanted = heads * layout_.wanted_max;
  Parts device;
  rows_at_ = device.Add(heads, sizeof(gpu::SlotRow));
  buffers_at_ = device.Add(heads, sizeof(gpu::PieceBuffer));
  pieces_in_at_ = device.Add(slots, sizeof(uint32_t));
  orders_at_ = device.Add(2 * slots, sizeof(uint32_t));
  turns_at_ = device.Add(heads, sizeof(uint32_t));
  counts_at_ = device.Add(heads, sizeof(uint32_t));
  begun_end_ = device.end();
  wanted_at_ = device.Add(wanted, sizeof(uint32_t));
  slot_of_at_ = device.Add(wanted, sizeof(int32_t));
  source_at_ = device.Add(wanted, sizeof(uint64_t));
  for (uint32_t plane = 0; plane < layout_.plane_count; ++plane) {
    slots_at_[plane] = device.Add(slots, layout_.piece_bytes(plane));
  }
  device_layer_bytes_ = device.end();
  device_bytes_ = layout_.layers * device_layer_bytes_;
  Parts pinned;
  pages_at_ = pinned.Add(heads * layout_.pages, sizeof(uint64_t));
  used_at_ = pinned.Add(heads * layout_.pages, sizeof(uint8_t));
  faults_at_ = pinned.Add(wanted, sizeof(uint32_t));
  fault_counts_at_ = pinned.Add(heads, sizeof(uint32_t));
  wrong_at_ = pinned.Add(1, sizeof(uint64_t));
  staged_at_ = pinned.Add(wanted, sizeof(uint32_t));
  staged_counts_at_ = pinned.Add(heads, sizeof(uint32_t));
  captured_counts_at_ = pinned.Add(heads, sizeof(uint32_t));
  pinned_layer_bytes_ = pinned.end();
}

SparseMemory::~SparseMemory() {
  if (device_memory_ != nullptr) waits_.device().Free(device_memory_);
  if (pinned_memory_ != nullptr) waits_.device().Free(pinned_memory_);
}

gpu::SlotRow SparseMemory::RowOf(uint32_t layer, uint32_t head) const {
  const uint64_t slots = uint64_t{head} * layout_.slots;
  const uint64_t wanted = uint64_t{head} * layout_.wanted_max;
  gpu::SlotRow row;
  row.pieces_in = Device<uint32_t>(layer, pieces_in_at_) + slots;
  row.orders = Device<uint32_t>(layer, orders_at_) + 2 * slots;
  row.turn = Device<uint32_t>(layer, turns_at_) + head;
  row.wanted = this->wanted(layer) + wanted;
  row.count = counts(layer) + head;
  row.pages = pages(layer) + uint64_t{head} * layout_.pages;
  row.page_used = used(layer) + uint64_t{head} * layout_.pages;
  row.slot_of = Device<int32_t>(layer, slot_of_at_) + wanted;
  row.source = Device<uint64_t>(layer, source_at_) + wanted;
  row.faults = Pinned<uint32_t>(layer, faults_at_) + wanted;
  row.fault_count = Pinned<uint32_t>(layer, fault_counts_at_) + head;
  row.slots = layout_.slots;
  row.pieces_end = layout_.pieces;
  row.pieces_of_page = layout_.pieces_of_page();
  return row;
}

Status SparseMemory::Allocate() {
  gpu::Device& device = waits_.device();
  CAIRN_ASSIGN_OR_RETURN(device_memory_, device.Allocate(gpu::Memory::kDevice, device_bytes_));
  const uint64_t pinned_bytes = layout_.layers * pinned_layer_bytes_;
  CAIRN_ASSIGN_OR_RETURN(pinned_memory_, device.Allocate(gpu::Memory::kPinned, pinned_bytes));
  std::memset(pinned_memory_, 0, pinned_bytes);
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) *wrong(layer) = gpu::kNothingWrong;
  CAIRN_ASSIGN_OR_RETURN(std::byte* const image, device.Allocate(gpu::Memory::kPinned, begun_end_));
  const Status begun = Begin(image);
  if (!is_lost_) device.Free(image);
  return begun;
}

// After an error the copy has ended as well, unless is_lost_.
Status SparseMemory::CopyAndWait(const gpu::CopyPiece& piece) const {
  gpu::Device& device = waits_.device();
  CAIRN_ASSIGN_OR_RETURN(const gpu::Stream stream, device.NewStream(gpu::Priority::kHigh));
  const Result<gpu::Event> copied = device.NewEvent();
  Status status = copied.status();
  if (status.ok()) status = device.Copy(stream, {&piece, 1});
  if (status.ok()) status = CatchBadAlloc([&] { return device.Record(stream, *copied); });
  if (status.ok()) status = waits_.For(*copied, io::kNoDeadline);
  if (!status.ok() && copied.ok()) {
    bool has_ended = false;
    static_cast<void>(CatchBadAlloc([&] {
      has_ended = waits_.Drain(stream, *copied);
      return Status::Ok();
    }));
    is_lost_ |= !has_ended;
  }
  if (copied.ok()) device.Return(*copied);
  device.Return(stream);
  return status;
}

Status SparseMemory::Begin(std::byte* image) {
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
    std::memset(image, 0, begun_end_);
    for (uint32_t head = 0; head < layout_.heads; ++head) {
      const gpu::SlotRow row = RowOf(layer, head);
      std::memcpy(image + rows_at_ + head * sizeof(row), &row, sizeof(row));
      gpu::PieceBuffer buffer;
      for (uint32_t plane = 0; plane < layout_.plane_count; ++plane) {
        buffer.plane[plane] = Device<uint8_t>(layer, slots_at_[plane]) +
                              uint64_t{head} * layout_.slots * layout_.piece_bytes(plane);
      }
      std::memcpy(image + buffers_at_ + head * sizeof(buffer), &buffer, sizeof(buffer));
      auto* const order =
          reinterpret_cast<uint32_t*>(image + orders_at_) + uint64_t{2} * head * layout_.slots;
      std::iota(order, order + layout_.slots, 0);
    }
    std::memset(image + pieces_in_at_, 0xff, orders_at_ - pieces_in_at_);
    CAIRN_RETURN_IF_ERROR(CopyAndWait({Device<std::byte>(layer, 0), image, begun_end_}));
  }
  return Status::Ok();
}

Status SparseMemory::SetPieces(uint32_t pieces) {
  gpu::Device& device = waits_.device();
  const uint64_t bytes = layout_.heads * sizeof(gpu::SlotRow);
  CAIRN_ASSIGN_OR_RETURN(std::byte* const image, device.Allocate(gpu::Memory::kPinned, bytes));
  layout_.pieces = pieces;
  Status status;
  for (uint32_t layer = 0; layer < layout_.layers && status.ok(); ++layer) {
    for (uint32_t head = 0; head < layout_.heads; ++head) {
      const gpu::SlotRow row = RowOf(layer, head);
      std::memcpy(image + head * sizeof(row), &row, sizeof(row));
    }
    status = CopyAndWait({Device<std::byte>(layer, rows_at_), image, bytes});
  }
  if (!is_lost_) device.Free(image);
  return status;
}

Status SparseMemory::ReadPieces(uint32_t layer, std::vector<std::vector<uint32_t>>* pieces) const {
  gpu::Device& device = waits_.device();
  const uint64_t bytes = counts_at_ - pieces_in_at_;  // Pieces, orders, turns.
  CAIRN_ASSIGN_OR_RETURN(std::byte* const image, device.Allocate(gpu::Memory::kPinned, bytes));
  const Status copied = CopyAndWait({image, Device<std::byte>(layer, pieces_in_at_), bytes});
  if (!copied.ok()) {
    if (!is_lost_) device.Free(image);
    return copied;
  }
  const auto* const in = reinterpret_cast<const uint32_t*>(image);
  const auto* const orders = reinterpret_cast<const uint32_t*>(image + orders_at_ - pieces_in_at_);
  const auto* const turns = reinterpret_cast<const uint32_t*>(image + turns_at_ - pieces_in_at_);
  for (uint32_t head = 0; head < layout_.heads; ++head) {
    const uint64_t slots = layout_.slots;
    const uint32_t* const order = orders + (2 * head + turns[head] % 2) * slots;
    std::vector<uint32_t>& of_head = pieces->emplace_back();
    for (uint64_t i = 0; i < slots; ++i) {
      const uint32_t piece = in[head * slots + order[i]];
      if (piece != gpu::kNoPiece) of_head.push_back(piece);
    }
  }
  device.Free(image);
  return Status::Ok();
}

gpu::ResolveSlots SparseMemory::Resolve(uint32_t layer, uint32_t count) const {
  gpu::ResolveSlots k;
  k.rows = Device<gpu::SlotRow>(layer, rows_at_);
  k.wrong = wrong(layer);
  k.row_count = layout_.heads;
  k.count_max = count;
  k.slots_max = layout_.slots;
  return k;
}

gpu::GatherPieces SparseMemory::Gather(uint32_t layer, uint32_t count) const {
  gpu::GatherPieces k;
  k.rows = Device<gpu::SlotRow>(layer, rows_at_);
  k.buffers = Device<gpu::PieceBuffer>(layer, buffers_at_);
  for (uint32_t plane = 0; plane < layout_.plane_count; ++plane) {
    k.planes[plane] = {layout_.page_offset(plane), layout_.piece_bytes(plane)};
  }
  k.plane_count = layout_.plane_count;
  k.row_count = layout_.heads;
  k.count_max = count;
  return k;
}

}  // namespace cairn::engine
