// SPDX-License-Identifier: Apache-2.0
//
// Pages of real KV for the codec: from the project's own small model, or from a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/codec/kv_frame.h"
#include "cairn/status.h"

namespace cairn::bench {

inline constexpr uint32_t kPageTokens = 256;

// One plane, [layer][head][token][channel] in bf16.
struct KvPlane {
  std::string name{};
  uint32_t layers = 0, heads = 0, tokens = 0, channels = 0;
  std::vector<std::byte> bytes{};

  FrameShape page_shape() const { return {kPageTokens, channels, Dtype::kBf16}; }
  // Whole pages of one layer and plane, all heads; the rest of the tokens is left out.
  std::vector<std::span<const std::byte>> Pages(uint32_t layer) const;
};

struct KvPages {
  std::string origin{};
  std::vector<KvPlane> planes{};
  std::vector<uint32_t> token_ids{};  // The own model's text; empty for a file.
};

// K (after rotary encoding) and V of the first `tokens` tokens of the own model's held-out text.
Result<KvPages> KvOfOwnModel(uint32_t tokens);

// A file of raw bf16, `shape` "L,H,T,D" saying [L][H][T][D]: one plane.
Result<KvPages> KvOfFile(const std::string& path, const std::string& shape);

}  // namespace cairn::bench
