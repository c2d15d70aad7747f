// SPDX-License-Identifier: Apache-2.0
//
// Property: no bytes make the KV decoder read or write outside its spans; what it cannot decode it
// names; all code paths judge alike. Method: every byte of small frames flipped, every truncation,
// random payloads under true headers, and one frame made for each complaint. Buffers are of exact
// size and on the heap: under AddressSanitizer one byte beyond ends the test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "base/codec/kv_frame.h"
#include "tests/base/kv_samples.h"

namespace cairn {
namespace {

using testing::Content;
using testing::MakeElements;
using Bytes = std::vector<std::byte>;

constexpr size_t kPayloadBytesAt = 12;

Bytes Encode(const FrameShape& shape, const Bytes& raw, std::optional<uint8_t> flags) {
  Bytes frame(MaxFrameBytes(shape));
  frame.resize(EncodeFrame(shape, raw, frame, {.flags = flags}));
  return frame;
}

void SetU32(Bytes* frame, size_t at, uint32_t value) {
  std::memcpy(frame->data() + at, &value, sizeof(value));
}

// The frame with the payload length that it really has.
Bytes Truthful(Bytes frame) {
  SetU32(&frame, kPayloadBytesAt, static_cast<uint32_t>(frame.size() - kFrameHeaderBytes));
  return frame;
}

// A guard behind the elements sees masked stores, which the sanitizer does not.
Status DecodeGuarded(const FrameShape& shape, const Bytes& frame, CodecPath path, Bytes* out) {
  constexpr std::byte kGuard{0xc3};
  out->assign(shape.raw_bytes() + 128, kGuard);
  const Status status = DecodeFrame(shape, frame, {out->data(), shape.raw_bytes()}, path);
  EXPECT_EQ(std::count(out->end() - 128, out->end(), kGuard), 128) << CodecPathName(path);
  return status;
}

// The result of all paths; they must agree, on the elements as well.
Status Decode(const FrameShape& shape, const Bytes& frame) {
  const Bytes exact(frame.begin(), frame.end());
  Bytes out, other;
  const Status status = DecodeGuarded(shape, exact, CodecPath::kScalar, &out);
  if (CodecPathSupported(CodecPath::kAvx512)) {
    const Status other_status = DecodeGuarded(shape, exact, CodecPath::kAvx512, &other);
    EXPECT_EQ(status.ToString(), other_status.ToString());
    EXPECT_TRUE(!status.ok() || out == other);
  }
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCorruption ||
              status.code() == StatusCode::kUnsupportedFormat)
      << status.ToString();
  return status;
}

struct Small {
  FrameShape shape;
  Content content;
  uint8_t flags;
};
// Every kind of line: full and partial, carried and not, of one and of several stripes.
const Small kSmall[] = {
    {{40, 64, Dtype::kBf16}, Content::kKeys, 0},    {{24, 64, Dtype::kBf16}, Content::kKeys, 3},
    {{133, 8, Dtype::kBf16}, Content::kKeys, 2},    {{20, 70, Dtype::kBf16}, Content::kKeys, 3},
    {{51, 64, Dtype::kF16}, Content::kKeys, 0},     {{41, 80, Dtype::kF16}, Content::kKeys, 3},
    {{12, 130, Dtype::kBf16}, Content::kSparse, 1}, {{30, 64, Dtype::kBf16}, Content::kKeys, 4},
    {{20, 70, Dtype::kBf16}, Content::kKeys, 7}};

TEST(KvFrameDamage, AnyFlippedByteIsSafe) {
  bool found_by_states = false;
  for (const Small& small : kSmall) {
    Bytes frame = Encode(small.shape, MakeElements(small.shape, small.content, 1), small.flags);
    ASSERT_EQ(ReadFrameHeader(frame)->codec, FrameCodec::kKv64)
        << small.shape.rows << " rows: not what is to be tested";
    for (size_t at = 0; at < frame.size(); ++at) {
      // All bits of what steers the decoder, one of what follows.
      for (int bit = at < 150 ? 0 : static_cast<int>(at % 8); bit < 8; bit += at < 150 ? 1 : 8) {
        const auto flip = static_cast<std::byte>(1 << bit);
        frame[at] ^= flip;
        const Status status = Decode(small.shape, frame);
        frame[at] ^= flip;
        constexpr size_t kFlagsAt = 1;  // Some flips of these make other flags.
        if (at < kFrameHeaderBytes && at != kFlagsAt) {
          EXPECT_FALSE(status.ok()) << "bit " << bit << " of byte " << at;
        }
        found_by_states |= status.message().find("initial state") != std::string_view::npos;
      }
    }
  }
  EXPECT_TRUE(found_by_states) << "the final states found out no flip";
}

TEST(KvFrameDamage, EveryTruncationIsFoundOut) {
  for (const Small& small : kSmall) {
    const Bytes frame =
        Encode(small.shape, MakeElements(small.shape, small.content, 2), small.flags);
    for (size_t size = 0; size < frame.size(); ++size) {
      const Bytes cut(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size));
      EXPECT_FALSE(Decode(small.shape, cut).ok()) << size;
      if (size < kFrameHeaderBytes) continue;
      EXPECT_FALSE(Decode(small.shape, Truthful(cut)).ok()) << size;
    }
  }
}

