// SPDX-License-Identifier: Apache-2.0
//
// The page codec: frames of 256 rows of 128 elements, eight of them over and over, so that they
// come out of the cache; and of an append of 16 positions those of one head, and of eight heads
// that share a frame. cairn-bench codec has them out of memory, and the ratio of real KV.
#include <bit>
#include <cstring>
#include <random>

#include "base/codec/kv_frame.h"
#include "base/core/check.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

constexpr uint32_t kRows = 256, kChannels = 128, kPositions = 16;
constexpr size_t kPages = 8;

struct Kind {
  const char* name;
  Dtype dtype;
  FrameScales scales;  // kNone: without loss. f32 has no coder and is kept as it is.
};
constexpr Kind kKinds[] = {{"bf16", Dtype::kBf16, FrameScales::kNone},
                           {"f16", Dtype::kF16, FrameScales::kNone},
                           {"f32", Dtype::kF32, FrameScales::kNone},
                           {"int8", Dtype::kBf16, FrameScales::kChannel}};

// A float that is normal in every type, or zero, cut to `dtype`.
void PutElement(Dtype dtype, float value, std::byte* into) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (dtype == Dtype::kF32) return void(std::memcpy(into, &bits, sizeof(bits)));
  auto element = static_cast<uint16_t>(bits >> 16);
  if (dtype == Dtype::kF16) {
    constexpr int kBias32 = 127, kBias16 = 15;
    const int exponent = static_cast<int>((bits >> 23) & 0xFF) - kBias32 + kBias16;
    const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
    const auto fraction = static_cast<uint16_t>((bits >> 13) & 0x3FF);
    CAIRN_CHECK(exponent < 31);
    element = exponent <= 0 ? sign : static_cast<uint16_t>(sign | (exponent << 10) | fraction);
  }
  std::memcpy(into, &element, sizeof(element));
}

// Raw pages and their frames. `like_kv`: normally distributed, channels of four scales; else all
// bits are drawn, but for int8, which holds numbers alone: there values are drawn evenly.
class Pages {
 public:
  Pages(const Kind& kind, bool like_kv, uint32_t rows = kRows)
      : shape_{rows, kChannels, kind.dtype}, options_{.scales = kind.scales} {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> even(-1, 1);
    const size_t element_bytes = DtypeBytes(kind.dtype);
    for (size_t page = 0; page < kPages; ++page) {
      auto& raw = raw_.emplace_back(shape_.raw_bytes());
      for (size_t i = 0; i < raw.size(); i += element_bytes) {
        const uint64_t bits = random();
        if (!like_kv && kind.scales == FrameScales::kNone) {
          std::memcpy(&raw[i], &bits, element_bytes);
        } else {
          const float scale = 1.0F / static_cast<float>(1 << (i / element_bytes % 4));
          PutElement(kind.dtype, like_kv ? normal(random) * scale : even(random), &raw[i]);
        }
      }
      if (kind.scales != FrameScales::kNone) {
        CAIRN_CHECK(QuantiseFrame(shape_, kind.scales, raw));
      }
      frames_.emplace_back(MaxFrameBytes(shape_));
      frame_bytes_.push_back(Encode(page, frames_.back()));
      stored_bytes_ += frame_bytes_.back();
    }
  }
  size_t Encode(size_t page, std::span<std::byte> into) const {
    return EncodeFrame(shape_, raw_[page], into, options_);
  }
  Status Decode(size_t page, std::span<std::byte> into) const {
    return DecodeFrame(shape_, std::span(frames_[page]).first(frame_bytes_[page]), into);
  }
  std::span<const std::byte> raw(size_t page) const { return raw_[page]; }
  size_t page_bytes() const { return shape_.raw_bytes(); }
  size_t frame_room() const { return MaxFrameBytes(shape_); }
  double stored_to_raw() const {
    return static_cast<double>(stored_bytes_) / static_cast<double>(kPages * page_bytes());
  }

 private:
  const FrameShape shape_;
  const FrameOptions options_;
  std::vector<std::vector<std::byte>> raw_{}, frames_{};
  std::vector<size_t> frame_bytes_{};
  size_t stored_bytes_ = 0;
};

void Encode(::benchmark::State& state, const Kind& kind, bool like_kv, uint32_t rows) {
  const Pages pages(kind, like_kv, rows);
  std::vector<std::byte> frame(pages.frame_room());
  size_t page = 0;
  {
    const Meter meter(&state, 1, pages.page_bytes());
    for (auto _ : state) {
      DoNotOptimize(pages.Encode(page, frame));
      page = (page + 1) % kPages;
    }
  }
  state.counters["stored_to_raw"] = pages.stored_to_raw();
}

void Decode(::benchmark::State& state, const Kind& kind, bool like_kv) {
  const Pages pages(kind, like_kv);
  std::vector<std::byte> raw(pages.page_bytes());
  size_t page = 0;
  for (size_t i = 0; i < kPages; ++i) {
    if (Failed(&state, pages.Decode(i, raw))) return;
    CAIRN_CHECK(std::memcmp(raw.data(), pages.raw(i).data(), raw.size()) == 0);
  }
  const Meter meter(&state, 1, pages.page_bytes());
  for (auto _ : state) {
    if (Failed(&state, pages.Decode(page, raw))) break;
    page = (page + 1) % kPages;
  }
}

}  // namespace

void RegisterCodec() {
  for (const Kind& kind : kKinds) {
    for (const bool like_kv : {true, false}) {
      const std::string what = std::string(kind.name) + (like_kv ? "/kv" : "/random");
      ::benchmark::RegisterBenchmark(("codec/encode/" + what).c_str(), Encode, kind, like_kv,
                                     kRows);
      ::benchmark::RegisterBenchmark(("codec/decode/" + what).c_str(), Decode, kind, like_kv);
    }
  }
  for (const uint32_t heads : {1u, 8u}) {
    const std::string what = "bf16/kv/16_positions_of_" + std::to_string(heads) + "_heads";
    ::benchmark::RegisterBenchmark(("codec/encode/" + what).c_str(), Encode, kKinds[0], true,
                                   kPositions * heads);
  }
}

}  // namespace cairn::bench::micro
