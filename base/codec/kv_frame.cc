// SPDX-License-Identifier: Apache-2.0
#include "base/codec/kv_frame.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/codec/int8.h"
#include "base/codec/kv64.h"
#include "base/core/check.h"
#include "base/core/cpu.h"
#include "base/core/mutation.h"

namespace cairn {
namespace {

constexpr uint8_t kFrameVersion = 0;
constexpr uint8_t kKv64Flags = kFrameChannelBase | kFrameFoldedSigns | kFramePadded;

// On disk.
struct StoredHeader {
  uint8_t codec;
  uint8_t flags;
  uint8_t dtype;
  uint8_t version;
  uint32_t rows;
  uint32_t channels;
  uint32_t payload_bytes;
};
static_assert(sizeof(StoredHeader) == kFrameHeaderBytes);

Status Damaged(const std::string& what) {
  return Status(StatusCode::kCorruption, "KV frame: " + what);
}

std::string Describe(const FrameShape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.channels) + " " +
         DtypeName(shape.dtype);
}

const internal::Kv64Loops& LoopsOf(CodecPath path) {
  CAIRN_CHECK(CodecPathSupported(path));
#if defined(__x86_64__)
  if (path == CodecPath::kAvx512) return internal::kAvx512Loops;
#endif
  return internal::kScalarLoops;
}

const internal::Int8Loops& Int8LoopsOf(CodecPath path) {
  CAIRN_CHECK(CodecPathSupported(path));
#if defined(__x86_64__)
  if (path == CodecPath::kAvx512) return internal::kAvx512Int8Loops;
#endif
  return internal::kScalarInt8Loops;
}

uint8_t KnownFlags(FrameCodec codec) {
  return codec == FrameCodec::kKv64 ? kKv64Flags : codec == FrameCodec::kInt8 ? kFrameRowScales : 0;
}

bool IsHalf(Dtype dtype) { return dtype == Dtype::kBf16 || dtype == Dtype::kF16; }

// Whether the bytes are their first `period` repeated.
bool Repeats(std::span<const std::byte> raw, size_t period) {
  return std::memcmp(raw.data(), raw.data() + period, raw.size() - period) == 0;
}

size_t ConstPeriod(const FrameShape& shape, std::span<const std::byte> raw) {
  const size_t element = DtypeBytes(shape.dtype);
  if (Repeats(raw, element)) return element;
  const size_t row = element * shape.channels;
  return shape.rows > 1 && Repeats(raw, row) ? row : 0;
}

bool CheckedShape(const FrameShape& shape) {
  return shape.rows > 0 && shape.channels > 0 && shape.rows <= kMaxFrameRawBytes / shape.channels &&
         shape.raw_bytes() <= kMaxFrameRawBytes;
}

Status DecodeConst(const FrameShape& shape, std::span<const std::byte> payload,
                   std::span<std::byte> out) {
  const size_t element = DtypeBytes(shape.dtype);
  const size_t period = payload.size();
  if (period != element && period != element * shape.channels) {
    return Damaged("a const frame of " + Describe(shape) + " has " + std::to_string(period) +
                   " payload bytes");
  }
  // Each copy doubles what stands there.
  std::memcpy(out.data(), payload.data(), period);
  for (size_t done = period; done < out.size();) {
    const size_t step = std::min(done, out.size() - done);
    std::memcpy(out.data() + done, out.data(), step);
    done += step;
  }
  return Status::Ok();
}

bool Int8Pays(const FrameShape& shape, FrameScales scales) {
  return internal::Int8PayloadBytes(shape, scales) < shape.raw_bytes();
}

}  // namespace

bool CodecPathSupported(CodecPath path) {
  return path == CodecPath::kScalar || CpuHasAvx512Vbmi2();
}

CodecPath BestCodecPath() {
  return CodecPathSupported(CodecPath::kAvx512) ? CodecPath::kAvx512 : CodecPath::kScalar;
}

const char* CodecPathName(CodecPath path) {
  return path == CodecPath::kAvx512 ? "avx512" : "scalar";
}

size_t MaxFrameBytes(const FrameShape& shape) {
  CAIRN_CHECK(CheckedShape(shape));
  return kFrameHeaderBytes + shape.raw_bytes();
}

bool QuantiseFrame(const FrameShape& shape, FrameScales scales, std::span<std::byte> elements,
                   CodecPath path) {
  CAIRN_CHECK(CheckedShape(shape) && elements.size() == shape.raw_bytes() && IsHalf(shape.dtype));
  return Int8Pays(shape, scales) &&
         internal::QuantiseElements(shape, scales, reinterpret_cast<uint8_t*>(elements.data()),
                                    Int8LoopsOf(path));
}

