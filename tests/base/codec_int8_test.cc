// SPDX-License-Identifier: Apache-2.0
//
// Property: quantising moves no element by more than half its scale, which is at most 1/127 of the
// largest magnitude that shares it; what was quantised once never changes again, whole or in part,
// and is packed as int8 bit for bit; what cannot be quantised is left alone; all code paths agree.
// Method: every 16-bit float under every scale; model-like and special values in shapes around the
// borders of runs; the bound computed again in double; damage as for the other codecs.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "base/codec/int8.h"
#include "base/codec/kv_frame.h"
#include "tests/base/kv_samples.h"

namespace cairn {
namespace {

using testing::Content;
using testing::ContentName;
using testing::kContents;
using testing::MakeElements;
using Bytes = std::vector<std::byte>;

std::vector<CodecPath> Paths() {
  std::vector<CodecPath> paths = {CodecPath::kScalar};
  if (CodecPathSupported(CodecPath::kAvx512)) paths.push_back(CodecPath::kAvx512);
  return paths;
}

double ValueOf(Dtype dtype, uint16_t bits) {
  const int mantissa_bits = dtype == Dtype::kF16 ? 10 : 7;
  const int lowest = dtype == Dtype::kF16 ? -24 : -133;
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, lowest)
                               : std::ldexp(mantissa + (1 << mantissa_bits), lowest + exponent - 1);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

uint16_t ElementAt(const Bytes& bytes, size_t index) {
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + 2 * index, 2);
  return bits;
}

bool IsFinite(Dtype dtype, uint16_t bits) {
  return (bits & 0x7fff) < (dtype == Dtype::kF16 ? 0x7c00 : 0x7f80);
}

// Model-like content without what keeps a frame from being quantised.
Bytes Finite(const FrameShape& shape, Content content, uint64_t seed) {
  Bytes bytes = MakeElements(shape, content, seed);
  for (size_t i = 0; 2 * i < bytes.size(); ++i) {
    const uint16_t bits = ElementAt(bytes, i);
    if (IsFinite(shape.dtype, bits) && std::abs(ValueOf(shape.dtype, bits)) < 65000) continue;
    if (shape.dtype == Dtype::kBf16 && IsFinite(shape.dtype, bits)) continue;
    std::memset(bytes.data() + 2 * i, 0, 2);
  }
  return bytes;
}

// On all paths, which must agree.
bool Quantise(const FrameShape& shape, FrameScales scales, Bytes* elements) {
  const Bytes before = *elements;
  bool first = false;
  for (const CodecPath path : Paths()) {
    Bytes mine = before;
    const bool done = QuantiseFrame(shape, scales, mine, path);
    EXPECT_TRUE(done || before == mine) << "refused, but changed";
    if (path == CodecPath::kScalar) {
      first = done;
      *elements = mine;
    }
    EXPECT_EQ(first, done) << CodecPathName(path);
    EXPECT_EQ(*elements, mine) << CodecPathName(path);
  }
  return first;
}

// On all paths, which must agree and read each other's.
Bytes Encode(const FrameShape& shape, FrameScales scales, const Bytes& elements) {
  Bytes first;
  for (const CodecPath path : Paths()) {
    Bytes frame(MaxFrameBytes(shape));
    frame.resize(EncodeFrame(shape, elements, frame, {.scales = scales, .path = path}));
    if (first.empty()) first = frame;
    EXPECT_EQ(first, frame) << CodecPathName(path);
    Bytes back(elements.size(), std::byte{0x5a});
    const Status status = DecodeFrame(shape, frame, back, path);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(elements, back) << CodecPathName(path);
  }
  return first;
}

const FrameShape kShapes[] = {
    {2, 1, Dtype::kBf16},    {2, 2, Dtype::kF16},    {3, 31, Dtype::kBf16}, {17, 33, Dtype::kF16},
    {256, 64, Dtype::kBf16}, {64, 128, Dtype::kF16}, {5, 65, Dtype::kBf16}, {40, 200, Dtype::kBf16},
    {1, 300, Dtype::kF16},   {300, 1, Dtype::kBf16}};

TEST(Int8Test, NoElementMovesByMoreThanHalfItsScale) {
  int quantised = 0;
  for (const FrameShape& shape : kShapes) {
    for (const Content content : kContents) {
      for (const FrameScales scales : {FrameScales::kChannel, FrameScales::kRow}) {
        SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.channels) + " " +
                     DtypeName(shape.dtype) + " " + ContentName(content) +
                     (scales == FrameScales::kRow ? " by row" : " by channel"));
        const Bytes raw = Finite(shape, content, 1);
        Bytes rounded = raw;
        const size_t shared = scales == FrameScales::kRow ? shape.rows : shape.channels;
        if (shared + size_t{shape.rows} * shape.channels >= shape.raw_bytes()) {
          EXPECT_FALSE(Quantise(shape, scales, &rounded)) << "int8 would not be smaller";
          continue;
        }
        ASSERT_TRUE(Quantise(shape, scales, &rounded));
        ++quantised;
        std::vector<double> largest(shared);
        const auto share = [&](size_t i) {
          return scales == FrameScales::kRow ? i / shape.channels : i % shape.channels;
        };
        const size_t count = size_t{shape.rows} * shape.channels;
        for (size_t i = 0; i < count; ++i) {
          const double magnitude = std::abs(ValueOf(shape.dtype, ElementAt(raw, i)));
          largest[share(i)] = std::max(largest[share(i)], magnitude);
        }
        for (size_t i = 0; i < count; ++i) {
          const double moved = std::abs(ValueOf(shape.dtype, ElementAt(raw, i)) -
                                        ValueOf(shape.dtype, ElementAt(rounded, i)));
          ASSERT_LE(moved, largest[share(i)] / 127) << i;
        }
        // Again, and on some rows alone.
        Bytes again = rounded;
        Quantise(shape, scales, &again);
        ASSERT_EQ(rounded, again);
        for (const uint32_t rows : {1u, shape.rows / 2, shape.rows - 1}) {
          if (rows == 0) continue;
          const FrameShape part{rows, shape.channels, shape.dtype};
          const auto begin = rounded.begin() +
                             static_cast<ptrdiff_t>(part.raw_bytes() / rows * (shape.rows - rows));
          const Bytes cut(begin, begin + static_cast<ptrdiff_t>(part.raw_bytes()));
          Bytes cut_again = cut;
          Quantise(part, scales, &cut_again);
          ASSERT_EQ(cut, cut_again) << rows << " rows";
        }
        const Bytes frame = Encode(shape, scales, rounded);
        const FrameCodec codec = ReadFrameHeader(frame)->codec;
        EXPECT_TRUE(codec == FrameCodec::kInt8 || codec == FrameCodec::kConst);
        const size_t int8_bytes = kFrameHeaderBytes + shared + count;
        EXPECT_TRUE(codec != FrameCodec::kInt8 || frame.size() == int8_bytes) << frame.size();
      }
    }
  }
  EXPECT_GT(quantised, 90);
}

