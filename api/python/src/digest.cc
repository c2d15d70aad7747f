// SPDX-License-Identifier: Apache-2.0
//
// Hashes for cairn._digest and cairn.hf: of bytes, and of a sample of memory that may have changed.
#include <algorithm>
#include <array>
#include <cstring>

#include "api/python/src/bytes.h"
#include "api/python/src/tensor.h"
#include "base/codec/hash.h"

namespace cairn::python {

namespace {

// The part of a region that is read: this many pieces of a cache line, spread evenly from its first
// byte to its last. An optimiser changes nearly every byte, and the price is paid for every token.
constexpr uint64_t kSamplePieces = 16;
constexpr uint64_t kPieceBytes = 64;

using Region = std::pair<uintptr_t, uint64_t>;  // Address, bytes.

nb::bytes PythonBytes(const Digest& digest) {
  std::array<uint64_t, 2> words = {digest.low, digest.high};
  return python::PythonBytes(std::as_bytes(std::span(words)));
}

nb::bytes HashOf(nb::handle buffer) {
  const Tensor tensor = ImportBytes(buffer, "buffer", false);
  return PythonBytes(Unlocked([&] { return HashWide({tensor.data, tensor.bytes()}); }));
}

uint64_t SampleOf(const Region& region) {
  const auto* const data = reinterpret_cast<const std::byte*>(region.first);  // NOLINT
  const uint64_t bytes = region.second;
  if (bytes <= kSamplePieces * kPieceBytes) return Hash({data, bytes});
  std::array<std::byte, kSamplePieces * kPieceBytes> sample;
  const uint64_t step = (bytes - kPieceBytes) / (kSamplePieces - 1);
  for (uint64_t i = 0; i < kSamplePieces; ++i) {
    const uint64_t at = i + 1 == kSamplePieces ? bytes - kPieceBytes : i * step;
    std::memcpy(sample.data() + i * kPieceBytes, data + at, kPieceBytes);
  }
  return Hash(sample);
}

// Keeps the interpreter's lock: nobody may free a tensor meanwhile.
nb::bytes SamplesOf(const std::vector<Region>& regions) {
  std::vector<uint64_t> words;
  words.reserve(3 * regions.size());
  for (const Region& region : regions) {
    words.insert(words.end(), {region.first, region.second, SampleOf(region)});
  }
  return PythonBytes(HashWide(std::as_bytes(std::span(words))));
}

}  // namespace

void BindDigest(nb::module_& module) {
  module.def("_hash", &HashOf, "buffer"_a,
             "XXH3-128 of contiguous memory of the host. Without the interpreter's lock.");
  module.def("_hash_samples", &SamplesOf, "regions"_a,
             "A digest of addresses, sizes and a fixed sample of the bytes of (address, bytes) "
             "pairs, which "
             "must be readable memory.");
}

}  // namespace cairn::python
