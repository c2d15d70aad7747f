// SPDX-License-Identifier: Apache-2.0
//
// Frames of KV: any bytes are unpacked or refused, by both paths alike; any elements come back.
#include <cstdlib>
#include <vector>

#include "base/codec/kv_frame.h"
#include "base/core/check.h"
#include "fuzz/input.h"

using namespace cairn;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  const uint8_t how = input.Take<uint8_t>();
  const bool pack = how % 2 == 0;
  const bool large = how >= 240;  // Most are small, so that many are tried.
  FrameShape shape{.rows = 1 + input.Take<uint8_t>() % (large ? 96u : 20u),
                   .channels = 1 + input.Take<uint8_t>() % (large ? 200u : 70u),
                   .dtype = static_cast<Dtype>(input.Take<uint8_t>() % 8)};
  std::vector<std::byte> raw(shape.raw_bytes());
  const bool both = CodecPathSupported(CodecPath::kAvx512);
  if (!pack) {
    // In memory of its very length, so that a step too far is seen.
    const std::vector<std::byte> frame(input.rest().begin(), input.rest().end());
    static_cast<void>(ReadFrameHeader(frame));
    const Status scalar = DecodeFrame(shape, frame, raw, CodecPath::kScalar);
    if (!both) return 0;
    std::vector<std::byte> other(raw.size());
    const Status vector = DecodeFrame(shape, frame, other, CodecPath::kAvx512);
    CAIRN_CHECK(scalar.code() == vector.code());
    CAIRN_CHECK(!scalar.ok() || raw == other);
    return 0;
  }
  const auto given = input.rest();
  for (size_t i = 0; i < raw.size() && !given.empty(); ++i) raw[i] = given[i % given.size()];
  // What was quantised comes back as that.
  FrameScales scales = static_cast<FrameScales>(how / 2 % 3);
  const bool quantises = scales != FrameScales::kNone &&
                         (shape.dtype == Dtype::kBf16 || shape.dtype == Dtype::kF16) &&
                         QuantiseFrame(shape, scales, raw);
  if (!quantises) scales = FrameScales::kNone;
  std::vector<std::byte> frame(MaxFrameBytes(shape));
  frame.resize(EncodeFrame(shape, raw, frame, {.scales = scales, .path = CodecPath::kScalar}));
  if (both) {
    std::vector<std::byte> same(MaxFrameBytes(shape));
    same.resize(EncodeFrame(shape, raw, same, {.scales = scales, .path = CodecPath::kAvx512}));
    CAIRN_CHECK(same == frame);
  }
  std::vector<std::byte> back(raw.size());
  CAIRN_CHECK(DecodeFrame(shape, frame, back).ok());
  CAIRN_CHECK(back == raw);
  return 0;
}
