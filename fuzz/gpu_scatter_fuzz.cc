// SPDX-License-Identifier: Apache-2.0
//
// The device work of a restore, on the host's grid: any frame, into any view that a restore
// accepts, through any table, is decoded as base/codec does, or is a fault where that refuses; no
// byte is touched but those of wanted rows. A table is judged there like one in host memory, and
// like a plain loop does.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "base/codec/kv_frame.h"
#include "base/core/check.h"
#include "fuzz/input.h"
#include "fuzz/paged_plane.h"
#include "gpu/sim_kernels.h"

using namespace cairn;
using fuzz::Bytes;
using fuzz::PagedPlane;

namespace {

// A launch of small blocks: few fibers, so that many inputs are tried.
template <typename K>
void Launch(uint8_t seed, uint32_t blocks, uint32_t warps, const K& k) {
  static gpu::SimGrid grid(0);
  grid.Seed(seed);  // An input does the same again.
  gpu::LaunchShape shape = gpu::ShapeOf(k);
  shape.shared_bytes = shape.shared_bytes / (shape.threads / gpu::kWarp) * warps;
  shape.blocks = blocks;
  shape.threads = warps * gpu::kWarp;
  gpu::RunOnHost(grid, gpu::KernelOf<K>::kNumber, shape, std::as_bytes(std::span(&k, 1)));
}

// Memory of its very length, at `skew` from what everything is aligned to.
class Memory {
 public:
  Memory(size_t bytes, size_t skew) : bytes_(bytes) {
    void* at = nullptr;
    if (posix_memalign(&at, 64, std::max<size_t>(1, skew + bytes)) != 0) throw std::bad_alloc();
    memory_.reset(at);
    data_ = static_cast<std::byte*>(at) + skew;
    for (size_t i = 0; i < bytes; ++i) data_[i] = static_cast<std::byte>(i * 37 + 11);
  }
  std::byte* data() const { return data_; }
  Bytes Copy() const { return {data_, data_ + bytes_}; }

