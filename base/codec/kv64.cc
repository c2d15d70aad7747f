// SPDX-License-Identifier: Apache-2.0
#include "base/codec/kv64.h"

#include <algorithm>
#include <string>

#include "base/core/align.h"

namespace cairn::internal {
namespace {

constexpr size_t kEscapeCountBytes = 4;
// The alignment of the raw lines in padded frames. The header is a multiple of it.
constexpr size_t kRawPlaneAlignment = 4;
static_assert(kFrameHeaderBytes % kRawPlaneAlignment == 0);

Status Damaged(const std::string& what) {
  return Status(StatusCode::kCorruption, "KV frame: kv64: " + what);
}

Kv64Kind KindOf(const FrameShape& shape, uint8_t flags) {
  return {shape.dtype == Dtype::kF16, (flags & kFrameFoldedSigns) != 0};
}

size_t SymbolCount(Kv64Kind kind) { return kind.folded ? kMaxSymbols : kDistances; }

// References and frequencies of one stripe.
size_t ModelBytes(const Stripe& stripe, uint8_t flags, Kv64Kind kind) {
  return ((flags & kFrameChannelBase) != 0 ? stripe.channels : 1) + SymbolCount(kind);
}

uint8_t* WriteModel(const Stripe& stripe, uint8_t flags, Kv64Kind kind, const StripeModel& model,
                    uint8_t* to) {
  const size_t references = ModelBytes(stripe, flags, kind) - SymbolCount(kind);
  std::memcpy(to, model.reference.data(), references);
  std::memcpy(to + references, model.frequency.data(), SymbolCount(kind));
  return to + references + SymbolCount(kind);
}

StripeModel ReadModel(const Stripe& stripe, uint8_t flags, Kv64Kind kind, const uint8_t* from) {
  StripeModel model;
  const size_t references = ModelBytes(stripe, flags, kind) - SymbolCount(kind);
  // Idle lanes get any value; packed rows have a power of two of channels.
  std::memcpy(model.reference.data(), from, references);
  for (size_t done = references; done < kLanes; done += references) {
    std::memcpy(model.reference.data() + done, from, std::min(references, kLanes - done));
  }
  std::memcpy(model.frequency.data(), from + references, SymbolCount(kind));
  return model;
}

// Sizes of the parts of a payload, except escapes and stream.
struct Layout {
  size_t models = 0, padding = 0, raw_plane = 0;

