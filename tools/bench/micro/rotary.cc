// SPDX-License-Identifier: Apache-2.0
//
// Rows of keys turned to other positions, beside a memcpy of the same rows: pieces of 256 tokens, 8
// heads and 128 elements, whose table of turns is made before. kib: the memory that both arrays
// take: it fits a core's own cache, the cache that cores share, or neither.
// rotary/table makes the table of a piece, which all layers share.
#include <bit>
#include <cstring>
#include <memory>
#include <random>

#include "base/codec/float16.h"
#include "base/codec/rotary_table.h"
#include "base/core/check.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

constexpr size_t kTokens = 256, kHeads = 8, kElements = 128;
constexpr size_t kMemory[] = {size_t{512} << 10, size_t{8} << 20, size_t{128} << 20};  // Bytes.
constexpr Dtype kTypes[] = {Dtype::kBf16, Dtype::kF16, Dtype::kF32};

Rotation RotationOf(Dtype dtype, RotaryPairing pairing) {
  LayerGroup group = LayerGroup::FullAttention(1, kHeads, kElements, dtype);
  group.planes[0].rotary.pairing = pairing;
  group.inv_freq = RotaryFrequencies(kElements, 500'000.0);
  auto rotation = Rotation::Of(group, 0);
  CAIRN_CHECK(rotation.ok());
  return *rotation;
}

// Rows that come from anywhere and go to one place, as those of a chunk in a prompt.
void SetTurns(RotaryTable* table) {
  std::vector<uint64_t> from, to;
  for (uint64_t t = 0; t < kTokens; ++t) {
    from.push_back(t);
    to.push_back(20'000 + t);
  }
  table->SetBetween(from, to);
}

// Rows and where they go, in pieces of `piece` bytes.
class Arrays {
 public:
  // Made again where another type or size is wanted: filling takes longer than what is measured.
  static Arrays& Of(Dtype dtype, size_t memory) {
    static std::unique_ptr<Arrays> last;
    static Dtype of{};
    if (last == nullptr || of != dtype || last->rows.size() != memory / 2) {
      last = nullptr;
      last = std::make_unique<Arrays>(dtype, memory);
      of = dtype;
    }
    return *last;
  }
  Arrays(Dtype dtype, size_t memory)
      : piece(std::min(kTokens * kHeads * kElements * DtypeBytes(dtype), memory / 2)),
        pieces(memory / 2 / piece),
        rows(piece * pieces),
        into(rows.size(), std::byte{1}) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    const size_t bytes = DtypeBytes(dtype);
    for (size_t i = 0; i < piece; i += bytes) {
      const float drawn = normal(random);
      const auto bits = std::bit_cast<uint32_t>(drawn);
      const uint16_t half = Narrowed(dtype == Dtype::kF16, drawn);
      std::memcpy(&rows[i], bytes == 4 ? static_cast<const void*>(&bits) : &half, bytes);
    }
    for (size_t i = 1; i < pieces; ++i) std::memcpy(&rows[i * piece], rows.data(), piece);
  }
  const size_t piece, pieces;
  std::vector<std::byte> rows, into;
};

template <typename Move>
void EachPiece(::benchmark::State& state, Dtype dtype, size_t memory, const Move& move) {
  Arrays& arrays = Arrays::Of(dtype, memory);
  size_t at = 0;
  const Meter meter(&state, 1, arrays.piece);
  for (auto _ : state) {
    move(&arrays.rows[at * arrays.piece], &arrays.into[at * arrays.piece], arrays.piece);
    ::benchmark::ClobberMemory();
    at = (at + 1) % arrays.pieces;
  }
}

void Copy(::benchmark::State& state, Dtype dtype, size_t memory) {
  EachPiece(state, dtype, memory, [](const std::byte* rows, std::byte* into, size_t bytes) {
    std::memcpy(into, rows, bytes);
  });
}

void Turn(::benchmark::State& state, Dtype dtype, RotaryPairing pairing, RotaryPath path,
          size_t memory) {
  RotaryTable table(RotationOf(dtype, pairing), kTokens, path);
  SetTurns(&table);
  const auto element = static_cast<ptrdiff_t>(DtypeBytes(dtype));
  const ptrdiff_t head = element * ptrdiff_t{kElements}, token = head * ptrdiff_t{kHeads};
  EachPiece(state, dtype, memory, [&](const std::byte* rows, std::byte* into, size_t bytes) {
    table.Turn(0, bytes / static_cast<size_t>(token), kHeads, {rows, token, head, element},
               {into, token, head, element});
  });
}

void MakeTable(::benchmark::State& state) {
  RotaryTable table(RotationOf(Dtype::kBf16, RotaryPairing::kHalves), kTokens);
  const Meter meter(&state, kTokens * kElements / 2, 0);
  for (auto _ : state) SetTurns(&table);
}

}  // namespace

void RegisterRotary() {
  for (const size_t memory : kMemory) {
    const std::string suffix = "/kib:" + std::to_string(memory >> 10);
    for (const Dtype dtype : kTypes) {
      const std::string type = std::string("/") + DtypeName(dtype);
      ::benchmark::RegisterBenchmark(("rotary/memcpy" + type + suffix).c_str(), Copy, dtype,
                                     memory);
      for (const RotaryPairing pairing : {RotaryPairing::kHalves, RotaryPairing::kAdjacent}) {
        for (const RotaryPath path :
             {RotaryPath::kAvx512, RotaryPath::kAvx2, RotaryPath::kScalar}) {
          if (!RotaryPathSupported(path)) continue;
          const std::string how = std::string("/") + RotaryPairingName(pairing) + type;
          ::benchmark::RegisterBenchmark(
              ("rotary/" + std::string(RotaryPathName(path)) + how + suffix).c_str(), Turn, dtype,
              pairing, path, memory);
        }
      }
    }
  }
  ::benchmark::RegisterBenchmark("rotary/table", MakeTable);
}

}  // namespace cairn::bench::micro