 private:
  struct Free {
    void operator()(void* at) const { std::free(at); }
  };
  std::unique_ptr<void, Free> memory_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// On the grid as by a loop, and as a table in host memory.
void LookAtTable(uint8_t seed, PagedPlane& paged) {
  gpu::TableVerdict expected, verdict;
  std::map<uint64_t, uint32_t> seen;
  for (uint32_t i = paged.first_entry(); i < paged.end_entry(); ++i) {
    const uint64_t entry = paged.entry(i);
    if (entry >= paged.entries_end()) {
      expected.outside = std::min<uint64_t>(expected.outside, i);
    } else if (++seen[entry] == 2) {
      expected.twice = std::min(expected.twice, entry);
    }
  }
  const auto end = static_cast<uint32_t>(paged.entries_end());
  std::vector<uint32_t> bits((end + 31) / 32);
  gpu::CheckTable k;
  k.entries = paged.group().table.entries;
  k.seen = bits.data();
  k.verdict = &verdict;
  k.first = paged.first_entry();
  k.end = paged.end_entry();
  k.entries_end = end;
  k.is_64_bit = paged.group().table.is_64_bit;
  Launch(seed, (k.end - k.first + gpu::kWarp - 1) / gpu::kWarp, 1, k);
  CAIRN_CHECK(verdict.outside == expected.outside && verdict.twice == expected.twice);
  const bool fine =
      verdict.outside == gpu::TableVerdict::kFine && verdict.twice == gpu::TableVerdict::kFine;
  CAIRN_CHECK(fine == paged.is_valid_on_host());
}

// A frame of this shape by the encoder, of a codec that is drawn; or what the input has.
Bytes DrawFrame(fuzz::Input& input, const FrameShape& shape) {
  const uint8_t kind = input.Take<uint8_t>() % 14;
  if (kind == 13) return {input.rest().begin(), input.rest().end()};
  Bytes raw(shape.raw_bytes());
  uint32_t state = 12345;
  for (size_t i = 0; i < raw.size(); ++i) {  // Exponents of a few values, mantissas of many.
    state = state * 1664525 + 1013904223;
    const uint32_t bits = state >> 24;
    raw[i] = static_cast<std::byte>(i % 2 == 0 || kind == 12 ? bits : (bits & 0x83u) | 0x3cu);
  }
  const size_t period = shape.raw_bytes() /
                        (kind == 8 ? uint64_t{shape.rows} * shape.channels : uint64_t{shape.rows});
  if (kind == 8 || kind == 9) {  // Const: of an element, of a row.
    for (size_t i = period; i < raw.size(); ++i) raw[i] = raw[i - period];
  }
  FrameOptions options;
  if (kind < 8) options.flags = kind;
  const bool halves = shape.dtype == Dtype::kBf16 || shape.dtype == Dtype::kF16;
  if ((kind == 10 || kind == 11) && halves) {
    options.scales = kind == 10 ? FrameScales::kChannel : FrameScales::kRow;
    if (!QuantiseFrame(shape, options.scales, raw)) options.scales = FrameScales::kNone;
  }
  Bytes frame(MaxFrameBytes(shape));
  frame.resize(EncodeFrame(shape, raw, frame, options));
  while (!input.empty()) {  // Each three bytes of the input change one.
    const uint64_t at = input.Take<uint16_t>() % frame.size();
    frame[at] ^= input.Take<std::byte>();
  }
  return frame;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  const uint8_t seed = input.Take<uint8_t>();
  PagedPlane paged(input);
  if (!paged.is_valid()) return 0;
  const GroupView& group = paged.group();
  if (group.table.kind != TableKind::kNone) LookAtTable(seed, paged);

  // Rows of a page, of which some are wanted.
  const uint64_t begin = group.position + input.Take<uint8_t>() % group.count;
  const uint64_t end = begin + 1 + input.Take<uint8_t>() % (group.position + group.count - begin);
  const uint64_t page = begin - std::min<uint64_t>(begin, input.Take<uint8_t>() % 20u);
  const uint64_t rows = end - page + input.Take<uint8_t>() % 4u;
  const FrameShape shape{static_cast<uint32_t>(rows),
                         paged.plane().row_bytes / DtypeBytes(paged.plane().dtype),
                         paged.plane().dtype};
  const uint8_t skews = input.Take<uint8_t>();
  const Bytes stored = DrawFrame(input, shape);
  Bytes raw(shape.raw_bytes());
  const bool decodes = DecodeFrame(shape, stored, raw).ok();

  const Memory memory(static_cast<size_t>(paged.memory_bytes()), skews % 8 == 7 ? skews / 8 : 0);
  const Memory packed(stored.size(), skews % 8 == 6 ? skews / 8 : 0);
  std::copy(stored.begin(), stored.end(), packed.data());
  const Bytes before = memory.Copy();
  const gpu::PagedView view = paged.Described();
  const uint32_t heads = paged.plane().heads;
  std::vector<gpu::FrameToScatter> frames;
  for (uint32_t head = 0; head < heads; ++head) {
    const auto frame =
        gpu::DescribeFrame(shape, stored, packed.data(), paged.BaseIn(memory.data(), head), view, 0,
                           gpu::DescribeRows(group, page, begin, end));
    if (!frame.ok()) {
      CAIRN_CHECK(!decodes);
      return 0;
    }
    frames.push_back(*frame);
  }
  std::vector<gpu::Fault> faults(heads, gpu::Fault{77});
  const gpu::DecodeScatter k{frames.data(), &view, faults.data(), heads};
  Launch(seed, 1, heads, k);

  Bytes marks(before.size()), expected = before;
  const bool finds_all = paged.Mark(begin, end, marks);
  for (const gpu::Fault fault : faults) {
    CAIRN_CHECK((fault == gpu::Fault::kNone) == (decodes && finds_all));
    CAIRN_CHECK(!decodes || finds_all || fault == gpu::Fault::kTable);
  }
  const Bytes after = memory.Copy();
  for (size_t i = 0; i < after.size(); ++i) {
    CAIRN_CHECK(marks[i] != std::byte{0} || after[i] == before[i]);
  }
  // A table that names something twice is refused before it is written through.
  if (!decodes || !paged.is_valid_on_host()) return 0;
  for (uint32_t head = 0; head < heads; ++head) {
    paged.Scatter(expected.data(), head, begin, end, raw, rows, begin - page);
  }
  CAIRN_CHECK(after == expected);
  return 0;
}
