// SPDX-License-Identifier: Apache-2.0
#include "tests/base/shadow_samples.h"

#include "base/shadow/block_quantizer.h"

namespace cairn::testing {
namespace {

float Signed(SeededRandom& random) { return static_cast<float>(2.0 * random.Fraction() - 1.0); }

uint16_t AnyFit(SeededRandom& random, bool fp16) {
  for (;;) {
    const auto bits = static_cast<uint16_t>(random.Next());
    if (!shadow::FindOutOfRange(fp16, {&bits, 1})) return bits;
  }
}

}  // namespace

std::vector<uint16_t> MakeRows(SeededRandom& random, Rows kind, bool fp16, uint32_t channels,
                               size_t rows) {
  std::vector<float> mean(channels), scale(channels);
  for (uint32_t c = 0; c < channels; ++c) {
    mean[c] = 4.0F * Signed(random);
    scale[c] = kind == Rows::kEqual && random.Below(4) != 0 ? 0.0F : 2.0F * Signed(random);
  }
  std::vector<uint16_t> elements(rows * channels);
  for (size_t i = 0; i < elements.size(); ++i) {
    const size_t c = i % channels;
    switch (kind) {
      case Rows::kKeys:
      case Rows::kEqual: elements[i] = Narrowed(fp16, mean[c] + scale[c] * Signed(random)); break;
      case Rows::kCoarse: {
        constexpr float kValues[] = {0.0F, -0.0F, 1.0F, -1.0F, 0.5F};
        elements[i] = Narrowed(fp16, kValues[random.Below(std::size(kValues))]);
        break;
      }
      case Rows::kWide: elements[i] = AnyFit(random, fp16); break;
    }
  }
  return elements;
}

std::vector<std::byte> StoreBlocks(const shadow::BlockLayout& layout, bool fp16,
                                   std::span<const uint16_t> rows) {
  const size_t elements = size_t{shadow::kBlockRows} * layout.channels;
  const size_t blocks = rows.size() / elements;
  std::vector<std::byte> stored(blocks * layout.block_bytes());
  for (size_t i = 0; i < blocks; ++i) {
    shadow::QuantiseBlock(
        layout, fp16, rows.subspan(i * elements, elements),
        std::span(stored).subspan(i * layout.block_bytes(), layout.block_bytes()));
  }
  return stored;
}

}  // namespace cairn::testing
