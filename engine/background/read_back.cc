// SPDX-License-Identifier: Apache-2.0
#include "engine/background/read_back.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/codec/hash.h"
#include "base/codec/token_block.h"
#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/fragment_layout.h"
#include "engine/tree/memory/seal_source.h"

namespace cairn::engine {

namespace {

// A stretch of the file that is read at once, its frames, and memory to unpack them. It holds as
// many whole fragments with their entries as fit, or some frames of one that is larger.
struct Window {
  struct Frame {
    size_t fragment;
    size_t index;  // In the fragment.
    const FragmentLayout* layout;
    sstable::FrameEntry entry;
    uint64_t hash;
    size_t raw_offset;
  };
  AlignedBuffer memory;
  uint64_t begin = 0, end = 0;                  // In the file; aligned to blocks.
  size_t first_fragment = 0, end_fragment = 0;  // Those wholly in it.
  size_t first_frame = 0, end_frame = 0;        // A larger fragment's.
  std::vector<Frame> frames;
  AlignedBuffer raw;
};

class ReadBackVerifier {
 public:
  ReadBackVerifier(const ReadBackDeps& deps, std::shared_ptr<sstable::SnapshotTable> table,
                   std::shared_ptr<io::File> file,
                   std::span<const sstable::FragmentEntry> fragments,
                   std::span<const SealSource> sources, std::span<const uint64_t> hashes)
      : deps_(deps),
        table_(std::move(table)),
        file_(std::move(file)),
        fragments_(fragments),
        sources_(sources),
        hashes_(hashes) {}

  Status Run() {
    Window windows[2];
    Window* reading = &windows[0];
    Window* read = &windows[1];
    do {
      CAIRN_RETURN_IF_ERROR(NextWindow(reading));
      CAIRN_RETURN_IF_ERROR(
          deps_.parallel_for->Run([&] { return Read(reading); }, read->frames.size(),
                                  [&](size_t i) { return Check(read->frames[i], *read); }));
      CAIRN_RETURN_IF_ERROR(Arrange(reading));
      std::swap(reading, read);
    } while (!read->frames.empty());
    CAIRN_CHECK(verified_frames_ == hashes_.size());
    return Status::Ok();
  }

 private:
  // The next window; empty behind the last.
  Status NextWindow(Window* window) {
    window->begin = window->end = 0;
    window->first_fragment = window->end_fragment = next_fragment_;
    window->first_frame = window->end_frame = next_frame_;
    if (next_frame_ == large_.size()) {
      AddFragments(window);
      if (window->end != 0 || next_fragment_ == fragments_.size()) return Status::Ok();
      CAIRN_ASSIGN_OR_RETURN(large_, table_->Frames(fragments_[next_fragment_++]));
      window->first_frame = next_frame_ = 0;
    }
    AddFrames(window);
    return Status::Ok();
  }

  void AddFragments(Window* window) {
    uint64_t raw_bytes = 0;
    for (; next_fragment_ < fragments_.size(); ++next_fragment_) {
      const sstable::FragmentEntry& fragment = fragments_[next_fragment_];
      raw_bytes += LayoutOf(next_fragment_).position_bytes() * fragment.count;
      const uint64_t end = fragment.offset + fragment.bytes();
      if (!Fits(fragment.offset, end, raw_bytes, *window)) break;
      Extend(fragment.offset, end, window);
    }
    window->end_fragment = next_fragment_;
  }

  void AddFrames(Window* window) {
    uint64_t raw_bytes = 0;
    for (; next_frame_ < large_.size(); ++next_frame_) {
      const sstable::FrameEntry& frame = large_[next_frame_];
      raw_bytes += frame.raw_bytes;
      const uint64_t end = frame.offset + frame.stored_bytes;
      const bool first = next_frame_ == window->first_frame;  // Is taken however large it is.
      if (!first && !Fits(frame.offset, end, raw_bytes, *window)) break;
      Extend(frame.offset, end, window);
    }
    window->end_frame = next_frame_;
  }

  // Whether the window may be extended by this stretch, with `raw_bytes` to unpack in all.
  static bool Fits(uint64_t begin, uint64_t end, uint64_t raw_bytes, const Window& window) {
    if (window.end != 0) begin = window.begin;
    return end - begin <= kReadWindowBytes - io::kBlockBytes && raw_bytes <= kFrameBatchBytes;
  }

  static void Extend(uint64_t begin, uint64_t end, Window* window) {
    if (window->end == 0) window->begin = begin / io::kBlockBytes * io::kBlockBytes;
    window->end = AlignUp(end, io::kBlockBytes);
  }

  const FragmentLayout& LayoutOf(size_t fragment) {
    const SealSource& source = sources_[fragment];
    const std::pair key(source.model.get(), source.lane);
    const auto found = layouts_.find(key);
    if (found != layouts_.end()) return found->second;
    return layouts_.emplace(key, FragmentLayout(*source.model, source.lane)).first->second;
  }

