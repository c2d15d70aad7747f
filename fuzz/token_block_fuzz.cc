// SPDX-License-Identifier: Apache-2.0
//
// Blocks of token ids: any bytes are unpacked or refused; any ids come back.
#include <vector>

#include "base/codec/token_block.h"
#include "base/core/check.h"
#include "fuzz/input.h"

using namespace cairn;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  const uint16_t count = input.Take<uint16_t>();
  if (count % 2 == 0) {
    std::vector<uint32_t> tokens(count % 5000u);
    const std::vector<std::byte> block(input.rest().begin(), input.rest().end());
    static_cast<void>(DecodeTokens(block, tokens));
    return 0;
  }
  std::vector<uint32_t> tokens(input.rest().size() / 3);
  for (uint32_t& token : tokens) token = input.Take<uint16_t>() | input.Take<uint8_t>() << 16u;
  const auto block = EncodeTokens(tokens, 1 + count / 2 % 5);
  CAIRN_CHECK(block.ok());
  std::vector<uint32_t> back(tokens.size());
  CAIRN_CHECK(DecodeTokens(*block, back).ok());
  CAIRN_CHECK(back == tokens);
  return 0;
}
