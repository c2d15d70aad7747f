// SPDX-License-Identifier: Apache-2.0
//
// exact. Decodes a kv64 frame (base/codec/FORMAT.md) by a warp: thread t has lanes 2t and 2t + 1 of
// both sets of coders. A line of each set is a step. Which lanes are refilled follows from their
// states alone, and votes then show where in the stream the byte of each lies: so no load waits for
// an earlier one.
#pragma once

#include <cstdint>

#include "base/codec/kv64.h"
#include "base/codec/kv_frame.h"
#include "gpu/kernels/copy_rows.h"
#include "gpu/kernels/paged_view.h"
#include "gpu/lane.h"

namespace cairn::gpu {

// The result of a frame. DecodeFrame of base/codec judges the same.
enum class Fault : uint32_t {
  kNone,
  kLength,      // The payload has another length than codec and shape say.
  kState,       // A coder starts below its lowest state.
  kModel,       // Frequencies do not sum to 256, or the padding is not zero.
  kStreamEnds,  // Within a line.
  kEscapesEnd,  // Within a line.
  kLeftOver,    // Stream, escapes or final states do not end as they must.
  kScale,       // int8: out of range.
  kCode,        // int8: -128.
  kTable,       // An entry of the block table leads out of the view.
};

// The table of slots, and places of rows.
inline constexpr uint32_t kKv64TableBytes = internal::kSlots * sizeof(uint32_t);

// A frame behind its header, which the host has read (gpu/describe.h).
struct FrameToScatter {
  const uint8_t* payload = nullptr;
  uint8_t* base = nullptr;  // The base of layer and head.
  WantedRows wanted{};
  uint32_t payload_bytes = 0;
  uint32_t rows = 0, channels = 0;
  uint32_t view = 0;  // Which.
  FrameCodec codec = FrameCodec::kRaw;
  uint8_t flags = 0;
  bool fp16 = false;
  uint8_t unit = 1;  // Alignment of all elements: 1 to 16.
};

template <bool kFp16, bool kFolded>
struct Kv64Decoder {
  static constexpr internal::Kv64Kind kKind{kFp16, kFolded};
  static constexpr uint32_t kPlanes = kFp16 ? (kFolded ? 2 : 3) : 0;
  static constexpr uint32_t kSymbols = kFolded ? internal::kMaxSymbols : internal::kDistances;
  static constexpr uint32_t kLanes = internal::kLanes;

  // A stripe, as internal::StripeAt cuts it.
  uint32_t lines, lanes, last_lanes, stripe_channels;
  bool carries, packed;
  uint32_t first_channel;
  uint32_t row_shift;  // packed: log2 of the channels.

  // The payload; offsets in it are half a pointer each, and registers are what is short.
  const uint8_t* payload;
  uint32_t stream, stream_end;
  uint32_t escapes, escapes_begin;
  uint32_t raw;        // Where the raw bits of the line begin.
  bool by_pairs;       // Elements are stored by two.
  uint32_t* slots;     // Shared: symbol, frequency << 8, place among the symbol's << 16.
  uint32_t reference;  // Shared by both lanes.
  uint32_t signs;      // Bits 0 and 1.
  uint32_t x[2][2];    // States by set and lane.

  CAIRN_GPU void CutStripe(const FrameToScatter& frame, uint32_t index, bool last) {
    if (packed) {
      const uint32_t elements = frame.rows * frame.channels;
      lines = (elements - 1) / kLanes + 1;
      last_lanes = elements - (lines - 1) * kLanes;
      lanes = lines > 1 ? kLanes : last_lanes;
      stripe_channels = frame.channels;
      first_channel = 0;
    } else {
      lines = frame.rows;
      first_channel = kLanes * index;
      const uint32_t left = frame.channels - first_channel;
      lanes = last_lanes = stripe_channels = left < kLanes ? left : kLanes;
    }
    carries = last;
  }
  CAIRN_GPU uint32_t LanesOf(uint32_t line) const { return line + 1 == lines ? last_lanes : lanes; }
  CAIRN_GPU bool Carried(uint32_t line) const { return carries && line + 2 >= lines; }