  // In pieces, one after the other: see kSpacePieceBytes.
  Status Read(Window* window) {
    const uint64_t bytes = window->end - window->begin;
    if (window->memory.size() < bytes) {
      window->memory = AlignedBuffer::TryAllocate(
          deps_.allocator, std::max(bytes, kReadWindowBytes), io::kBlockBytes);
      if (window->memory.empty()) return Status(StatusCode::kOutOfMemory, "reading a table back");
    }
    for (uint64_t done = 0, piece = 0; done < bytes; done += piece) {
      piece = std::min(deps_.quiet() ? kSpacePieceBytes : kSpaceAlonePieceBytes, bytes - done);
      CAIRN_RETURN_IF_ERROR(deps_.take(piece));
      CAIRN_RETURN_IF_ERROR(
          file_->Read(window->begin + done, window->memory.span().subspan(done, piece)));
    }
    return Status::Ok();
  }

  // Finds the frames in the window.
  Status Arrange(Window* window) {
    window->frames.clear();
    size_t raw_bytes = 0;
    const auto add = [&](size_t fragment, size_t index, const sstable::FrameEntry& entry) {
      CAIRN_CHECK(verified_frames_ < hashes_.size());
      window->frames.push_back(
          {fragment, index, &LayoutOf(fragment), entry, hashes_[verified_frames_++], raw_bytes});
      raw_bytes += entry.raw_bytes;
    };
    for (size_t i = window->first_fragment; i < window->end_fragment; ++i) {
      const sstable::FragmentEntry& fragment = fragments_[i];
      CAIRN_ASSIGN_OR_RETURN(const auto frames,
                             table_->ParseFrames(fragment, Stored(*window, fragment.entries_offset,
                                                                  fragment.entries_bytes())));
      for (size_t frame = 0; frame < frames.size(); ++frame) add(i, frame, frames[frame]);
    }
    for (size_t frame = window->first_frame; frame < window->end_frame; ++frame) {
      add(next_fragment_ - 1, frame, large_[frame]);
    }
    if (window->raw.size() < raw_bytes) {
      window->raw = AlignedBuffer();
      window->raw = AlignedBuffer::TryAllocate(
          deps_.allocator, std::max<uint64_t>(raw_bytes, kFrameBatchBytes), io::kBlockBytes);
      if (window->raw.empty()) return Status(StatusCode::kOutOfMemory, "reading a table back");
    }
    return Status::Ok();
  }

  static std::span<const std::byte> Stored(const Window& window, uint64_t offset, uint64_t bytes) {
    return window.memory.span().subspan(offset - window.begin, bytes);
  }

  Status Check(const Window::Frame& frame, Window& window) {
    const sstable::FragmentEntry& fragment = fragments_[frame.fragment];
    const uint32_t lane = sources_[frame.fragment].lane;
    const uint32_t rows = fragment.rows(static_cast<uint32_t>(frame.index % fragment.pages));
    const std::span<const std::byte> stored =
        Stored(window, frame.entry.offset, frame.entry.stored_bytes);
    CAIRN_RETURN_IF_ERROR(table_->Verify(frame.entry, stored));
    std::span<const std::byte> raw = stored;  // States are not packed.
    std::vector<TokenId> ids;
    if (lane == kTokenLane) {
      ids.resize(rows);
      CAIRN_RETURN_IF_ERROR(DecodeTokens(stored, ids));
      raw = std::as_bytes(std::span(ids));
    } else if (lane != kSamplerLane && lane != kMetadataLane) {
      const FrameShape shape =
          frame.layout->Shape(static_cast<uint32_t>(frame.index / fragment.pages), rows);
      CAIRN_CHECK(shape.raw_bytes() == frame.entry.raw_bytes);
      const std::span<std::byte> room =
          window.raw.span().subspan(frame.raw_offset, frame.entry.raw_bytes);
      CAIRN_RETURN_IF_ERROR(DecodeFrame(shape, stored, room));
      raw = room;
    }
    if (Hash(raw) == frame.hash) return Status::Ok();
    return Status(StatusCode::kCorruption, table_->path() + ": offset " +
                                               std::to_string(frame.entry.offset) +
                                               ": a frame does not decode to what was packed");
  }

  const ReadBackDeps& deps_;
  const std::shared_ptr<sstable::SnapshotTable> table_;
  const std::shared_ptr<io::File> file_;
  const std::span<const sstable::FragmentEntry> fragments_;
  const std::span<const SealSource> sources_;
  const std::span<const uint64_t> hashes_;

  std::map<std::pair<const ModelSpec*, uint32_t>, FragmentLayout> layouts_;
  size_t next_fragment_ = 0;                // The next of fragments_ to read.
  std::vector<sstable::FrameEntry> large_;  // Entries of the fragment before it, if that is large.
  size_t next_frame_ = 0;                   // The next of large_ to read.
  size_t verified_frames_ = 0;              // Or read: this many hashes were used.
};

}  // namespace

Status VerifyReadBack(const ReadBackDeps& deps, uint64_t number,
                      std::span<const SealSource> sources, std::span<const uint64_t> hashes) {
  CAIRN_ASSIGN_OR_RETURN(const auto table, deps.tables->Open(number));
  CAIRN_ASSIGN_OR_RETURN(const auto fragments, table->Fragments());
  CAIRN_CHECK(fragments.size() == sources.size());
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> file, table->OpenFile());
  return ReadBackVerifier(deps, table, file, fragments, sources, hashes).Run();
}

}  // namespace cairn::engine
