// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/kv_layout.h"

#include <cstring>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "engine/commit/packed_lane.h"

namespace cairn::engine {

namespace {

uint64_t AlignSlice(uint64_t bytes) {
  return (bytes + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
}

}  // namespace

KvLayout::KvLayout(const LayerGroup& group, uint64_t count) {
  slices_.reserve(group.layers * group.planes.size());
  uint64_t strip_bytes = 0;
  for (uint32_t layer = 0; layer < group.layers; ++layer) {
    for (uint32_t plane = 0; plane < group.planes.size(); ++plane) {
      slices_.push_back({layer, plane, static_cast<uint32_t>(strip_bytes_.size()), strip_bytes});
      strip_bytes += AlignSlice(SliceBytes(group.planes[plane], count));
      if (strip_bytes >= kStripBytesMin) {
        strip_bytes_.push_back(static_cast<uint32_t>(strip_bytes));
        strip_bytes = 0;
      }
    }
  }
  if (strip_bytes != 0) strip_bytes_.push_back(static_cast<uint32_t>(strip_bytes));
}

uint64_t KvLayoutBytes(const LayerGroup& group, uint64_t count) {
  uint64_t bytes = 0;
  for (const Plane& plane : group.planes) bytes += AlignSlice(SliceBytes(plane, count));
  return bytes * group.layers;
}

DeltaWindow DeltaWindow::Whole(const Delta& delta) {
  DeltaWindow window;
  window.token_count = delta.tokens.size();
  if (delta.kv != nullptr) {
    for (const GroupView& view : delta.kv->groups) window.kv.push_back({view.position, view.count});
  }
  return window;
}

uint64_t WindowKvBytes(const ModelSpec& model, const Delta& delta, const DeltaWindow& window) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < window.kv.size(); ++i) {
    bytes += KvLayoutBytes(model.groups[delta.kv->groups[i].group], window.kv[i].count);
  }
  return bytes;
}

std::vector<LaneRange> LanesOf(const Delta& delta, uint64_t length) {
  std::vector<LaneRange> lanes;
  if (!delta.tokens.empty()) lanes.push_back({kTokenLane, 0, length, delta.tokens.size()});
  if (delta.kv == nullptr) return lanes;
  for (const GroupView& view : delta.kv->groups) {
    if (view.count != 0) lanes.push_back({1 + view.group, 0, view.position, view.count});
  }
  return lanes;
}

std::vector<ContentSpan> SpansOf(const Delta& delta) {
  return {delta.spans.begin(), delta.spans.end()};
}

std::vector<DeltaState> StatesOf(const Delta& delta) {
  std::vector<DeltaState> states;
  if (delta.sampler != nullptr) {
    states.push_back({kSamplerLane, delta.tokens.size(), EncodeSampler(*delta.sampler)});
  }
  if (delta.metadata != nullptr) {
    states.push_back({kMetadataLane, delta.tokens.size(), EncodeMetadata(*delta.metadata)});
  }
  return states;
}

DeltaPayload::DeltaPayload(const ModelSpec& model, const Delta& delta, const DeltaWindow& window,
                           std::vector<DeltaState>&& states)
    : delta_(delta), window_(window) {
  if (window.token_count != 0) {
    lanes_.push_back({.lane = kTokenLane, .strip = 0, .begin = 0, .count = window.token_count});
    AddStrip(StripTag::kTokens, 0, window.token_count * sizeof(TokenId));
  }
  for (size_t i = 0; i < window.kv.size(); ++i) {
    if (window.kv[i].count == 0) continue;
    const GroupView& view = delta.kv->groups[i];
    const LayerGroup& group = model.groups[view.group];
    GroupPart part{&view,
                   &group,
                   KvLayout(group, window.kv[i].count),
                   static_cast<uint32_t>(strips_.size()),
                   window.kv[i],
                   PositionMap(view, window.kv[i].position, window.kv[i].count)};
    lanes_.push_back({.lane = 1 + view.group,
                      .strip = part.first_strip,
                      .begin = window.kv[i].position,
                      .count = window.kv[i].count});
    for (const uint32_t bytes : part.layout.strip_bytes()) {
      AddStrip(StripTag::kKv, view.group, bytes);
    }
    kv_bytes_ += group.token_bytes() * window.kv[i].count;
    groups_.push_back(std::move(part));
  }
  for (const DeltaState& state : states) {
    lanes_.push_back({.lane = state.lane,
                      .strip = static_cast<uint32_t>(strips_.size()),
                      .begin = state.tokens,
                      .count = 1});
    AddStrip(state.lane == kSamplerLane ? StripTag::kSampler : StripTag::kMetadata, 0,
             state.bytes.size());
  }
  states_ = std::move(states);
}

