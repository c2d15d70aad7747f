// SPDX-License-Identifier: Apache-2.0
//
// Property: a KV frame gives back its bytes, whatever they are and however it was made; it is never
// larger than they are plus a header; all code paths write the same bytes and read each other's.
// Method: model-like, random and special values in shapes around every border of the layout, all
// flags, both paths; the estimate against all four choices.
#include "base/codec/kv_frame.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>

#include "tests/base/kv_samples.h"

namespace cairn {
namespace {

using testing::Content;
using testing::kContents;
using testing::MakeElements;

std::vector<std::byte> Encode(const FrameShape& shape, const std::vector<std::byte>& raw,
                              const FrameOptions& options) {
  // The exact size, so that the sanitizer sees the first byte beyond.
  std::vector<std::byte> frame(MaxFrameBytes(shape));
  frame.resize(EncodeFrame(shape, raw, frame, options));
  return frame;
}

std::vector<CodecPath> Paths() {
  std::vector<CodecPath> paths = {CodecPath::kScalar};
  if (CodecPathSupported(CodecPath::kAvx512)) paths.push_back(CodecPath::kAvx512);
  return paths;
}

void ExpectRoundTrip(const FrameShape& shape, const std::vector<std::byte>& raw,
                     std::optional<uint8_t> flags) {
  std::vector<std::byte> first;
  for (const CodecPath path : Paths()) {
    SCOPED_TRACE(CodecPathName(path));
    const std::vector<std::byte> frame = Encode(shape, raw, {.flags = flags, .path = path});
    EXPECT_LE(frame.size(), kFrameHeaderBytes + raw.size());
    if (first.empty()) first = frame;
    ASSERT_EQ(frame, first) << "the paths differ";
    const auto header = ReadFrameHeader(frame);
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    EXPECT_EQ(header->shape, shape);
    for (const CodecPath reader : Paths()) {
      std::vector<std::byte> back(raw.size(), std::byte{0x5a});
      const Status status = DecodeFrame(shape, frame, back, reader);
      ASSERT_TRUE(status.ok()) << CodecPathName(reader) << ": " << status.ToString();
      ASSERT_EQ(back, raw) << "read by " << CodecPathName(reader);
    }
  }
}

class KvFrameTest : public ::testing::TestWithParam<Content> {};

TEST_P(KvFrameTest, GivesBackEveryShapeWithEveryFlag) {
  const std::pair<uint32_t, uint32_t> shapes[] = {
      {1, 1},    {1, 64},   {2, 64},   {3, 64},   {255, 64}, {256, 64}, {100, 1}, {4097, 1},
      {65, 2},   {133, 8},  {500, 8},  {64, 16},  {61, 32},  {200, 7},  {90, 63}, {90, 65},
      {128, 80}, {70, 100}, {64, 128}, {33, 129}, {1, 1000}, {2, 300},  {40, 576}};
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16}) {
    for (const auto& [rows, channels] : shapes) {
      const FrameShape shape{rows, channels, dtype};
      const std::vector<std::byte> raw = MakeElements(shape, GetParam(), rows + channels);
      for (const int flags : {-1, 0, 1, 2, 3, 4, 5, 6, 7}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(channels) + " " +
                     DtypeName(dtype) + ", flags " + std::to_string(flags));
        ExpectRoundTrip(shape, raw,
                        flags < 0 ? std::nullopt : std::optional(static_cast<uint8_t>(flags)));
      }
    }
  }
}