  CAIRN_GPU static uint32_t LineBytes(uint32_t lanes_of_line, bool carried) {
    const uint32_t groups = (lanes_of_line + 7) / 8;
    const uint32_t low = !kFp16 && kFolded ? 7 * groups : lanes_of_line;
    return (carried ? 0 : low) + kPlanes * groups;
  }
  // Bytes of a stripe that are stored raw.
  CAIRN_GPU uint32_t RawBytes() const {
    const uint32_t special = lines < 2 ? lines : 2;
    uint32_t bytes = (lines - special) * LineBytes(lanes, false);
    for (uint32_t line = lines - special; line < lines; ++line) {
      bytes += LineBytes(LanesOf(line), Carried(line));
    }
    return bytes;
  }

  // The value of lane `lane` of a line, of which this thread sees bytes 2t and 2t + 1 and the votes
  // of their top bits: 7-bit values lie in the low bits, those of the last lanes in the top bits.
  CAIRN_GPU static uint32_t SevenOf(uint32_t lane, uint32_t direct, uint32_t byte,
                                    const Votes<2>& tops) {
    if (lane < direct) return byte & 0x7f;
    uint32_t value = 0;
    CAIRN_UNROLL
    for (uint32_t i = 0; i < 7; ++i) {
      const uint32_t bit = 7 * (lane - direct) + i;
      value |= ((bit % 2 == 0 ? tops.of[0] : tops.of[1]) >> bit / 2 % kWarp & 1) << i;
    }
    return value;
  }

  // The raw bits of a line: low parts, and bit planes of this thread's lanes. Reads behind the
  // line's own bytes lie within the payload, whose states follow, and count for no lane of the
  // line.
  template <bool kFull, typename Lane>
  CAIRN_GPU void LoadRaw(const Lane& at, uint32_t width, bool carried, const uint32_t (&state)[2],
                         uint32_t (&low)[2], uint32_t* planes) const {
    const uint32_t t = at.lane();
    const uint8_t* const bytes = payload + raw;
    const uint32_t groups = kFull ? kLanes / 8 : (width + 7) / 8;
    const uint32_t direct = !kFp16 && kFolded ? 7 * groups : width;  // Bytes.
    if (carried) {
      low[0] = state[0] & 0xff;
      low[1] = state[1] & 0xff;
    } else {
      if (kFull && reinterpret_cast<uintptr_t>(bytes) % 2 == 0) {
        const uint32_t both = at.template Load<uint16_t>(bytes + 2 * t);
        low[0] = both & 0xff;
        low[1] = both >> 8;
      } else {
        low[0] = bytes[2 * t];
        low[1] = bytes[2 * t + 1];
      }
      if constexpr (!kFp16 && kFolded) {
        const Votes<2> tops = at.Ballots(Votes<2>{{low[0] >> 7, low[1] >> 7}});
        low[0] = SevenOf(2 * t, direct, low[0], tops);
        low[1] = SevenOf(2 * t + 1, direct, low[1], tops);
      }
    }
    if constexpr (kFp16) {
      const uint8_t* const plane = bytes + (carried ? 0 : direct);
      *planes = 0;
      CAIRN_UNROLL
      for (uint32_t p = 0; p < kPlanes; ++p) {
        // Bits 2t and 2t + 1 of the plane.
        *planes |= (uint32_t{plane[p * groups + t / 4]} >> 2 * t % 8 & 3) << 2 * p;
      }
    }
  }

