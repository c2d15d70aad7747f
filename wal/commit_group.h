// SPDX-License-Identifier: Apache-2.0
//
// Internals of LogImpl: a group of records on its way to the device, its segment, and the footer
// that the segment gets when it is full.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/io/world.h"
#include "wal/constants.h"
#include "wal/format.h"
#include "wal/hot_tail.h"

namespace cairn::wal {

// A segment that this log writes. Groups hold it, so that its file stays open while they need it.
struct OpenSegmentState {
  uint64_t number = 0;
  uint64_t first_sequence = 0;
  std::shared_ptr<io::File> file;
  uint32_t end = kFirstGroupOffset;  // Behind the last group that was placed.
  uint32_t groups = 0;
  uint64_t allocated = 0;  // Blocks allocated to the file; groups lie within them.
  bool opens_epoch = false;
  bool ballast = false;  // Opened when no other was left: no data goes here.
  bool last = false;     // Opened when no other was left: releases use a part only.
  // The footer that grows in the FooterBuffer; `footer` false: there will be none.
  bool footer = false;
  uint32_t footer_bytes = 0;
  uint32_t footer_groups = 0;

  // Whether it has room for groups up to `group_end`, and for a footer of this size.
  bool Fits(uint64_t group_end, uint64_t of_footer, uint64_t segment_bytes) const;
  // Whether groups up to `group_end` have blocks to lie in, and a clean end after them.
  bool HasBlocks(uint64_t group_end, uint64_t segment_bytes) const;
};

enum class GroupState : uint8_t { kFree, kForming, kClosed, kDone };

// Never freed, only reused: a thread that is late to its word never touches freed memory.
struct CommitGroup {
  CommitGroup() {
    for (io::Request& request : requests) free_requests.push_back(&request);
  }
  GroupState state = GroupState::kFree;
  std::shared_ptr<HotTail::Chunk> chunk;
  std::shared_ptr<OpenSegmentState> segment;
  uint32_t offset = 0;  // Where the group header lies.
  uint32_t bytes = 0;   // Header and records.
  uint64_t first_sequence = 0;
  uint32_t record_count = 0;
  uint32_t footer_offset = 0;  // In the FooterBuffer.
  uint32_t footer_bytes = 0;
  uint64_t opened_ns = 0;
  bool opens_segment = false;
  bool large = false;  // One record of kLargePayloadBytes or more, alone.
  bool led = false;    // Some thread leads it.
  bool written = false;
  bool durable = false;  // Synced before it is done; decided when it is written.
  uint64_t header_hash = 0;

  // Members that have not published yet, and whether the leader waits for them.
  std::atomic<uint32_t> fills{0};
  std::atomic<uint32_t> done_word{0};
  bool has_sleepers = false;

  // For groups that are written in pieces. Between two pieces all requests are free.
  std::array<io::Request, kPieceDepth> requests;
  std::vector<io::Request*> free_requests;
  std::unique_ptr<io::Queue> queue;  // Made for the first piece; see HasQueue. Destroyed first.
  uint32_t early_begin = 0, early_end = 0;  // Segment offsets written ahead of the leader.

  // --- Writing. One thread at a time, except for Submit, which the one member of a large group
  // calls before the leader writes.
  // False: there is no memory for a queue, and the group is written at once.
  bool HasQueue(io::FileSystem& files);
  // The next piece. REQUIRES: a queue, and a free request.
  void Submit(uint32_t begin, uint32_t end_offset);
  Status Reap();  // Reaps one piece.
  // Writes what was not written early, and waits until all pieces have ended.
  Status Write(io::FileSystem& files, bool is_durable);
  // Waits until all members have published.
  void AwaitFills(io::Scheduler& scheduler);
  void EndFill(io::Scheduler& scheduler);  // A member has published.

  uint64_t last_sequence() const { return first_sequence + record_count - 1; }
  uint64_t end() const { return uint64_t{offset} + bytes; }
  std::byte* header() const { return chunk->At(offset); }
};

// The footer of the segment being written grows here. For the leaders, one at a time.
class FooterBuffer {
 public:
  // Without memory there are no footers.
  void Allocate(const Allocator& allocator, uint64_t segment_bytes);
  bool empty() const { return buffer_.empty(); }
  // REQUIRES: the group's header is sealed, and it has room here.
  void Add(const CommitGroup& group);
  // Not synced.
  Status Write(const OpenSegmentState& segment, uint64_t last_sequence, uint64_t epoch,
               uint64_t segment_bytes, const StoreId& store);

 private:
  AlignedBuffer buffer_;
};

}  // namespace cairn::wal