TEST(KvFrameDamage, RandomPayloadsAreSafe) {
  std::mt19937_64 random(3);
  for (const Small& small : kSmall) {
    const Bytes frame =
        Encode(small.shape, MakeElements(small.shape, small.content, 3), small.flags);
    for (int round = 0; round < 300; ++round) {
      Bytes damaged = frame;
      if (round % 3 == 0) {  // All of it, of any length.
        damaged.resize(kFrameHeaderBytes + random() % (2 * frame.size()));
        for (size_t i = kFrameHeaderBytes; i < damaged.size(); ++i) {
          damaged[i] = static_cast<std::byte>(random());
        }
        damaged = Truthful(damaged);
      } else {  // A run of it.
        const size_t begin = kFrameHeaderBytes + random() % (frame.size() - kFrameHeaderBytes);
        const size_t end = std::min(frame.size(), begin + random() % 40);
        for (size_t i = begin; i < end; ++i) damaged[i] = static_cast<std::byte>(random());
      }
      (void)Decode(small.shape, damaged);
    }
  }
}

void ExpectComplaint(const Status& status, StatusCode code, const std::string& says) {
  EXPECT_EQ(status.code(), code) << says;
  EXPECT_NE(status.message().find(says), std::string_view::npos)
      << "'" << says << "' is not in: " << status.ToString();
}

TEST(KvFrameDamage, NamesWhatIsWrongWithAHeader) {
  const FrameShape shape{40, 64, Dtype::kBf16};
  const Bytes frame = Encode(shape, MakeElements(shape, Content::kKeys, 4), 0);
  const auto with = [&](size_t at, int value) {
    Bytes changed = frame;
    changed[at] = static_cast<std::byte>(value);
    return Decode(shape, changed);
  };
  constexpr StatusCode kCorruption = StatusCode::kCorruption;
  ExpectComplaint(Decode(shape, {}), kCorruption, "0 bytes, a header takes 16");
  ExpectComplaint(with(0, 9), StatusCode::kUnsupportedFormat, "codec 9 is not known");
  ExpectComplaint(with(3, 1), StatusCode::kUnsupportedFormat, "version 1 is not known");
  ExpectComplaint(with(1, 8), kCorruption, "flags 8 of codec 2");
  ExpectComplaint(with(2, 99), kCorruption, "element type 99");
  ExpectComplaint(with(2, static_cast<int>(Dtype::kF32)), kCorruption, "kv64 of ");
  ExpectComplaint(with(4, 0), kCorruption, "shape 0 x 64");
  ExpectComplaint(with(7, 0xff), kCorruption, "shape 4278190120 x 64");
  ExpectComplaint(with(4, 41), kCorruption, "it holds 41 x 64");
  ExpectComplaint(with(12, 0), kCorruption, "payload bytes, there are");
}

