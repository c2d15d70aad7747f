// SPDX-License-Identifier: Apache-2.0
#include "base/codec/token_block.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/core/check.h"
#include "base/core/mutation.h"

namespace cairn {
namespace {

static_assert(std::endian::native == std::endian::little, "planes are written as they lie");

constexpr uint8_t kStored = 0;
constexpr uint8_t kZstd = 1;
// The smallest output of zstd: magic, descriptor, size, and a block of one repeated byte.
constexpr size_t kZstdBytesMin = 10;

// On disk.
struct Header {
  uint8_t codec;
  uint8_t planes;  // 1 or 2.
  uint16_t zero;
  uint32_t count;
  uint32_t payload_bytes;
};
static_assert(sizeof(Header) == kTokenBlockHeaderBytes);

Status Damaged(const std::string& what) {
  return Status(StatusCode::kCorruption, "token block: " + what);
}

}  // namespace

Result<std::vector<std::byte>> EncodeTokens(std::span<const uint32_t> tokens, int level) {
  CAIRN_CHECK(tokens.size() <= kMaxBlockTokens);
  if (level < ZSTD_minCLevel() || level > ZSTD_maxCLevel()) {
    return Status(StatusCode::kInvalidArgument,
                  "token block: zstd has no level " + std::to_string(level));
  }
  const bool high = std::any_of(tokens.begin(), tokens.end(), [](uint32_t t) { return t >> 16; });
  std::vector<uint16_t> planes((high ? 2 : 1) * tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    planes[i] = static_cast<uint16_t>(tokens[i]);
    if (high) planes[tokens.size() + i] = static_cast<uint16_t>(tokens[i] >> 16);
  }
  const size_t plane_bytes = planes.size() * sizeof(uint16_t);
  std::vector<std::byte> block(kTokenBlockHeaderBytes + plane_bytes);
  std::byte* payload = block.data() + kTokenBlockHeaderBytes;
  uint8_t codec = kZstd;
  size_t size = 0;
  // A few tokens are not worth its set-up. zstd fails when the result would not be smaller.
  const bool tried = plane_bytes > kZstdBytesMin;
  if (tried) size = ZSTD_compress(payload, plane_bytes - 1, planes.data(), plane_bytes, level);
  if (!tried || ZSTD_isError(size)) {
    codec = kStored;
    size = plane_bytes;
    if (size > 0) std::memcpy(payload, planes.data(), size);
  }
  const Header header{codec, static_cast<uint8_t>(high ? 2 : 1), 0,
                      static_cast<uint32_t>(tokens.size()), static_cast<uint32_t>(size)};
  std::memcpy(block.data(), &header, sizeof(header));
  block.resize(kTokenBlockHeaderBytes + size);
  return block;
}

Status DecodeTokens(std::span<const std::byte> block, std::span<uint32_t> tokens) {
  CAIRN_CHECK(tokens.size() <= kMaxBlockTokens);
  if (block.size() < kTokenBlockHeaderBytes) {
    return Damaged(std::to_string(block.size()) + " bytes, a header takes " +
                   std::to_string(kTokenBlockHeaderBytes));
  }
  Header header;
  std::memcpy(&header, block.data(), sizeof(header));
  const std::span<const std::byte> payload = block.subspan(kTokenBlockHeaderBytes);
  if (header.codec > kZstd) {
    return Status(StatusCode::kUnsupportedFormat,
                  "token block: codec " + std::to_string(header.codec) + " is not known");
  }
  if (header.planes < 1 || header.planes > 2 || header.zero != 0) {
    return Damaged(std::to_string(header.planes) + " planes, reserved bits " +
                   std::to_string(header.zero));
  }
  if (CAIRN_KEPT(kLengthOfTokens) && header.count != tokens.size()) {
    return Damaged("it holds " + std::to_string(header.count) + " tokens, expected are " +
                   std::to_string(tokens.size()));
  }
  if (CAIRN_KEPT(kLengthOfTokenPayload) && header.payload_bytes != payload.size()) {
    return Damaged("the header says " + std::to_string(header.payload_bytes) +
                   " payload bytes, there are " + std::to_string(payload.size()));
  }
  std::vector<uint16_t> planes(header.planes * tokens.size());
  const size_t plane_bytes = planes.size() * sizeof(uint16_t);
  if (header.codec == kZstd) {
    const size_t size = ZSTD_decompress(planes.data(), plane_bytes, payload.data(), payload.size());
    if (ZSTD_isError(size)) return Damaged(std::string("zstd: ") + ZSTD_getErrorName(size));
    if (size != plane_bytes) {
      return Damaged("zstd gives " + std::to_string(size) + " bytes of " +
                     std::to_string(plane_bytes));
    }
  } else if (payload.size() != plane_bytes) {
    return Damaged("planes of " + std::to_string(payload.size()) + " bytes instead of " +
                   std::to_string(plane_bytes));
  } else if (plane_bytes > 0) {
    std::memcpy(planes.data(), payload.data(), plane_bytes);
  }
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = planes[i];
  if (header.planes == 2) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] |= uint32_t{planes[tokens.size() + i]} << 16;
    }
  }
  return Status::Ok();
}

}  // namespace cairn
