// SPDX-License-Identifier: Apache-2.0
#include "wal/commit_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"

namespace cairn::wal {

namespace {

constexpr uint32_t kLeaderWaits = 1u << 31;  // In CommitGroup::fills.

}  // namespace

bool OpenSegmentState::Fits(uint64_t group_end, uint64_t of_footer, uint64_t segment_bytes) const {
  uint64_t need = AlignUp(group_end, kBlock);
  if (footer) need += AlignUp(of_footer + sizeof(FooterTrailer), kBlock);
  return need <= segment_bytes;
}

bool OpenSegmentState::HasBlocks(uint64_t group_end, uint64_t segment_bytes) const {
  CAIRN_CHECK(allocated <= segment_bytes);
  if (allocated == segment_bytes || !CAIRN_KEPT(kBlocksBeforeGroup)) return true;
  return AlignUp(group_end, kBlock) + kBlock <= allocated;
}

// ---------------------------------------------------------------- filled

void CommitGroup::AwaitFills(io::Scheduler& scheduler) {
  uint32_t open = fills.load(std::memory_order_acquire);
  CAIRN_CHECK((open & kLeaderWaits) == 0);  // There is one leader.
  if (open == 0) return;
  open = fills.fetch_or(kLeaderWaits, std::memory_order_acq_rel) | kLeaderWaits;
  while (open != kLeaderWaits) {
    scheduler.Wait(fills, open, io::kNoDeadline);
    open = fills.load(std::memory_order_acquire);
  }
  fills.store(0, std::memory_order_relaxed);
}

void CommitGroup::EndFill(io::Scheduler& scheduler) {
  const uint32_t before = fills.fetch_sub(1, std::memory_order_acq_rel);
  CAIRN_CHECK((before & ~kLeaderWaits) > 0);
  if (before == (kLeaderWaits | 1)) scheduler.WakeAll(fills);
}

// ---------------------------------------------------------------- written

bool CommitGroup::HasQueue(io::FileSystem& files) {
  if (queue != nullptr) return true;
  return CatchBadAlloc([&] { queue = files.NewQueue(kPieceDepth); }).ok();
}

void CommitGroup::Submit(uint32_t begin, uint32_t end_offset) {
  CAIRN_CHECK(queue != nullptr);
  CAIRN_CHECK(!free_requests.empty());
  CAIRN_CHECK(begin < end_offset);
  CAIRN_CHECK(begin % kBlock == 0);
  CAIRN_CHECK(end_offset % kBlock == 0);
  CAIRN_CHECK(end_offset <= chunk->end());
  io::Request* request = free_requests.back();
  *request = io::Request();
  request->kind = io::Request::Kind::kWrite;
  request->file = segment->file.get();
  request->data = chunk->At(begin);
  request->length = end_offset - begin;
  request->offset = begin;
  queue->Submit(request);
  free_requests.pop_back();  // Not before: it stays free where there is no memory to submit it.
}

Status CommitGroup::Reap() {
  CAIRN_CHECK(queue->in_flight() > 0);
  CAIRN_CHECK(free_requests.size() < kPieceDepth);
  io::Request* request = queue->Reap();
  free_requests.push_back(request);
  return std::move(request->status);
}

Status CommitGroup::Write(io::FileSystem& files, bool is_durable) {
  const uint32_t begin = opens_segment ? 0 : offset;
  const uint32_t end_offset = static_cast<uint32_t>(AlignUp(end(), kBlock));
  const bool early = early_begin != early_end;
  CAIRN_CHECK(led);
  CAIRN_CHECK(end_offset <= chunk->end());
  CAIRN_CHECK(!early || early_begin > begin);  // The header goes with the rest.
  CAIRN_CHECK(!early || early_end <= end_offset);
  if (!early && (end_offset - begin <= kPieceBytes || !HasQueue(files))) {
    return segment->file->Write(begin, {chunk->At(begin), end_offset - begin}, is_durable);
  }
  CAIRN_CHECK(!is_durable);
  const auto pieces = [this](uint32_t from, uint32_t to) -> Status {
    while (from < to) {
      if (free_requests.empty()) {
        CAIRN_RETURN_IF_ERROR(Reap());
        continue;
      }
      const uint32_t piece_end = std::min(to, from + static_cast<uint32_t>(kPieceBytes));
      Submit(from, piece_end);
      from = piece_end;
    }
    return Status::Ok();
  };
  Status status = CatchBadAlloc([&]() -> Status {
    if (!early) return pieces(begin, end_offset);
    CAIRN_RETURN_IF_ERROR(pieces(begin, early_begin));
    return pieces(early_end, end_offset);
  });
  // Whatever happened: nothing may be in flight when the group's memory is used again.
  while (queue->in_flight() > 0) {
    const Status piece = Reap();
    if (status.ok()) status = piece;
  }
  CAIRN_CHECK(free_requests.size() == kPieceDepth);
  return status;
}

// ---------------------------------------------------------------- the footer

void FooterBuffer::Allocate(const Allocator& allocator, uint64_t segment_bytes) {
  buffer_ = AlignedBuffer::TryAllocate(
      allocator, AlignUp(segment_bytes / kFooterShare + sizeof(FooterTrailer), kBlock), kBlock);
}

void FooterBuffer::Add(const CommitGroup& group) {
  CAIRN_CHECK(group.footer_bytes > sizeof(FooterGroup));
  const uint64_t footer_end = uint64_t{group.footer_offset} + group.footer_bytes;
  CAIRN_CHECK(footer_end + sizeof(FooterTrailer) <= buffer_.size());
  std::byte* to = buffer_.data() + group.footer_offset;
  const auto put = [&to](const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  };
  const FooterGroup entry{group.offset, LoadAs<GroupHeader>(group.header())};
  put(&entry, sizeof(entry));
  uint32_t offset = group.offset + static_cast<uint32_t>(sizeof(GroupHeader));
  while (offset < group.end()) {
    const std::byte* record = group.chunk->At(offset);
    const auto frame = LoadAs<RecordFrame>(record);
    const FooterRecord header{
        offset, static_cast<uint32_t>(RecordHeaderBytes(frame.fields_bytes, frame.strip_count))};
    put(&header, sizeof(header));
    put(record, header.header_bytes);
    offset += frame.record_bytes;
  }
  CAIRN_CHECK(to == buffer_.data() + footer_end);
}

Status FooterBuffer::Write(const OpenSegmentState& segment, uint64_t last_sequence, uint64_t epoch,
                           uint64_t segment_bytes, const StoreId& store) {
  const uint64_t total = AlignUp(segment.footer_bytes + sizeof(FooterTrailer), kBlock);
  const uint64_t offset = segment_bytes - total;
  // ParseFooterTrailer and recovery demand this of a footer.
  CAIRN_CHECK(total <= buffer_.size());
  CAIRN_CHECK(offset >= segment.end);
  CAIRN_CHECK(segment.footer_groups > 0);
  CAIRN_CHECK(segment.footer_groups == segment.groups);
  CAIRN_CHECK(last_sequence >= segment.first_sequence);
  std::byte* entries = buffer_.data();
  std::memset(entries + segment.footer_bytes, 0, total - segment.footer_bytes);
  FooterTrailer trailer{};
  trailer.magic = kFooterMagic;
  trailer.group_count = segment.footer_groups;
  trailer.segment = segment.number;
  trailer.epoch = epoch;
  trailer.first_sequence = segment.first_sequence;
  trailer.last_sequence = last_sequence;
  trailer.footer_offset = static_cast<uint32_t>(offset);
  trailer.entries_bytes = segment.footer_bytes;
  trailer.entries_hash = Hash({entries, segment.footer_bytes});
  EncodeFooterTrailer(trailer, segment_bytes, store, entries + total - sizeof(trailer));
  return segment.file->Write(offset, {entries, total}, /*durable=*/false);
}

}  // namespace cairn::wal