// Every finite element beside every largest one: the nearest multiple, ties to even.
TEST(Int8Test, EveryFloatUnderEveryScale) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16}) {
    const FrameShape shape{256, 64, dtype};
    const int mantissa_bits = dtype == Dtype::kF16 ? 10 : 7;
    const int lowest = dtype == Dtype::kF16 ? -24 : -133;
    for (uint32_t exponent = 0; exponent < (0x7fffu >> mantissa_bits); ++exponent) {
      // The first row of each channel is the largest; the others are below it.
      const uint32_t end = (exponent + 1) << mantissa_bits;
      const uint32_t span = std::min(end, 14u << mantissa_bits);
      Bytes raw(shape.raw_bytes());
      for (uint32_t i = 0; i < shape.rows * shape.channels; ++i) {
        const uint32_t top = end - 1 - (i % shape.channels) * ((1u << mantissa_bits) / 64);
        uint32_t bits = i < shape.channels ? top : top - (i * 7919) % std::min(span, top + 1);
        if (dtype == Dtype::kF16 && bits > 0x7bf8) bits = 0x7bf8;  // 65280
        if (i % 3 == 1) bits |= 0x8000;
        const auto element = static_cast<uint16_t>(bits);
        std::memcpy(raw.data() + size_t{2} * i, &element, 2);
      }
      Bytes rounded = raw;
      ASSERT_TRUE(Quantise(shape, FrameScales::kChannel, &rounded)) << exponent;
      Encode(shape, FrameScales::kChannel, rounded);
      for (uint32_t channel = 0; channel < shape.channels; ++channel) {
        const double top = std::abs(ValueOf(dtype, ElementAt(raw, channel)));
        double scale = std::ldexp(1.0, lowest);
        while (top / scale > 127.5) scale *= 2;
        for (uint32_t i = channel; i < shape.rows * shape.channels; i += shape.channels) {
          const double want =
              std::clamp(std::nearbyint(ValueOf(dtype, ElementAt(raw, i)) / scale), -127.0, 127.0);
          ASSERT_EQ(want * scale, ValueOf(dtype, ElementAt(rounded, i))) << exponent << " " << i;
        }
      }
    }
  }
}

