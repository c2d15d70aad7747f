// SPDX-License-Identifier: Apache-2.0
//
// The header of a safetensors file: eight bytes with its length, little endian, then JSON that
// names each tensor's type, shape and place, and has texts under "__metadata__". The tensors' bytes
// follow without a gap.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"

namespace cairn::engine {

// The format's own readers take 100 MB. A header costs about five times its length in memory.
inline constexpr uint64_t kHeaderBytesMax = 16u << 20;
inline constexpr uint64_t kHeaderLengthBytes = 8;
inline constexpr size_t kTensorDimensionsMax = 8;

struct Tensor {
  std::string dtype;  // "BF16", ...
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // Bytes behind the header.
  uint64_t bytes() const { return end - begin; }
};

// Bytes of an element; 0: there is no such type.
uint64_t TensorTypeBytes(std::string_view dtype);

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::map<std::string, Tensor> tensors;  // By name.
};

// The length and the JSON, padded with spaces to `bytes` and to a multiple of eight, so that the
// data is aligned.
std::string EncodeHeader(const SafetensorsHeader& header, uint64_t bytes = 0);

// `text` is the JSON alone; `data_bytes` follow it in the file. kCorruption naming the tensor: a
// type that does not exist, bytes that do not fit the shape, that do not begin at a multiple of an
// element's, that overlap others, leave a gap or reach beyond the file; or the JSON is another one.
Result<SafetensorsHeader> ParseHeader(std::string_view text, uint64_t data_bytes);

}  // namespace cairn::engine