TEST_P(KvFrameTest, GivesBackUnalignedMemory) {
  const FrameShape shape{130, 96, Dtype::kBf16};
  const std::vector<std::byte> raw = MakeElements(shape, GetParam(), 9);
  for (const CodecPath path : Paths()) {
    std::vector<std::byte> source(raw.size() + 1), frame(MaxFrameBytes(shape) + 1);
    std::copy(raw.begin(), raw.end(), source.begin() + 1);
    const size_t size = EncodeFrame(shape, std::span(source).subspan(1),
                                    std::span(frame).subspan(1), {.path = path});
    std::vector<std::byte> back(raw.size() + 1);
    const Status status =
        DecodeFrame(shape, std::span(frame).subspan(1, size), std::span(back).subspan(1), path);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(std::equal(raw.begin(), raw.end(), back.begin() + 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Of, KvFrameTest, ::testing::ValuesIn(kContents),
                         [](const auto& test) { return testing::ContentName(test.param); });

TEST(KvFrame, BothPathsWereTested) {
  if (!CodecPathSupported(CodecPath::kAvx512)) {
    GTEST_SKIP() << "this processor lacks AVX-512 with VBMI2: only the scalar path was tested";
  }
  EXPECT_EQ(BestCodecPath(), CodecPath::kAvx512);
  EXPECT_STREQ(CodecPathName(BestCodecPath()), "avx512");
}

double RatioOf(const FrameShape& shape, const std::vector<std::byte>& raw,
               std::optional<uint8_t> flags) {
  return static_cast<double>(raw.size()) /
         static_cast<double>(Encode(shape, raw, {.flags = flags}).size());
}

// The goal on a model's KV is checked by cairn-bench; here, that no change loses the gain.
TEST(KvFrame, PacksWhatLooksLikeAModelsKv) {
  const FrameShape shape{256, 64, Dtype::kBf16};
  const std::vector<std::byte> keys = MakeElements(shape, Content::kKeys, 1);
  const std::vector<std::byte> values = MakeElements(shape, Content::kValues, 2);
  EXPECT_GT(RatioOf(shape, keys, {}), 1.52);
  EXPECT_GT(RatioOf(shape, values, {}), 1.45);
  const FrameShape half{256, 64, Dtype::kF16};
  EXPECT_GT(RatioOf(half, MakeElements(half, Content::kKeys, 3), {}), 1.15);
}

TEST(KvFrame, TheEstimateFindsTheFlagsThatPay) {
  for (const uint32_t channels : {8u, 64u, 128u, 512u}) {
    const FrameShape shape{256, channels, Dtype::kBf16};
    for (const Content content : {Content::kKeys, Content::kValues}) {
      const std::vector<std::byte> raw = MakeElements(shape, content, channels);
      double best = 0;
      for (uint8_t flags = 0; flags < 4; ++flags) {
        best = std::max(best, RatioOf(shape, raw, flags));
      }
      EXPECT_GT(RatioOf(shape, raw, {}), 0.99 * best)
          << channels << " channels, " << testing::ContentName(content);
    }
  }
  const FrameShape shape{256, 64, Dtype::kBf16};
  const auto flags_of = [&](Content content) {
    return ReadFrameHeader(Encode(shape, MakeElements(shape, content, 1), {}))->flags;
  };
  EXPECT_EQ(flags_of(Content::kKeys), kFrameChannelBase | kFrameFoldedSigns | kFramePadded);
  EXPECT_EQ(flags_of(Content::kValues), kFramePadded);
}

FrameHeader HeaderOf(const FrameShape& shape, const std::vector<std::byte>& raw) {
  return *ReadFrameHeader(Encode(shape, raw, {}));
}

TEST(KvFrame, EqualElementsOrRowsAreOneOfThem) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32, Dtype::kU8, Dtype::kOpaque}) {
    const FrameShape shape{37, 48, dtype};
    const size_t element = DtypeBytes(dtype), row = element * shape.channels;
    std::vector<std::byte> raw(shape.raw_bytes());
    for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::byte>(i % element + 1);
    EXPECT_EQ(HeaderOf(shape, raw).codec, FrameCodec::kConst);
    EXPECT_EQ(HeaderOf(shape, raw).payload_bytes, element);
    ExpectRoundTrip(shape, raw, {});

    for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::byte>(i % row);
    EXPECT_EQ(HeaderOf(shape, raw).codec, FrameCodec::kConst);
    EXPECT_EQ(HeaderOf(shape, raw).payload_bytes, row);
    ExpectRoundTrip(shape, raw, {});

    raw.back() ^= std::byte{1};
    EXPECT_NE(HeaderOf(shape, raw).codec, FrameCodec::kConst);
    ExpectRoundTrip(shape, raw, {});
  }
}

