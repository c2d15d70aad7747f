// SPDX-License-Identifier: Apache-2.0
//
// Frames of KV: any bytes are unpacked or refused, by both paths alike, also those of a whole frame
// in which some were changed; any elements come back.
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "base/codec/kv_frame.h"
#include "base/core/check.h"
#include "fuzz/input.h"

using namespace cairn;

namespace {

struct Whole {
  FrameShape shape;
  std::vector<std::byte> frame;
};

// Frames of every codec and of every way of kv64.
std::vector<Whole> MakeWhole() {
  std::vector<Whole> whole;
  const FrameShape shape{.rows = 33, .channels = 40, .dtype = Dtype::kBf16};
  for (uint32_t kind = 0; kind < 8; ++kind) {
    std::vector<std::byte> raw(shape.raw_bytes());
    uint32_t state = 12345;
    for (size_t i = 0; i < raw.size(); i += 2) {  // Exponents of a few values, mantissas of many.
      state = state * 1664525 + 1013904223;
      const uint32_t element = (state >> 16 & 0x807f) | (0x3f00 + ((state >> 8 & 3) << 7));
      raw[i] = static_cast<std::byte>(element);
      raw[i + 1] = static_cast<std::byte>(element >> 8);
    }
    FrameOptions options;
    if (kind < 4) options.flags = static_cast<uint8_t>(kind);
    if (kind == 4) raw.assign(raw.size(), std::byte{7});
    if (kind == 5 || kind == 6) {
      options.scales = kind == 5 ? FrameScales::kChannel : FrameScales::kRow;
      CAIRN_CHECK(QuantiseFrame(shape, options.scales, raw));
    }
    if (kind == 7) {
      for (std::byte& byte : raw) byte = static_cast<std::byte>((state = state * 69069 + 1) >> 24);
    }
    std::vector<std::byte> frame(MaxFrameBytes(shape));
    frame.resize(EncodeFrame(shape, raw, frame, options));
    whole.push_back({shape, std::move(frame)});
  }
  return whole;
}

void Decode(const FrameShape& shape, std::span<const std::byte> given) {
  // In memory of its very length, so that a step too far is seen.
  const std::vector<std::byte> frame(given.begin(), given.end());
  static_cast<void>(ReadFrameHeader(frame));
  std::vector<std::byte> raw(shape.raw_bytes());
  const Status scalar = DecodeFrame(shape, frame, raw, CodecPath::kScalar);
  if (!CodecPathSupported(CodecPath::kAvx512)) return;
  std::vector<std::byte> other(raw.size());
  const Status vector = DecodeFrame(shape, frame, other, CodecPath::kAvx512);
  CAIRN_CHECK(scalar.code() == vector.code());
  CAIRN_CHECK(!scalar.ok() || raw == other);
}

void EncodeAndDecode(const FrameShape& shape, FrameScales scales,
                     std::span<const std::byte> given) {
  std::vector<std::byte> raw(shape.raw_bytes());
  for (size_t i = 0; i < raw.size() && !given.empty(); ++i) raw[i] = given[i % given.size()];
  // Quantised elements come back as such.
  const bool quantises = scales != FrameScales::kNone &&
                         (shape.dtype == Dtype::kBf16 || shape.dtype == Dtype::kF16) &&
                         QuantiseFrame(shape, scales, raw);
  if (!quantises) scales = FrameScales::kNone;
  std::vector<std::byte> frame(MaxFrameBytes(shape));
  frame.resize(EncodeFrame(shape, raw, frame, {.scales = scales, .path = CodecPath::kScalar}));
  if (CodecPathSupported(CodecPath::kAvx512)) {
    std::vector<std::byte> same(MaxFrameBytes(shape));
    same.resize(EncodeFrame(shape, raw, same, {.scales = scales, .path = CodecPath::kAvx512}));
    CAIRN_CHECK(same == frame);
  }
  std::vector<std::byte> back(raw.size());
  CAIRN_CHECK(DecodeFrame(shape, frame, back).ok());
  CAIRN_CHECK(back == raw);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const std::vector<Whole> all = MakeWhole();
  fuzz::Input input(data, bytes);
  const uint8_t how = input.Take<uint8_t>();
  if (how % 2 == 1) {  // Each three bytes of the input change one.
    const auto& [shape, whole] = all[how / 2 % all.size()];
    std::vector<std::byte> frame = whole;
    while (!input.empty()) {
      const uint64_t at = input.Take<uint16_t>() % frame.size();
      frame[at] ^= input.Take<std::byte>();
    }
    Decode(shape, frame);
    return 0;
  }
  const bool large = how >= 240;  // Most are small, so that many are tried.
  FrameShape shape{.rows = 1 + input.Take<uint8_t>() % (large ? 96u : 20u),
                   .channels = 1 + input.Take<uint8_t>() % (large ? 200u : 70u),
                   .dtype = static_cast<Dtype>(input.Take<uint8_t>() % 8)};
  if (how % 16 == 0) {  // A decoder is what this is about.
    EncodeAndDecode(shape, static_cast<FrameScales>(how / 16 % 3), input.rest());
  } else {
    Decode(shape, input.rest());
  }
  return 0;
}
