// SPDX-License-Identifier: Apache-2.0
//
// KV frames: one page slice [rows][channels] of KV elements. Packing is lossless; only
// QuantiseFrame, before it, loses anything. Rows are tokens, channels the elements of one (layer,
// plane, head) or of several heads side by side. Hundreds of rows and multiples of 64 channels suit
// the coder best; any shape works.
//
//   raw     the bytes as they are
//   const   all elements, or all rows, are equal: one of them
//   kv64    16-bit floats: 64 interleaved range coders (rANS) code the exponents, sign and mantissa
//           stay as they are. Two flags: a reference exponent per channel, and signs coded as
//           "differs from the row before". Both pay on K after rotary encoding, neither on V. A
//           third pads what lies before the raw lines, so that those begin at a multiple of four
//           bytes of the frame: a GPU loads them by the word. Frames without it are read as well.
//   int8    16-bit floats that are 8-bit multiples of a scale, as QuantiseFrame makes them
//
// The encoder estimates from a few rows whether the flags pay, and falls back to raw, so a frame
// never exceeds kFrameHeaderBytes plus the raw bytes. Layout, proofs of size and sources:
// base/codec/FORMAT.md.
//
// Pure functions, safe to call from any thread; nothing is allocated. Spans need no alignment and
// must not overlap. All paths write the same bytes and read each other's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cairn/model.h"
#include "cairn/status.h"

namespace cairn {

struct FrameShape {
  uint32_t rows = 0;      // 1 or more.
  uint32_t channels = 0;  // Elements in a row, 1 or more.
  Dtype dtype = Dtype::kOpaque;

  uint64_t raw_bytes() const { return uint64_t{rows} * channels * DtypeBytes(dtype); }
  bool operator==(const FrameShape&) const = default;
};

inline constexpr size_t kFrameHeaderBytes = 16;
inline constexpr uint64_t kMaxFrameRawBytes = uint64_t{1} << 30;

// On disk; never change.
enum class FrameCodec : uint8_t { kRaw = 0, kConst = 1, kKv64 = 2, kInt8 = 3 };
inline constexpr uint8_t kFrameChannelBase = 1;  // kv64: one reference exponent per channel.
inline constexpr uint8_t kFrameFoldedSigns = 2;  // kv64: sign XOR the sign of the row before.
inline constexpr uint8_t kFramePadded = 4;       // kv64: the raw lines begin at four bytes.
inline constexpr uint8_t kFrameRowScales = 1;    // int8: a scale for each row, not each channel.

// Which elements share a scale. K differs from channel to channel, V from token to token.
enum class FrameScales : uint8_t { kNone, kChannel, kRow };

struct FrameHeader {
  FrameCodec codec = FrameCodec::kRaw;
  uint8_t flags = 0;
  FrameShape shape{};
  uint32_t payload_bytes = 0;  // Bytes after the header.
};

// The code path. Asking for one that the processor lacks is a programmer's error.
enum class CodecPath : uint8_t { kScalar, kAvx512 };
bool CodecPathSupported(CodecPath path);
CodecPath BestCodecPath();
const char* CodecPathName(CodecPath path);  // "scalar" or "avx512".

struct FrameOptions {
  // Flags of kv64; nothing: those that the estimate chooses, and padded.
  std::optional<uint8_t> flags{};
  // With scales int8 is tried first: for elements that were quantised with the same scales.
  FrameScales scales = FrameScales::kNone;
  CodecPath path = BestCodecPath();
};

// Bytes that EncodeFrame needs at most. `shape` must have 1 to kMaxFrameRawBytes bytes.
size_t MaxFrameBytes(const FrameShape& shape);

// LOSSY: rounds the elements of a frame, in place, to 8-bit multiples of scales that are powers of
// two, as small as the largest magnitude allows. Every element moves by at most half its scale;
// zeros lose their sign. Calling it again changes nothing, also for some of the rows alone. False,
// and nothing is changed: an element is infinite, a NaN or (fp16) above 65280, or int8 would not be
// smaller than the raw bytes. `shape` must be of bf16 or f16, scales not kNone.
bool QuantiseFrame(const FrameShape& shape, FrameScales scales, std::span<std::byte> elements,
                   CodecPath path = BestCodecPath());

// Packs raw.size() == shape.raw_bytes() bytes into `out`, of MaxFrameBytes(shape) bytes or more;
// returns the length of the frame. Bytes of `out` behind it are clobbered.
size_t EncodeFrame(const FrameShape& shape, std::span<const std::byte> raw,
                   std::span<std::byte> out, const FrameOptions& options = {});

// kCorruption when the bytes cannot be a frame's header, kUnsupportedFormat for a codec id or
// version that this library does not know.
Result<FrameHeader> ReadFrameHeader(std::span<const std::byte> frame);

// The same for a frame of exactly this shape; also kCorruption when its payload has another length
// than the header says.
Result<FrameHeader> ReadFrameHeaderOf(const FrameShape& shape, std::span<const std::byte> frame);

// Unpacks a frame of exactly this shape into out.size() == shape.raw_bytes() bytes. Safe on any
// bytes: nothing outside the spans is touched, and a failure names what is wrong. After a failure
// `out` holds anything. Damage to raw bytes cannot be detected here; the frame's owner has a
// checksum for that.
Status DecodeFrame(const FrameShape& shape, std::span<const std::byte> frame,
                   std::span<std::byte> out, CodecPath path = BestCodecPath());

}  // namespace cairn