TEST(KvFrameDamage, NamesWhatIsWrongWithARawOrConstFrame) {
  const FrameShape shape{8, 16, Dtype::kU8};
  Bytes raw = Encode(shape, MakeElements(shape, Content::kRandomBits, 5), {});
  raw.pop_back();
  ExpectComplaint(Decode(shape, Truthful(raw)), StatusCode::kCorruption, "127 payload bytes");
  Bytes equal = Encode(shape, Bytes(shape.raw_bytes(), std::byte{7}), {});
  equal.push_back(std::byte{7});
  ExpectComplaint(Decode(shape, Truthful(equal)), StatusCode::kCorruption,
                  "a const frame of 8 x 16");
}

// Where the parts of a frame without flags, of 64 channels, begin (base/codec/FORMAT.md).
struct Parts {
  size_t models = kFrameHeaderBytes + 4, raw_plane = models + 17, escapes, states, stream;

  Parts(const FrameShape& shape, const Bytes& frame) {
    uint32_t count;
    std::memcpy(&count, frame.data() + kFrameHeaderBytes, sizeof(count));
    escapes = raw_plane + size_t{64} * (shape.rows - 2);
    states = escapes + count;
    stream = states + 256;
  }
};

TEST(KvFrameDamage, NamesWhatIsWrongWithinKv64) {
  const FrameShape shape{40, 64, Dtype::kBf16};
  Bytes raw = MakeElements(shape, Content::kKeys, 6);
  raw[1] = std::byte{0x7f};  // An exponent far from all others: one escape at least.
  const Bytes frame = Encode(shape, raw, 0);
  const Parts parts(shape, frame);
  const auto escapes = static_cast<uint32_t>(parts.states - parts.escapes);
  ASSERT_GE(escapes, 1u);
  const auto complains = [&](const Bytes& damaged, const char* says) {
    ExpectComplaint(Decode(shape, Truthful(damaged)), StatusCode::kCorruption, says);
  };
  const auto at = [](Bytes& bytes, size_t i) { return bytes.begin() + static_cast<ptrdiff_t>(i); };

  Bytes damaged(frame.begin(), frame.begin() + 2000);
  complains(damaged, "1984 payload bytes, the shape needs 2709");

  damaged = frame;
  SetU32(&damaged, kFrameHeaderBytes, 1 << 20);
  complains(damaged, "1048576 escapes pass the end");

  damaged = frame;
  damaged[parts.states + 64 + 5] = std::byte{0};  // A high byte.
  complains(damaged, "a coder starts below its lowest state");

  damaged = frame;
  damaged[parts.models + 1 + 5] ^= std::byte{1};  // A frequency.
  complains(damaged, "the frequencies of stripe 0 sum to 25");

  damaged = frame;
  damaged.resize(damaged.size() - 3);
  complains(damaged, "the stream ends within stripe 0");

  damaged = frame;
  damaged.resize(damaged.size() + 3);
  complains(damaged, "3 bytes of stream are left");

  damaged = frame;
  damaged.erase(at(damaged, parts.escapes));
  SetU32(&damaged, kFrameHeaderBytes, escapes - 1);
  complains(damaged, "the list of escapes ends within stripe 0");

  damaged = frame;
  damaged.insert(at(damaged, parts.escapes), 2, std::byte{9});
  SetU32(&damaged, kFrameHeaderBytes, escapes + 2);
  complains(damaged, "2 escapes are left");

  damaged = Encode(shape, raw, kFramePadded);
  damaged[parts.raw_plane + 1] = std::byte{1};
  complains(damaged, "the padding is not zero");
}

}  // namespace
}  // namespace cairn