size_t EncodeFrame(const FrameShape& shape, std::span<const std::byte> raw,
                   std::span<std::byte> out, const FrameOptions& options) {
  CAIRN_CHECK(out.size() >= MaxFrameBytes(shape) && raw.size() == shape.raw_bytes());
  CAIRN_CHECK(options.scales == FrameScales::kNone || IsHalf(shape.dtype));
  FrameCodec codec = FrameCodec::kRaw;
  uint8_t flags = 0;
  std::byte* payload = out.data() + kFrameHeaderBytes;
  size_t payload_bytes = ConstPeriod(shape, raw);
  if (payload_bytes > 0) {
    codec = FrameCodec::kConst;
    std::memcpy(payload, raw.data(), payload_bytes);
  } else if (options.scales != FrameScales::kNone && Int8Pays(shape, options.scales) &&
             internal::EncodeInt8(shape, options.scales,
                                  reinterpret_cast<const uint8_t*>(raw.data()),
                                  reinterpret_cast<uint8_t*>(payload), Int8LoopsOf(options.path))) {
    codec = FrameCodec::kInt8;
    flags = options.scales == FrameScales::kRow ? kFrameRowScales : 0;
    payload_bytes = internal::Int8PayloadBytes(shape, options.scales);
  } else if (IsHalf(shape.dtype)) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(raw.data());
    const internal::Kv64Loops& loops = LoopsOf(options.path);
    flags =
        options.flags ? *options.flags : internal::ChooseFlags(shape, bytes, loops) | kFramePadded;
    CAIRN_CHECK((flags & ~kKv64Flags) == 0);
    payload_bytes = internal::EncodeKv64(shape, flags, bytes,
                                         {reinterpret_cast<uint8_t*>(payload), raw.size()}, loops);
    if (payload_bytes > 0) codec = FrameCodec::kKv64;
  }
  if (payload_bytes == 0) {
    flags = 0;
    payload_bytes = raw.size();
    std::memcpy(payload, raw.data(), raw.size());
  }
  const StoredHeader header{static_cast<uint8_t>(codec),
                            flags,
                            static_cast<uint8_t>(shape.dtype),
                            kFrameVersion,
                            shape.rows,
                            shape.channels,
                            static_cast<uint32_t>(payload_bytes)};
  std::memcpy(out.data(), &header, sizeof(header));
  return kFrameHeaderBytes + payload_bytes;
}

Result<FrameHeader> ReadFrameHeader(std::span<const std::byte> frame) {
  if (frame.size() < kFrameHeaderBytes) {
    return Damaged(std::to_string(frame.size()) + " bytes, a header takes " +
                   std::to_string(kFrameHeaderBytes));
  }
  StoredHeader stored;
  std::memcpy(&stored, frame.data(), sizeof(stored));
  if (stored.version != kFrameVersion) {
    return Status(StatusCode::kUnsupportedFormat,
                  "KV frame: version " + std::to_string(stored.version) + " is not known");
  }
  if (stored.codec > static_cast<uint8_t>(FrameCodec::kInt8)) {
    return Status(StatusCode::kUnsupportedFormat,
                  "KV frame: codec " + std::to_string(stored.codec) + " is not known");
  }
  const FrameHeader header{static_cast<FrameCodec>(stored.codec),
                           stored.flags,
                           {stored.rows, stored.channels, static_cast<Dtype>(stored.dtype)},
                           stored.payload_bytes};
  if (stored.dtype > static_cast<uint8_t>(Dtype::kU8)) {
    return Damaged("element type " + std::to_string(stored.dtype));
  }
  if (!CheckedShape(header.shape)) return Damaged("shape " + Describe(header.shape));
  const bool int8 = header.codec == FrameCodec::kInt8;
  if ((int8 || header.codec == FrameCodec::kKv64) && !IsHalf(header.shape.dtype)) {
    return Damaged(std::string(int8 ? "int8 of " : "kv64 of ") + DtypeName(header.shape.dtype));
  }
  if ((header.flags & ~KnownFlags(header.codec)) != 0) {
    return Damaged("flags " + std::to_string(header.flags) + " of codec " +
                   std::to_string(stored.codec));
  }
  return header;
}

Result<FrameHeader> ReadFrameHeaderOf(const FrameShape& shape, std::span<const std::byte> frame) {
  CAIRN_ASSIGN_OR_RETURN(const FrameHeader header, ReadFrameHeader(frame));
  if (header.shape != shape) {
    return Damaged("it holds " + Describe(header.shape) + ", expected is " + Describe(shape));
  }
  const size_t payload_bytes = frame.size() - kFrameHeaderBytes;
  if (CAIRN_KEPT(kLengthOfFramePayload) && header.payload_bytes != payload_bytes) {
    return Damaged("the header says " + std::to_string(header.payload_bytes) +
                   " payload bytes, there are " + std::to_string(payload_bytes));
  }
  return header;
}

Status DecodeFrame(const FrameShape& shape, std::span<const std::byte> frame,
                   std::span<std::byte> out, CodecPath path) {
  CAIRN_CHECK(CheckedShape(shape) && out.size() == shape.raw_bytes());
  CAIRN_ASSIGN_OR_RETURN(const FrameHeader header, ReadFrameHeaderOf(shape, frame));
  const std::span<const std::byte> payload = frame.subspan(kFrameHeaderBytes);
  switch (header.codec) {
    case FrameCodec::kConst: return DecodeConst(shape, payload, out);
    case FrameCodec::kKv64:
      return internal::DecodeKv64(
          shape, header.flags, {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()},
          reinterpret_cast<uint8_t*>(out.data()), LoopsOf(path));
    case FrameCodec::kInt8:
      return internal::DecodeInt8(
          shape, (header.flags & kFrameRowScales) != 0 ? FrameScales::kRow : FrameScales::kChannel,
          {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()},
          reinterpret_cast<uint8_t*>(out.data()), Int8LoopsOf(path));
    case FrameCodec::kRaw: break;
  }
  if (payload.size() != out.size()) {
    return Damaged("a raw frame of " + Describe(shape) + " has " + std::to_string(payload.size()) +
                   " payload bytes");
  }
  std::memcpy(out.data(), payload.data(), out.size());
  return Status::Ok();
}

}  // namespace cairn