  size_t fixed() const { return kEscapeCountBytes + models + padding + raw_plane; }
};

Layout LayoutOf(const FrameShape& shape, uint8_t flags) {
  const Kv64Kind kind = KindOf(shape, flags);
  Layout layout;
  for (uint32_t i = 0; i < StripeCount(shape); ++i) {
    const Stripe stripe = StripeAt(shape, i);
    layout.models += ModelBytes(stripe, flags, kind);
    layout.raw_plane += stripe.RawBytes(kind);
  }
  if ((flags & kFramePadded) != 0) {
    const size_t end = kEscapeCountBytes + layout.models;
    layout.padding = AlignUp(end, kRawPlaneAlignment) - end;
  }
  return layout;
}

}  // namespace

uint32_t StripeCount(const FrameShape& shape) { return (shape.channels - 1) / kLanes + 1; }

Stripe StripeAt(const FrameShape& shape, uint32_t index) {
  Stripe stripe;
  if (kLanes % shape.channels == 0) {
    const uint64_t elements = uint64_t{shape.rows} * shape.channels;
    stripe.line_stride = 2 * kLanes;
    stripe.lines = static_cast<uint32_t>((elements - 1) / kLanes + 1);
    stripe.last_lanes = static_cast<uint32_t>(elements - uint64_t{stripe.lines - 1} * kLanes);
    stripe.lanes = stripe.lines > 1 ? kLanes : stripe.last_lanes;
    stripe.channels = shape.channels;
  } else {
    stripe.first_byte = size_t{2} * kLanes * index;
    stripe.line_stride = size_t{2} * shape.channels;
    stripe.lines = shape.rows;
    stripe.lanes = stripe.last_lanes = std::min(kLanes, shape.channels - kLanes * index);
    stripe.channels = stripe.lanes;
  }
  stripe.carries = index + 1 == StripeCount(shape);
  return stripe;
}

size_t EncodeKv64(const FrameShape& shape, uint8_t flags, const uint8_t* raw,
                  std::span<uint8_t> out, const Kv64Loops& loops) {
  const Kv64Kind kind = KindOf(shape, flags);
  const Layout layout = LayoutOf(shape, flags);
  const size_t fixed = layout.fixed();
  if (fixed + kStateBytes + kEncodeSlack > out.size()) return 0;

  uint8_t* const models = out.data() + kEscapeCountBytes;
  uint8_t* const raw_plane = models + layout.models + layout.padding;
  uint8_t* const escapes = raw_plane + layout.raw_plane;
  uint8_t* const end = out.data() + out.size();
  const uint32_t stripes = StripeCount(shape);

  // The decoder ends in these states: they carry bytes for free.
  EncodeState state{.stream = end, .escapes = escapes};
  for (CoderSet& set : state.sets) set.high.fill(kLowState >> 8);
  const Stripe last = StripeAt(shape, stripes - 1);
  for (uint32_t line = last.lines - std::min(last.lines, kSets); line < last.lines; ++line) {
    const uint8_t* elements = raw + last.first_byte + line * last.line_stride;
    for (uint32_t lane = 0; lane < last.LanesOf(line); ++lane) {
      state.sets[line % kSets].low[lane] = LowPartOf(kind, LoadElement(elements + 2 * lane));
    }
  }

  std::fill_n(raw_plane - layout.padding, layout.padding, uint8_t{0});
  // The decoder runs forwards, so everything runs backwards here; models and raw planes have fixed
  // places.
  uint8_t* model_end = models + layout.models;
  uint8_t* raw_end = raw_plane + layout.raw_plane;
  for (uint32_t i = stripes; i-- > 0;) {
    const Stripe stripe = StripeAt(shape, i);
    const uint8_t* elements = raw + stripe.first_byte;
    const StripeModel model =
        MakeModel(stripe, kind, (flags & kFrameChannelBase) != 0, elements, loops);
    model_end -= ModelBytes(stripe, flags, kind);
    WriteModel(stripe, flags, kind, model, model_end);
    raw_end -= stripe.RawBytes(kind);
    if (!loops.encode(kind, elements, stripe, model, raw_end, &state)) return 0;
  }
  if (state.stream - state.escapes < static_cast<ptrdiff_t>(kStateBytes)) return 0;
  state.stream -= kStateBytes;
  for (uint32_t i = 0; i < kSets; ++i) {
    std::memcpy(state.stream + 2 * kLanes * i, state.sets[i].low.data(), kLanes);
    std::memcpy(state.stream + 2 * kLanes * i + kLanes, state.sets[i].high.data(), kLanes);
  }

  const auto escape_count = static_cast<uint32_t>(state.escapes - escapes);
  std::memcpy(out.data(), &escape_count, kEscapeCountBytes);
  const auto stream_bytes = static_cast<size_t>(end - state.stream);
  std::memmove(state.escapes, state.stream, stream_bytes);
  const size_t size = fixed + escape_count + stream_bytes;
  return size < out.size() ? size : 0;
}

Status DecodeKv64(const FrameShape& shape, uint8_t flags, std::span<const uint8_t> payload,
                  uint8_t* out, const Kv64Loops& loops) {
  const Kv64Kind kind = KindOf(shape, flags);
  const Layout layout = LayoutOf(shape, flags);
  const size_t fixed = layout.fixed();
  if (payload.size() < fixed + kStateBytes) {
    return Damaged(std::to_string(payload.size()) + " payload bytes, the shape needs " +
                   std::to_string(fixed + kStateBytes));
  }
  uint32_t escape_count;
  std::memcpy(&escape_count, payload.data(), kEscapeCountBytes);
  if (escape_count > payload.size() - fixed - kStateBytes) {
    return Damaged(std::to_string(escape_count) + " escapes pass the end of the payload");
  }
  const uint8_t* model_at = payload.data() + kEscapeCountBytes;
  const uint8_t* raw_at = model_at + layout.models;
  for (size_t i = 0; i < layout.padding; ++i) {
    if (*raw_at++ != 0) return Damaged("the padding is not zero");
  }
  DecodeState state;
  state.escapes_begin = raw_at + layout.raw_plane;
  state.escapes = state.escapes_begin + escape_count;
  state.stream = state.escapes + kStateBytes;
  state.stream_end = payload.data() + payload.size();
  for (uint32_t i = 0; i < kSets; ++i) {
    CoderSet& set = state.sets[i];
    std::memcpy(set.low.data(), state.escapes + 2 * kLanes * i, kLanes);
    std::memcpy(set.high.data(), state.escapes + 2 * kLanes * i + kLanes, kLanes);
    // From states of kLowState or more, each step makes such states again.
    if (std::memchr(set.high.data(), 0, kLanes) != nullptr) {
      return Damaged("a coder starts below its lowest state");
    }
  }

  for (uint32_t i = 0; i < StripeCount(shape); ++i) {
    const Stripe stripe = StripeAt(shape, i);
    const StripeModel model = ReadModel(stripe, flags, kind, model_at);
    uint32_t sum = 0;
    for (const uint8_t frequency : model.frequency) sum += frequency;
    if (sum != kSlots) {
      return Damaged("the frequencies of stripe " + std::to_string(i) + " sum to " +
                     std::to_string(sum));
    }
    const DecodeFault fault =
        loops.decode(kind, out + stripe.first_byte, stripe, model, raw_at, &state);
    if (fault != DecodeFault::kNone) {
      return Damaged((fault == DecodeFault::kStreamEnds ? "the stream" : "the list of escapes") +
                     std::string(" ends within stripe ") + std::to_string(i));
    }
    model_at += ModelBytes(stripe, flags, kind);
    raw_at += stripe.RawBytes(kind);
  }

  if (state.stream != state.stream_end) {
    return Damaged(std::to_string(state.stream_end - state.stream) + " bytes of stream are left");
  }
  if (state.escapes != state.escapes_begin) {
    return Damaged(std::to_string(state.escapes - state.escapes_begin) + " escapes are left");
  }
  const Stripe last = StripeAt(shape, StripeCount(shape) - 1);
  for (uint32_t line = 0; line < kSets; ++line) {
    // For the two last lines; a set without a line ends as it began.
    const CoderSet& set = state.sets[(last.lines + line) % kSets];
    const uint32_t from_end = kSets - line;
    const uint32_t lanes = from_end > last.lines ? 0 : last.LanesOf(last.lines - from_end);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint8_t largest = lane >= lanes ? 0 : !kind.fp16 && kind.folded ? 0x7f : 0xff;
      if (set.high[lane] != kLowState >> 8 || set.low[lane] > largest) {
        return Damaged("coder " + std::to_string(lane) + " does not end in its initial state");
      }
    }
  }
  return Status::Ok();
}

}  // namespace cairn::internal