  // The rest of a line after its states have gone on: exponents and elements.
  template <bool kFull, typename Lane>
  CAIRN_GPU Fault FinishLine(const Lane& at, uint32_t symbols, const uint32_t (&state)[2],
                             uint32_t line, uint32_t (&element)[2]) {
    const uint32_t t = at.lane();
    const uint32_t width = kFull ? kLanes : LanesOf(line);
    uint32_t low[2], planes = 0, exponent[2], escape[2];
    LoadRaw<kFull>(at, width, !kFull && Carried(line), state, low, &planes);
    CAIRN_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t symbol = symbols >> 8 * i & 0xff;
      const uint32_t distance = symbol % internal::kDistances;
      exponent[i] = ((reference >> 8 * i) - distance) & 0xff;
      escape[i] = distance == internal::kEscape && (kFull || 2 * t + i < width);
      if (kFolded) signs ^= symbol / internal::kDistances << i;
    }
    const Votes<2> escaped = at.Ballots(Votes<2>{{escape[0], escape[1]}});
    if ((escaped.of[0] | escaped.of[1]) != 0) {
      const uint32_t count = at.PopCount(escaped.of[0]) + at.PopCount(escaped.of[1]);
      if (count > escapes - escapes_begin) return Fault::kEscapesEnd;
      escapes -= count;
      const uint32_t rank =
          at.PopCount(escaped.of[0] & Below(t)) + at.PopCount(escaped.of[1] & Below(t));
      if (escape[0] != 0) exponent[0] = payload[escapes + rank];
      if (escape[1] != 0) exponent[1] = payload[escapes + rank + escape[0]];
    }
    CAIRN_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t folded = signs >> i & 1;
      if constexpr (kFp16) {
        const uint32_t bit8 = planes >> i & 1, bit9 = planes >> (2 + i) & 1;
        const uint32_t sign = kFolded ? folded : planes >> (4 + i) & 1;
        element[i] = low[i] | bit8 << 8 | bit9 << 9 | (exponent[i] & 31) << 10 | sign << 15;
      } else {
        const uint32_t sign = kFolded ? folded : low[i] >> 7;
        element[i] = (low[i] & 0x7f) | exponent[i] << 7 | sign << 15;
      }
    }
    return Fault::kNone;
  }

  template <typename Lane>
  CAIRN_GPU void StoreOne(const Lane& at, const PagedView* views, const FrameToScatter& frame,
                          const Places& places, uint32_t row, uint32_t channel,
                          uint32_t element) const {
    const int64_t place = places.Of(row);
    if (place == kNowhere) return;
    uint8_t* const there = frame.base + place + InRow(views[frame.view], 2 * channel);
    if (frame.unit >= 2) {
      at.Store(there, static_cast<uint16_t>(element));
    } else {
      there[0] = static_cast<uint8_t>(element);
      there[1] = static_cast<uint8_t>(element >> 8);
    }
  }

  template <bool kFull, typename Lane>
  CAIRN_GPU void StoreLine(const Lane& at, const PagedView* views, const FrameToScatter& frame,
                           const Places& places, uint32_t line,
                           const uint32_t (&element)[2]) const {
    const uint32_t lane = 2 * at.lane();
    const uint32_t at_element = line * kLanes + lane;  // packed: of the frame.
    const uint32_t row = packed ? at_element >> row_shift : line;
    const uint32_t channel = packed ? at_element & (stripe_channels - 1) : first_channel + lane;
    const uint32_t width = kFull ? kLanes : LanesOf(line);
    if (by_pairs) {
      if (!kFull && lane >= width) return;
      const int64_t place = places.Of(row);
      if (place == kNowhere) return;
      at.Store(frame.base + place + 2 * channel, element[0] | element[1] << 16);
      return;
    }
    const bool same_row = !packed || row_shift > 0;
    if (kFull || lane < width) StoreOne(at, views, frame, places, row, channel, element[0]);
    if (kFull || lane + 1 < width) {
      StoreOne(at, views, frame, places, same_row ? row : row + 1, same_row ? channel + 1 : channel,
               element[1]);
    }
  }

  // The rows that lines [line, line + count) hold parts of.
  template <typename Lane>
  CAIRN_GPU void NeedLines(const Lane& at, const PagedView* views, const FrameToScatter& frame,
                           Places& places, uint32_t line, uint32_t count) const {
    const uint32_t row = packed ? line * kLanes >> row_shift : line;
    const uint32_t end = packed ? (line + count) * kLanes >> row_shift : line + count;
    places.Need(at, views[frame.view], frame.wanted, row, end);
  }

  // `kCount` lines from `line` on, each of another set: one, or two full ones that are not carried.
  template <uint32_t kCount, typename Lane>
  CAIRN_GPU Fault Lines(const Lane& at, const PagedView* views, const FrameToScatter& frame,
                        Places& places, uint32_t line) {
    constexpr bool kFull = kCount == 2;
    const uint32_t t = at.lane();
    uint32_t symbols = 0, y[kCount][2];  // A byte for each line and lane.
    Votes<2 * kCount> refills;
    NeedLines(at, views, frame, places, line, kCount);
    const uint32_t width = kFull ? kLanes : LanesOf(line);
    CAIRN_UNROLL
    for (uint32_t n = 0; n < kCount; ++n) {
      CAIRN_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t state = kFull ? x[n][i] : line % 2 == 0 ? x[0][i] : x[1][i];
        const uint32_t slot = slots[state & 0xff];
        symbols |= (slot & 0xff) << 8 * (2 * n + i);
        y[n][i] = (slot >> 8 & 0xff) * (state >> 8) + (slot >> 16);
        const bool active = kFull || 2 * t + i < width;
        refills.of[2 * n + i] = active && y[n][i] < internal::kLowState;
        if (!active) y[n][i] = state;
      }
    }
    const Votes<2 * kCount> votes = at.Ballots(refills);
    CAIRN_UNROLL
    for (uint32_t n = 0; n < kCount; ++n) {
      const uint32_t first = votes.of[2 * n], second = votes.of[2 * n + 1];
      const uint32_t taken = at.PopCount(first) + at.PopCount(second);
      if (taken > stream_end - stream) return Fault::kStreamEnds;
      const uint32_t rank = at.PopCount(first & Below(t)) + at.PopCount(second & Below(t));
      const uint32_t refill = first >> t & 1;
      if (refill != 0) y[n][0] = y[n][0] << 8 | payload[stream + rank];
      if ((second >> t & 1) != 0) y[n][1] = y[n][1] << 8 | payload[stream + rank + refill];
      stream += taken;
      CAIRN_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        if (kFull || line % 2 == 0) x[kFull ? n : 0][i] = y[n][i];
        if (!kFull && line % 2 == 1) x[1][i] = y[n][i];
      }
      uint32_t element[2];
      const Fault fault = FinishLine<kFull>(at, symbols >> 16 * n, y[n], line + n, element);
      if (fault != Fault::kNone) return fault;
      StoreLine<kFull>(at, views, frame, places, line + n, element);
      raw += LineBytes(kFull ? kLanes : LanesOf(line), !kFull && Carried(line));
    }
    return Fault::kNone;
  }

  // Each thread has a symbol; a scan gives where its slots begin.
  template <typename Lane>
  CAIRN_GPU Fault ReadModel(const Lane& at, const uint8_t* model, uint32_t references) {
    const uint32_t t = at.lane();
    const uint32_t frequency = t < kSymbols ? model[references + t] : 0;
    uint32_t end = frequency;
    CAIRN_UNROLL
    for (uint32_t step = 1; step < kWarp; step *= 2) {
      const uint32_t before = at.Shuffle(end, t - step);
      if (t >= step) end += before;
    }
    if (at.Shuffle(end, kWarp - 1) != internal::kSlots) return Fault::kModel;
    at.SyncWarp();  // All are done with the table before.
    for (uint32_t i = 0; i < frequency; ++i) {
      slots[end - frequency + i] = t | frequency << 8 | i << 16;
    }
    at.SyncWarp();
    // Idle lanes get one too; it does not matter which.
    reference = model[2 * t % references] | uint32_t{model[(2 * t + 1) % references]} << 8;
    signs = 0;
    return Fault::kNone;
  }

  // The parts of the payload, and the states that the coders start with.
  template <typename Lane>
  CAIRN_GPU Fault ReadStates(const Lane& at, const FrameToScatter& frame, uint32_t fixed) {
    const uint8_t* const p = payload;
    if (frame.payload_bytes < fixed + internal::kStateBytes) return Fault::kLength;
    const uint32_t escape_count = p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24;
    if (escape_count > frame.payload_bytes - fixed - internal::kStateBytes) return Fault::kLength;
    escapes_begin = fixed;
    escapes = escapes_begin + escape_count;
    stream = escapes + internal::kStateBytes;
    stream_end = frame.payload_bytes;
    bool low = false;
    CAIRN_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint8_t* const states = p + escapes + 2 * kLanes * (i / 2) + 2 * at.lane() + i % 2;
      x[i / 2][i % 2] = states[0] | uint32_t{states[kLanes]} << 8;
      low = low || x[i / 2][i % 2] < internal::kLowState;
    }
    return at.Ballot(low) != 0 ? Fault::kState : Fault::kNone;
  }

  // Everything is read, and the coders are where the encoder began; for the last stripe.
  template <typename Lane>
  CAIRN_GPU Fault CheckEnd(const Lane& at) const {
    bool left = stream != stream_end || escapes != escapes_begin;
    CAIRN_UNROLL
    for (uint32_t set = 0; set < 2; ++set) {
      // How far from the end its last line is; a set without lines ends as it began.
      const uint32_t from_end = (lines + set) % 2 == 0 ? 2 : 1;
      const uint32_t width = from_end > lines ? 0 : LanesOf(lines - from_end);
      CAIRN_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t largest = 2 * at.lane() + i >= width ? 0 : !kFp16 && kFolded ? 0x7f : 0xff;
        left = left || x[set][i] >> 8 != 1 || (x[set][i] & 0xff) > largest;
      }
    }
    return at.Ballot(left) != 0 ? Fault::kLeftOver : Fault::kNone;
  }

  template <typename Lane>
  CAIRN_GPU Fault Run(const Lane& at, const PagedView* views, const FrameToScatter& frame,
                      uint32_t* table, Places& places) {
    slots = table;
    payload = frame.payload;
    by_pairs = frame.channels % 2 == 0 && frame.unit >= 4 && views[frame.view].element_stride == 0;
    packed = kLanes % frame.channels == 0;
    row_shift = at.BitWidth(frame.channels) - 1;
    const uint32_t stripes = (frame.channels - 1) / kLanes + 1;
    const bool channel_base = (frame.flags & kFrameChannelBase) != 0;
    const uint32_t references = channel_base ? frame.channels : stripes;
    const uint32_t models = references + stripes * kSymbols;
    const uint32_t padding =
        (frame.flags & kFramePadded) != 0 ? (0u - models) % 4 : 0;  // Behind four bytes.
    CutStripe(frame, 0, false);
    uint32_t raw_bytes = (stripes - 1) * RawBytes();
    CutStripe(frame, stripes - 1, true);
    raw_bytes += RawBytes();
    uint32_t model = 4;
    raw = model + models + padding;
    Fault fault = ReadStates(at, frame, raw + raw_bytes);
    if (fault != Fault::kNone) return fault;
    for (uint32_t i = 1; i <= padding; ++i) {
      if (payload[raw - i] != 0) return Fault::kModel;
    }
    for (uint32_t stripe = 0; stripe < stripes; ++stripe) {
      CutStripe(frame, stripe, stripe + 1 == stripes);
      const uint32_t stripe_references = channel_base ? stripe_channels : 1;
      fault = ReadModel(at, payload + model, stripe_references);
      if (fault != Fault::kNone) return fault;
      model += stripe_references + kSymbols;
      // Lines that take all lanes and are not carried, by two.
      const uint32_t special = carries ? 2 : last_lanes < lanes ? 1 : 0;
      const uint32_t plain = lanes < kLanes || lines < special ? 0 : (lines - special) / 2 * 2;
      for (uint32_t line = 0; line < lines;) {
        fault = line < plain ? Lines<2>(at, views, frame, places, line)
                             : Lines<1>(at, views, frame, places, line);
        if (fault != Fault::kNone) return fault;
        line += line < plain ? 2 : 1;
      }
    }
    return CheckEnd(at);
  }
};

}  // namespace cairn::gpu
