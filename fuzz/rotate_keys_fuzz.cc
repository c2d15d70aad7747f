// SPDX-License-Identifier: Apache-2.0
//
// Keys at other positions: any strides, counts and windows are refused, and then nothing is
// written, or give the bits that rows turned one by one have; and no byte outside of the rows is
// read or written, since each memory ends where the description says.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/codec/rotary.h"
#include "base/core/check.h"
#include "cairn/model.h"
#include "fuzz/input.h"

using namespace cairn;

namespace {

constexpr size_t kBytesMax = 16 << 10;

LayerGroup DrawGroup(fuzz::Input& input) {
  constexpr Dtype kDtypes[] = {Dtype::kF32, Dtype::kF16, Dtype::kBf16, Dtype::kF8E4M3};
  Plane plane;
  plane.name = "k";
  plane.heads = static_cast<uint32_t>(input.Below(4));
  plane.dtype = kDtypes[input.Below(4)];
  plane.row_bytes = static_cast<uint32_t>(input.Below(300));
  plane.rotary.state = static_cast<RotaryState>(input.Below(4));
  plane.rotary.pairing = static_cast<RotaryPairing>(input.Below(3));
  plane.rotary.first = static_cast<uint32_t>(input.Below(8));
  plane.rotary.interleaved = input.Below(2) == 1;
  for (uint64_t sections = input.Below(4); sections > 0; --sections) {
    plane.rotary.sections.push_back(static_cast<uint32_t>(input.Below(40)));
  }
  LayerGroup group;
  group.name = "g";
  group.inv_freq = RotaryFrequencies(static_cast<uint32_t>(2 * input.Below(70)), 10'000.0);
  group.planes = {plane};
  return group;
}

KeyStrides DrawStrides(fuzz::Input& input) {
  const auto stride = [&]() -> uint64_t {
    const uint8_t kind = input.Take<uint8_t>();
    if (kind < 96) return 0;
    return kind < 224 ? input.Below(1024) : input.Take<uint64_t>();
  };
  return {.layer = stride(), .token = stride(), .head = stride(), .element = stride()};
}

// Each turned alone, without tables: only of dense rows, whose places need no arithmetic.
void ExpectRowByRow(const LayerGroup& group, const KeyRotation& done, const std::byte* before) {
  const auto rotation = Rotation::Of(group, 0);
  CAIRN_CHECK(rotation.ok());
  const Plane& plane = group.planes[0];
  const size_t positions = rotation->positions(), tokens = done.to.size() / positions;
  std::vector<RotaryTurn> turns(rotation->pairs());
  std::vector<std::byte> row(plane.row_bytes);
  size_t at = 0;
  for (uint32_t layer = 0; layer < done.layers; ++layer) {
    for (size_t token = 0; token < tokens; ++token) {
      const auto to = done.to.subspan(token * positions, positions);
      if (done.from.empty()) {
        rotation->At(to, turns);
      } else {
        rotation->Between(done.from.subspan(token * positions, positions), to, turns);
      }
      for (uint32_t head = 0; head < plane.heads; ++head, at += plane.row_bytes) {
        rotation->Turn(turns, {before + at, plane.row_bytes}, row);
        CAIRN_CHECK(std::memcmp(row.data(), done.into.data() + at, plane.row_bytes) == 0);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  const LayerGroup group = DrawGroup(input);
  KeyRotation rotation;
  rotation.plane = input.Below(16) == 0 ? 1 : 0;
  rotation.layers = static_cast<uint32_t>(input.Below(4));
  std::vector<uint64_t> from(input.Below(8)),
      to(input.Below(16) == 0 ? input.Below(8) : from.size());
  if (group.planes[0].rotary.state == RotaryState::kBefore && input.Below(8) != 0) {
    to.resize(std::exchange(from, {}).size());
  }
  for (uint64_t& position : from) position = input.Take<uint64_t>() >> input.Below(64);
  for (uint64_t& position : to) position = input.Take<uint64_t>() >> input.Below(64);
  rotation.from = from;
  rotation.to = to;
  rotation.row_strides = DrawStrides(input);
  rotation.into_strides = DrawStrides(input);
  const size_t rows_bytes = input.Below(kBytesMax), into_bytes = input.Below(kBytesMax);
  const bool in_place = input.Below(2) == 1;
  // No vector: the checker of addresses must see the end of what was asked for.
  const std::unique_ptr<std::byte[]> rows(new std::byte[rows_bytes]);
  const std::unique_ptr<std::byte[]> other(new std::byte[into_bytes]);
  const auto content = input.rest();
  for (size_t i = 0; i < rows_bytes; ++i) {
    rows[i] = content.empty() ? std::byte{} : content[i % content.size()];
  }
  std::fill_n(other.get(), into_bytes, std::byte{0x5A});
  const std::vector<std::byte> before(rows.get(), rows.get() + rows_bytes);
  rotation.rows = {rows.get(), rows_bytes};
  rotation.into = in_place ? std::span(rows.get(), rows_bytes) : std::span(other.get(), into_bytes);
  if (in_place && input.Below(8) != 0) rotation.into_strides = rotation.row_strides;

  const Status status = RotateKeys(group, rotation);
  if (!status.ok()) {
    CAIRN_CHECK(status.code() == StatusCode::kInvalidArgument && !status.message().empty());
    CAIRN_CHECK(std::equal(before.begin(), before.end(), rows.get()));
    CAIRN_CHECK(std::all_of(other.get(), other.get() + into_bytes,
                            [](std::byte byte) { return byte == std::byte{0x5A}; }));
    return 0;
  }
  const bool dense = rotation.row_strides == KeyStrides{} && rotation.into_strides == KeyStrides{};
  if (dense) ExpectRowByRow(group, rotation, before.data());
  return 0;
}