void DeltaPayload::AddStrip(StripTag tag, uint32_t group, uint64_t bytes) {
  CAIRN_CHECK(bytes <= UINT32_MAX);
  strips_.push_back({static_cast<uint32_t>(tag) | group << 16, static_cast<uint32_t>(bytes)});
  bytes_ += bytes;
}

void DeltaPayload::SetLength(uint64_t length_before) {
  const size_t first_state = lanes_.size() - states_.size();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].lane == kTokenLane) lanes_[i].begin = length_before + window_.token_first;
    if (i >= first_state) lanes_[i].begin = length_before + states_[i - first_state].tokens;
  }
}

DeltaPayload::~DeltaPayload() = default;

void DeltaPayload::Pack(const PackDeps& deps) {
  for (GroupPart& part : groups_) {
    CAIRN_CHECK(part.packed == nullptr);
    part.packed = PackedLane::Make(deps, {.view = *part.view,
                                          .group = *part.group,
                                          .layout = part.layout,
                                          .map = part.map,
                                          .position = part.window.position,
                                          .count = part.window.count});
    if (part.packed == nullptr) continue;
    for (size_t i = part.first_strip; i < part.end_strip(); ++i) {
      wal::Strip& strip = strips_[i];
      const size_t bytes = part.packed->strip(i - part.first_strip).size();
      CAIRN_CHECK(TagOf(strip.tag) == StripTag::kKv);
      bytes_ -= strip.bytes - bytes;
      strip = {static_cast<uint32_t>(StripTag::kPackedKv) | part.view->group << 16,
               static_cast<uint32_t>(bytes)};
    }
  }
}

uint64_t DeltaPayload::FillStrip(size_t index, std::byte* into, FillState* state) const {
  const std::span<std::byte> strip(into, strips_[index].bytes);
  switch (TagOf(strips_[index].tag)) {
    case StripTag::kTokens:
      std::memcpy(into, delta_.tokens.data() + window_.token_first, strip.size());
      break;
    case StripTag::kSampler:
    case StripTag::kMetadata: {
      const DeltaState& held = states_[states_.size() - (strips_.size() - index)];
      std::memcpy(into, held.bytes.data(), strip.size());
      break;
    }
    case StripTag::kKv: FillKvStrip(PartOf(index, state), index, into, state); break;
    case StripTag::kPackedKv: {
      const GroupPart& part = PartOf(index, state);
      const size_t of_lane = index - part.first_strip;
      std::memcpy(into, part.packed->strip(of_lane).data(), strip.size());
      return part.packed->hash(of_lane);
    }
  }
  return Hash(strip);
}

// The part of the delta that this strip holds. Strips are filled in order.
const DeltaPayload::GroupPart& DeltaPayload::PartOf(size_t index, FillState* state) const {
  while (index >= groups_[state->group].end_strip()) {
    ++state->group;
    state->next_slice = 0;
  }
  return groups_[state->group];
}

void DeltaPayload::FillKvStrip(const GroupPart& part, size_t index, std::byte* into,
                               FillState* state) {
  const size_t strip = index - part.first_strip;
  const std::vector<KvLayout::Slice>& slices = part.layout.slices();
  for (; state->next_slice < slices.size() && slices[state->next_slice].strip == strip;
       ++state->next_slice) {
    const KvLayout::Slice& slice = slices[state->next_slice];
    const Plane& plane = part.group->planes[slice.plane];
    std::byte* at = into + slice.offset;
    GatherSlice(plane, part.view->planes[slice.plane], slice.layer, part.map, at);
    const uint64_t bytes = SliceBytes(plane, part.window.count);
    std::memset(at + bytes, 0, AlignSlice(bytes) - bytes);  // No stray memory reaches the disk.
  }
}

}  // namespace cairn::engine
