// SPDX-License-Identifier: Apache-2.0
#include "engine/space/prove_table.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/codec/hash.h"
#include "base/codec/token_block.h"
#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "engine/commit/constants.h"
#include "engine/space/seal_table.h"
#include "engine/tree/fragment_layout.h"

namespace cairn::engine {

namespace {

// Neighbouring frames of a fragment that are read at once, and room to unpack them.
struct Window {
  AlignedBuffer memory;
  uint64_t begin = 0, bytes = 0;  // In the file; aligned to blocks.
  size_t first = 0, end = 0;      // Frames.
  std::vector<std::byte> raw;
  std::vector<size_t> raw_offsets;
};

class Prover {
 public:
  Prover(std::shared_ptr<sstable::SnapshotTable> table, const Allocator& allocator,
         SealReader* reader, Crew* crew)
      : table_(std::move(table)), allocator_(allocator), reader_(reader), crew_(crew) {}

  Status Prove(const Tree::SealSource& source, const sstable::FragmentEntry& fragment,
               std::span<const uint64_t> hashes) {
    CAIRN_ASSIGN_OR_RETURN(const auto frames, table_->Frames(fragment));
    CAIRN_CHECK(frames.size() == hashes.size());
    const FragmentLayout layout(*source.model, source.lane);
    Window* reading = &windows_[0];
    Window* read = &windows_[1];
    read->first = read->end = 0;
    do {
      Cut(frames, read->end, reading);
      CAIRN_RETURN_IF_ERROR(crew_->Run([&] { return Read(reading); }, read->end - read->first,
                                       [&](size_t i) {
                                         const size_t frame = read->first + i;
                                         return Check(source, layout, fragment, frames[frame],
                                                      frame, *read, hashes[frame]);
                                       }));
      std::swap(reading, read);
    } while (read->first < frames.size());
    return Status::Ok();
  }

 private:
  // The window from this frame on; empty behind the last.
  static void Cut(std::span<const sstable::FrameEntry> frames, size_t first, Window* window) {
    window->first = window->end = first;
    window->bytes = 0;
    window->raw_offsets.clear();
    if (first == frames.size()) return;
    window->begin = frames[first].offset / io::kBlockBytes * io::kBlockBytes;
    size_t raw_bytes = 0;
    uint64_t end = window->begin;
    for (; window->end < frames.size(); ++window->end) {
      const sstable::FrameEntry& frame = frames[window->end];
      const bool fits = frame.offset + frame.stored_bytes - window->begin <= kReadWindowBytes &&
                        raw_bytes + frame.raw_bytes <= kFrameBatchBytes;
      if (window->end != first && !fits) break;
      window->raw_offsets.push_back(raw_bytes);
      raw_bytes += frame.raw_bytes;
      end = frame.offset + frame.stored_bytes;
    }
    window->bytes = AlignUp(end, io::kBlockBytes) - window->begin;
    if (window->raw.size() < raw_bytes) window->raw.resize(raw_bytes);
  }

  // In pieces, one after the other: see kSpacePieceBytes.
  Status Read(Window* window) {
    if (window->memory.size() < window->bytes) {
      window->memory = AlignedBuffer::TryAllocate(
          allocator_, std::max(window->bytes, kReadWindowBytes), io::kBlockBytes);
      if (window->memory.empty()) return Status(StatusCode::kOutOfMemory, "proving a table");
    }
    for (uint64_t done = 0; done < window->bytes; done += kSpacePieceBytes) {
      const uint64_t piece = std::min(kSpacePieceBytes, window->bytes - done);
      CAIRN_RETURN_IF_ERROR(reader_->Take(piece, 0));
      CAIRN_RETURN_IF_ERROR(
          table_->file().Read(window->begin + done, window->memory.span().subspan(done, piece)));
    }
    return Status::Ok();
  }

  Status Check(const Tree::SealSource& source, const FragmentLayout& layout,
               const sstable::FragmentEntry& fragment, const sstable::FrameEntry& entry,
               size_t frame, Window& window, uint64_t want) {
    const std::span<const std::byte> stored =
        window.memory.span().subspan(entry.offset - window.begin, entry.stored_bytes);
    CAIRN_RETURN_IF_ERROR(table_->Verify(entry, stored));
    std::span<const std::byte> raw = stored;  // States are not packed.
    std::vector<TokenId> ids;
    if (source.lane == kTokenLane) {
      ids.resize(fragment.rows(static_cast<uint32_t>(frame % fragment.pages)));
      CAIRN_RETURN_IF_ERROR(DecodeTokens(stored, ids));
      raw = std::as_bytes(std::span(ids));
    } else if (source.lane != kSamplerLane && source.lane != kMetadataLane) {
      const FrameShape shape =
          layout.Shape(static_cast<uint32_t>(frame / fragment.pages),
                       fragment.rows(static_cast<uint32_t>(frame % fragment.pages)));
      CAIRN_CHECK(shape.raw_bytes() == entry.raw_bytes);
      const std::span<std::byte> room =
          std::span(window.raw).subspan(window.raw_offsets[frame - window.first], entry.raw_bytes);
      CAIRN_RETURN_IF_ERROR(DecodeFrame(shape, stored, room));
      raw = room;
    }
    if (Hash(raw) == want) return Status::Ok();
    return Status(StatusCode::kCorruption, table_->file().path() + ": offset " +
                                               std::to_string(entry.offset) +
                                               ": a frame does not decode to what was packed");
  }

  const std::shared_ptr<sstable::SnapshotTable> table_;
  const Allocator allocator_;
  SealReader* const reader_;
  Crew* const crew_;
  Window windows_[2];
};

}  // namespace

Status ProveTable(TableSet* tables, uint64_t number, std::span<const Tree::SealSource> sources,
                  std::span<const uint64_t> hashes, const Allocator& allocator, SealReader* reader,
                  Crew* crew) {
  CAIRN_ASSIGN_OR_RETURN(const auto table, tables->Open(number));
  CAIRN_ASSIGN_OR_RETURN(const auto fragments, table->Fragments());
  CAIRN_CHECK(fragments.size() == sources.size());
  Prover prover(table, allocator, reader, crew);
  for (size_t i = 0; i < fragments.size(); ++i) {
    const auto frames = static_cast<size_t>(fragments[i].frames());
    CAIRN_CHECK(frames <= hashes.size());
    CAIRN_RETURN_IF_ERROR(prover.Prove(sources[i], fragments[i], hashes.first(frames)));
    hashes = hashes.subspan(frames);
  }
  CAIRN_CHECK(hashes.empty());
  return Status::Ok();
}

}  // namespace cairn::engine