TEST(Int8Test, WhatCannotBeQuantisedIsKeptAsItIs) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16}) {
    const FrameShape shape{64, 64, dtype};
    const uint16_t infinity = dtype == Dtype::kF16 ? 0x7c00 : 0x7f80;
    std::vector<uint16_t> specials = {infinity, static_cast<uint16_t>(infinity | 0x8000),
                                      static_cast<uint16_t>(infinity + 1), 0xffff};
    if (dtype == Dtype::kF16) specials.push_back(0x7bf9);  // 65312: 127.5 units would not do.
    for (const uint16_t special : specials) {
      for (const size_t at : {size_t{0}, size_t{1000}, size_t{4095}}) {
        for (const FrameScales scales : {FrameScales::kChannel, FrameScales::kRow}) {
          Bytes elements = Finite(shape, Content::kValues, 2);
          std::memcpy(elements.data() + 2 * at, &special, 2);
          EXPECT_FALSE(Quantise(shape, scales, &elements));
          const Bytes frame = Encode(shape, scales, elements);
          EXPECT_NE(ReadFrameHeader(frame)->codec, FrameCodec::kInt8);
        }
      }
    }
  }
}

TEST(Int8Test, WhatWasNotQuantisedIsNotPackedSo) {
  const FrameShape shape{64, 64, Dtype::kBf16};
  const Bytes raw = Finite(shape, Content::kKeys, 3);
  EXPECT_EQ(ReadFrameHeader(Encode(shape, FrameScales::kChannel, raw))->codec, FrameCodec::kKv64);
  Bytes rounded = raw;
  ASSERT_TRUE(Quantise(shape, FrameScales::kChannel, &rounded));
  const uint16_t minus_zero = 0x8000;
  std::memcpy(rounded.data() + 100, &minus_zero, 2);
  EXPECT_NE(ReadFrameHeader(Encode(shape, FrameScales::kChannel, rounded))->codec,
            FrameCodec::kInt8);
  ASSERT_TRUE(Quantise(shape, FrameScales::kChannel, &rounded));
  EXPECT_EQ(0, ElementAt(rounded, 50)) << "zeros lose their sign";
}

// --- Damage

Bytes QuantisedFrame(const FrameShape& shape, FrameScales scales, uint64_t seed) {
  Bytes elements = Finite(shape, Content::kKeys, seed);
  EXPECT_TRUE(Quantise(shape, scales, &elements));
  return Encode(shape, scales, elements);
}

