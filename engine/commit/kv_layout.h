// SPDX-License-Identifier: Apache-2.0
//
// How a record's payload is laid out in strips:
//
//   tokens     one strip, u32 each
//   per group  the slices (layer, plane) in order, each [head][position][row], 64-byte aligned,
//              in strips of at least kStripBytesMin; or, where that is smaller, in place of each
//              slice its frames (slice_frames.h)
//   states     one strip each: sampler, metadata
//
// The model and the count of positions say which slice lies in which strip, so a record does not
// store that. It stores a tag with each strip; the tag says whether the slices are packed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/codec/kv_copy.h"
#include "cairn/branch_types.h"
#include "cairn/kv_view.h"
#include "engine/tree/memory/op.h"
#include "wal/record.h"

namespace cairn::engine {

// A strip is hashed, read and verified whole. Strips smaller than a disk block would cost more than
// they save.
inline constexpr uint32_t kStripBytesMin = 4096;
inline constexpr uint32_t kSliceAlignment = 64;

// The content of a strip, in the low half of its tag; the high half is the layer group. On disk.
enum class StripTag : uint32_t {
  kTokens = 1,
  kKv = 2,
  kSampler = 3,
  kMetadata = 4,
  kPackedKv = 5,
};
constexpr StripTag TagOf(uint32_t tag) { return static_cast<StripTag>(tag & 0xFFFF); }

// Where the slices of `count` positions of a group lie while they are not packed.
class KvLayout {
 public:
  KvLayout(const LayerGroup& group, uint64_t count);
  struct Slice {
    uint32_t layer, plane;
    uint32_t strip;   // Relative to the group's first strip.
    uint64_t offset;  // In the strip.
  };
  const std::vector<Slice>& slices() const { return slices_; }
  const std::vector<uint32_t>& strip_bytes() const { return strip_bytes_; }

 private:
  std::vector<Slice> slices_;
  std::vector<uint32_t> strip_bytes_;
};

// Upper bound of the payload bytes of `count` positions of a group.
uint64_t KvLayoutBytes(const LayerGroup& group, uint64_t count);

// Positions of a delta that go into one record: all of it, or a part of a large append.
struct DeltaWindow {
  uint64_t token_first = 0, token_count = 0;  // Indices into Delta::tokens.
  struct Kv {
    uint64_t position = 0, count = 0;
  };
  std::vector<Kv> kv;  // One a GroupView of the delta.

  static DeltaWindow Whole(const Delta& delta);
};

// Payload bytes of the window's KV.
uint64_t WindowKvBytes(const ModelSpec& model, const Delta& delta, const DeltaWindow& window);

// The ranges that a delta adds to a branch of `length` tokens, without states, wherever they will
// lie.
std::vector<LaneRange> LanesOf(const Delta& delta, uint64_t length);
std::vector<ContentSpan> SpansOf(const Delta& delta);

// An encoded sampler or metadata that belongs after the first `tokens` tokens of the delta.
struct DeltaState {
  uint32_t lane = 0;  // kSamplerLane or kMetadataLane.
  uint64_t tokens = 0;
  std::vector<std::byte> bytes;
};
inline constexpr size_t kStatesOfDeltaMax = 2;
std::vector<DeltaState> StatesOf(const Delta& delta);

class PackedLane;
struct PackDeps;

// The payload of one record, described before it is copied. Borrows the delta and the model.
class DeltaPayload {
 public:
  // Takes over `states` last: if it runs out of memory the caller still has them.
  DeltaPayload(const ModelSpec& model, const Delta& delta, const DeltaWindow& window,
               std::vector<DeltaState>&& states);
  ~DeltaPayload();
  DeltaPayload(const DeltaPayload&) = delete;
  DeltaPayload& operator=(const DeltaPayload&) = delete;

  // Packs the KV that gets smaller by it, which changes strips() and bytes(). Takes as long as the
  // codec does for all bytes, so never call it under the commit lock. Without memory for it the
  // rows stay as they are. At most once.
  void Pack(const PackDeps& deps);

  // Lane ranges with strips set. Those of tokens and states count from the branch's length, which
  // is known only under the commit lock: see SetLength.
  const std::vector<LaneRange>& lanes() const { return lanes_; }
  void SetLength(uint64_t length_before);
  const std::vector<wal::Strip>& strips() const { return strips_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t kv_bytes() const { return kv_bytes_; }
  // For a payload that is not written after all.
  std::vector<DeltaState> TakeStates() { return std::move(states_); }
  uint64_t token_strip_bytes() const { return window_.token_count * sizeof(TokenId); }

  // Copies strip after strip to payload + offsets[i], and hashes each while it is hot in cache.
  // After each strip calls `progress(end of the strip)`; false from it stops (cancelled).
  template <typename Progress>
  bool Fill(std::byte* payload, std::span<const uint32_t> offsets, std::vector<uint64_t>* hashes,
            Progress&& progress) const {
    hashes->clear();
    FillState state;
    for (size_t i = 0; i < strips_.size(); ++i) {
      hashes->push_back(FillStrip(i, payload + offsets[i], &state));
      if (!progress(uint64_t{offsets[i]} + strips_[i].bytes)) return false;
    }
    return true;
  }

 private:
  struct GroupPart {
    const GroupView* view;
    const LayerGroup* group;
    KvLayout layout;
    uint32_t first_strip;
    DeltaWindow::Kv window;
    PositionMap map;                       // Made here, since Fill must not allocate.
    std::unique_ptr<PackedLane> packed{};  // Null: the rows are copied as they are.
    size_t end_strip() const { return first_strip + layout.strip_bytes().size(); }
  };
  struct FillState {
    size_t group = 0;
    size_t next_slice = 0;
  };
  uint64_t FillStrip(size_t index, std::byte* into, FillState* state) const;
  const GroupPart& PartOf(size_t index, FillState* state) const;
  static void FillKvStrip(const GroupPart& part, size_t index, std::byte* into, FillState* state);
  void AddStrip(StripTag tag, uint32_t group, uint64_t bytes);

  const Delta& delta_;
  DeltaWindow window_;
  std::vector<LaneRange> lanes_;
  std::vector<wal::Strip> strips_;
  std::vector<GroupPart> groups_;
  std::vector<DeltaState> states_;  // Each in a strip of its own, the last ones.
  uint64_t bytes_ = 0, kv_bytes_ = 0;
};

}  // namespace cairn::engine