TEST(KvFrame, WhatDoesNotPackIsRaw) {
  const FrameShape noise{256, 64, Dtype::kBf16};
  const std::vector<std::byte> raw = MakeElements(noise, Content::kRandomBits, 4);
  EXPECT_EQ(HeaderOf(noise, raw).codec, FrameCodec::kRaw);
  EXPECT_EQ(Encode(noise, raw, {}).size(), kFrameHeaderBytes + raw.size());
  // No elements of 16 bits.
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF8E4M3, Dtype::kI8, Dtype::kOpaque}) {
    const FrameShape shape{64, 48, dtype};
    const std::vector<std::byte> bytes = MakeElements(shape, Content::kRandomBits, 5);
    EXPECT_EQ(HeaderOf(shape, bytes).codec, FrameCodec::kRaw) << DtypeName(dtype);
    ExpectRoundTrip(shape, bytes, {});
  }
}

// Frames are on disks: what the document shows must be what is written, and stay readable.
TEST(KvFrame, ExampleOfTheFormatDocument) {
  const FrameShape shape{64, 8, Dtype::kBf16};
  std::vector<std::byte> raw(shape.raw_bytes());
  for (uint32_t i = 0; i < 512; ++i) {
    const auto element = static_cast<uint16_t>(
        i / 64 % 2 << 15 | (127u - static_cast<uint32_t>(std::countr_zero(i + 1))) << 7 |
        (5 * i & 127));
    std::memcpy(raw.data() + size_t{2} * i, &element, sizeof(element));
  }
  const std::vector<std::byte> frame = testing::ExampleBytes("### Example");
  ASSERT_EQ(frame.size(), 682u);
  ExpectRoundTrip(shape, raw, 3);
  EXPECT_EQ(Encode(shape, raw, {.flags = uint8_t{3}}), frame);
  for (const CodecPath path : Paths()) {
    std::vector<std::byte> back(raw.size());
    ASSERT_TRUE(DecodeFrame(shape, frame, back, path).ok());
    EXPECT_EQ(back, raw);
  }
}

// Frames of before have no padding and are read as ever; with it, all else is the same.
TEST(KvFrame, PaddingBringsTheRawLinesToFourBytes) {
  // References and frequencies of all stripes take 17, 3 x 17, 70 + 2 x 32, 8 + 32 bytes.
  const std::pair<FrameShape, uint8_t> frames[] = {{{40, 64, Dtype::kBf16}, 0},
                                                   {{40, 192, Dtype::kF16}, 0},
                                                   {{40, 70, Dtype::kBf16}, 3},
                                                   {{60, 8, Dtype::kBf16}, 3}};
  const size_t models[] = {17, 51, 134, 40};
  for (size_t i = 0; i < std::size(frames); ++i) {
    const auto& [shape, flags] = frames[i];
    const std::vector<std::byte> raw = MakeElements(shape, Content::kKeys, 8);
    std::vector<std::byte> plain = Encode(shape, raw, {.flags = flags});
    const size_t end = kFrameHeaderBytes + 4 + models[i];
    const size_t padding = (4 - end % 4) % 4;
    plain.insert(plain.begin() + static_cast<ptrdiff_t>(end), padding, std::byte{0});
    plain[1] |= std::byte{kFramePadded};
    const auto payload = static_cast<uint32_t>(plain.size() - kFrameHeaderBytes);
    std::memcpy(plain.data() + 12, &payload, sizeof(payload));
    EXPECT_EQ(Encode(shape, raw, {.flags = static_cast<uint8_t>(flags | kFramePadded)}), plain);
  }
}

TEST(KvFrame, LongFrames) {
  const FrameShape shape{20'000, 64, Dtype::kBf16};
  ExpectRoundTrip(shape, MakeElements(shape, Content::kKeys, 6), {});
}

}  // namespace
}  // namespace cairn