// All paths must say the same; a guard sees stores behind the elements.
Status Decode(const FrameShape& shape, const Bytes& frame) {
  constexpr std::byte kGuard{0xc3};
  const Bytes exact(frame.begin(), frame.end());
  Status first;
  Bytes first_out;
  for (const CodecPath path : Paths()) {
    Bytes out(shape.raw_bytes() + 128, kGuard);
    const Status status = DecodeFrame(shape, exact, {out.data(), shape.raw_bytes()}, path);
    EXPECT_EQ(std::count(out.end() - 128, out.end(), kGuard), 128) << CodecPathName(path);
    if (path == CodecPath::kScalar) {
      first = status;
      first_out = out;
    }
    EXPECT_EQ(first.ToString(), status.ToString());
    EXPECT_TRUE(!status.ok() || first_out == out);
  }
  return first;
}

TEST(Int8DamageTest, AnyBytesAreSafe) {
  std::mt19937_64 random(5);
  for (const FrameShape& shape : {FrameShape{20, 70, Dtype::kBf16}, FrameShape{33, 8, Dtype::kF16},
                                  FrameShape{9, 129, Dtype::kF16}}) {
    for (const FrameScales scales : {FrameScales::kChannel, FrameScales::kRow}) {
      const Bytes frame = QuantisedFrame(shape, scales, 4);
      ASSERT_EQ(ReadFrameHeader(frame)->codec, FrameCodec::kInt8);
      for (size_t size = 0; size < frame.size(); ++size) {
        EXPECT_FALSE(
            Decode(shape, {frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size)}).ok())
            << size;
      }
      for (int round = 0; round < 2000; ++round) {
        Bytes damaged = frame;
        const size_t begin = round % 2 == 0 ? 0 : kFrameHeaderBytes;
        const size_t at = begin + random() % (frame.size() - begin);
        const size_t end = std::min(frame.size(), at + 1 + random() % 40);
        for (size_t i = at; i < end; ++i) damaged[i] = static_cast<std::byte>(random());
        const Status status = Decode(shape, damaged);
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCorruption ||
                    status.code() == StatusCode::kUnsupportedFormat)
            << status.ToString();
      }
    }
  }
}

TEST(Int8DamageTest, NamesWhatIsWrong) {
  const FrameShape shape{20, 70, Dtype::kF16};
  const Bytes frame = QuantisedFrame(shape, FrameScales::kRow, 4);
  const auto with = [&](size_t at, int value) {
    Bytes changed = frame;
    changed[at] = static_cast<std::byte>(value);
    return Decode(shape, changed);
  };
  const auto says = [](const Status& status, const std::string& what) {
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_NE(status.message().find(what), std::string_view::npos) << status.ToString();
  };
  says(with(1, 0), "int8: 1420 payload bytes, the shape needs 1470");
  says(with(1, 2), "flags 2 of codec 3");
  says(with(2, static_cast<int>(Dtype::kU8)), "int8 of u8");
  says(with(kFrameHeaderBytes + 19, 34), "scale 19 is 34");
  says(with(frame.size() - 1, 0x80), "-128 units");
  Bytes longer = frame;
  longer.push_back({});
  longer[12] = static_cast<std::byte>(static_cast<uint8_t>(longer[12]) + 1);
  says(Decode(shape, longer), "1421 payload bytes");
  EXPECT_TRUE(with(kFrameHeaderBytes + 19, 33).ok());
}

TEST(Int8Test, TheExampleOfTheDocument) {
  // Two channels of four rows: 1, 0.3, -0.01, 0.6 and 100, -200, 3, -0.
  const FrameShape shape{4, 2, Dtype::kBf16};
  const uint16_t elements[] = {0x3f80, 0x42c8, 0x3e9a, 0xc348, 0xbc24, 0x4040, 0x3f1a, 0x8000};
  Bytes raw(sizeof elements);
  std::memcpy(raw.data(), elements, sizeof elements);
  ASSERT_TRUE(Quantise(shape, FrameScales::kChannel, &raw));
  const Bytes frame = Encode(shape, FrameScales::kChannel, raw);
  EXPECT_EQ(frame, testing::ExampleBytes("### Example of an int8 frame"));
  const double want[] = {1, 100, 0.296875, -200, -0.015625, 4, 0.59375, 0};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(want[i], ValueOf(Dtype::kBf16, ElementAt(raw, i))) << i;
}

}  // namespace
}  // namespace cairn
