// SPDX-License-Identifier: Apache-2.0
#include "tests/base/kv_samples.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/support/source_dir.h"

namespace cairn::testing {
namespace {

// Near enough to a normal distribution, and without libm, whose last bits differ.
double Bell(std::mt19937_64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
  return sum;
}

uint16_t Half(Dtype dtype, double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (dtype == Dtype::kBf16) return static_cast<uint16_t>(bits >> 16);
  const uint32_t sign = bits >> 16 & 0x8000;
  const int exponent = static_cast<int>(bits >> 23 & 255) - 127 + 15;
  if (exponent <= 0) return static_cast<uint16_t>(sign);
  if (exponent >= 31) return static_cast<uint16_t>(sign | 0x7bff);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 1023));
}

uint16_t Special(Dtype dtype, uint64_t kind, std::mt19937_64& random) {
  const int mantissa_bits = dtype == Dtype::kF16 ? 10 : 7;
  const auto mantissa = static_cast<uint16_t>(random() & ((1u << mantissa_bits) - 1));
  const auto sign = static_cast<uint16_t>(random() << 15);
  const auto infinity = static_cast<uint16_t>(0x7fff >> mantissa_bits << mantissa_bits);
  switch (kind) {
    case 0: return sign;                                          // Zeros.
    case 1: return sign | infinity;                               // Infinities.
    case 2: return sign | infinity | mantissa;                    // NaNs, nearly all.
    case 3: return sign | mantissa;                               // Denormals.
    case 4: return static_cast<uint16_t>(sign | (infinity - 1));  // The largest.
    case 5: return Half(dtype, Bell(random));
    default: return static_cast<uint16_t>(random());
  }
}

}  // namespace

const char* ContentName(Content content) {
  switch (content) {
    case Content::kKeys: return "Keys";
    case Content::kValues: return "Values";
    case Content::kRandomBits: return "RandomBits";
    case Content::kMixed: return "Mixed";
    case Content::kSparse: return "Sparse";
    case Content::kEscapes: return "Escapes";
  }
  return "?";
}

std::vector<std::byte> MakeElements(const FrameShape& shape, Content content, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(shape.raw_bytes());
  if (DtypeBytes(shape.dtype) != 2) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }
  std::vector<double> scale(shape.channels), sign(shape.channels);
  for (uint32_t c = 0; c < shape.channels; ++c) {
    scale[c] = 1.0 / static_cast<double>(1 + random() % 64);
    sign[c] = random() % 2 == 0 ? 1 : -1;
  }
  for (size_t i = 0; i < bytes.size() / 2; ++i) {
    const size_t c = i % shape.channels;
    uint16_t element = 0;
    switch (content) {
      case Content::kKeys:
        if (random() % 12 == 0) sign[c] = -sign[c];
        element = Half(shape.dtype, sign[c] * scale[c] * (Bell(random) + 2));
        if (random() % 5000 == 0) element = Special(shape.dtype, 6, random);
        break;
      case Content::kValues: element = Half(shape.dtype, Bell(random)); break;
      case Content::kRandomBits: element = Special(shape.dtype, 6, random); break;
      case Content::kMixed: element = Special(shape.dtype, i / 300 % 7, random); break;
      case Content::kSparse:
        element = random() % 400 == 0 ? Half(shape.dtype, Bell(random)) : uint16_t{0};
        break;
      case Content::kEscapes:
        element = random() % 2 == 0 ? Special(shape.dtype, 4, random) : uint16_t{0};
        break;
    }
    std::memcpy(bytes.data() + 2 * i, &element, sizeof(element));
  }
  return bytes;
}

std::vector<std::byte> ExampleBytes(const std::string& heading) {
  std::ifstream file(testing::SourcePath("/base/codec/FORMAT.md"));
  std::vector<std::byte> bytes;
  bool within = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) within = line == heading;
    const size_t colon = line.find(':');
    if (!within || colon == line.npos || line.find_first_not_of(" 0123456789") != colon) continue;
    std::istringstream values(line.substr(colon + 1));
    for (unsigned value; values >> std::hex >> value;) {
      bytes.push_back(static_cast<std::byte>(value));
    }
  }
  return bytes;
}

}  // namespace cairn::testing
