// SPDX-License-Identifier: Apache-2.0
#include "base/codec/rotary_table.h"

#include <cstring>

#include "base/core/check.h"
#include "base/core/cpu.h"
#include "base/core/mutation.h"

namespace cairn {

namespace internal {

void CopyWindow(const RotaryJob& job, const std::byte* from, std::byte* into) {
  const size_t bytes = DtypeBytes(job.dtype), elements = 2 * size_t{job.pairs};
  const bool dense = job.from.element_stride == static_cast<ptrdiff_t>(bytes) &&
                     job.into.element_stride == job.from.element_stride;
  const size_t step = dense ? elements : 1;
  for (size_t i = 0; i < elements; i += step) {
    const auto at = static_cast<ptrdiff_t>(i);
    std::memcpy(into + at * job.into.element_stride, from + at * job.from.element_stride,
                step * bytes);
  }
}

void TurnRowsScalar(const RotaryJob& job) {
  EachRow(job, [&](const float* cos, const float* sin, bool, const std::byte* from,
                   std::byte* into) { TurnPairs(job, cos, sin, from, into, 0); });
}

}  // namespace internal

namespace {

using internal::RotaryJob;
using internal::RotaryStays;

// The padding of a token's cosines and sines: what the widest loop reads at once.
constexpr size_t kPadding = 32;

internal::RotaryLayout LayoutOf(RotaryPath path, Dtype dtype, bool adjacent) {
  if (path == RotaryPath::kScalar) return {};
  if (dtype == Dtype::kF16) return {.twice = adjacent};
  if (dtype != Dtype::kBf16 || adjacent) return {};
  return {.block = 2 * (path == RotaryPath::kAvx512 ? internal::kRotaryLanesAvx512
                                                    : internal::kRotaryLanesAvx2)};
}

void TurnRows(RotaryPath path, const RotaryJob& job) {
#if defined(__x86_64__)
  const auto bytes = static_cast<ptrdiff_t>(DtypeBytes(job.dtype));
  if (job.from.element_stride == bytes && job.into.element_stride == bytes) {
    if (path == RotaryPath::kAvx512) return internal::TurnRowsAvx512(job);
    if (path == RotaryPath::kAvx2) return internal::TurnRowsAvx2(job);
  }
#endif
  static_cast<void>(path);
  internal::TurnRowsScalar(job);
}

// Copies elements [begin, end) of each row.
void CopyElements(size_t element_bytes, size_t begin, size_t end, size_t tokens, size_t heads,
                  const RotaryRows<const std::byte>& from, const RotaryRows<std::byte>& into) {
  if (begin == end) return;
  const auto at = [](const auto& rows, size_t t, size_t h, size_t e) {
    return rows.data + static_cast<ptrdiff_t>(t) * rows.token_stride +
           static_cast<ptrdiff_t>(h) * rows.head_stride +
           static_cast<ptrdiff_t>(e) * rows.element_stride;
  };
  const auto bytes = static_cast<ptrdiff_t>(element_bytes);
  const bool dense = from.element_stride == bytes && into.element_stride == bytes;
  const size_t step = dense ? end - begin : 1;
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t h = 0; h < heads; ++h) {
      for (size_t e = begin; e < end; e += step) {
        std::memcpy(at(into, t, h, e), at(from, t, h, e), step * element_bytes);
      }
    }
  }
}

}  // namespace

bool RotaryPathSupported(RotaryPath path) {
  switch (path) {
    case RotaryPath::kScalar: return true;
    case RotaryPath::kAvx2: return CpuHasAvx2();
    case RotaryPath::kAvx512: return CpuHasAvx512();
  }
  return false;
}

RotaryPath BestRotaryPath() {
  if (RotaryPathSupported(RotaryPath::kAvx512)) return RotaryPath::kAvx512;
  return RotaryPathSupported(RotaryPath::kAvx2) ? RotaryPath::kAvx2 : RotaryPath::kScalar;
}

const char* RotaryPathName(RotaryPath path) {
  switch (path) {
    case RotaryPath::kScalar: return "scalar";
    case RotaryPath::kAvx2: return "avx2";
    case RotaryPath::kAvx512: return "avx512";
  }
  return "unknown";
}

RotaryTable::RotaryTable(const Rotation& rotation, size_t max_tokens, RotaryPath path)
    : rotation_(rotation),
      path_(path),
      layout_(LayoutOf(path, rotation.dtype(), rotation.adjacent())),
      padded_((rotation.pairs() * (layout_.twice ? 2 : 1) + kPadding - 1) / kPadding * kPadding),
      lines_(max_tokens * token_lines()),
      stays_(max_tokens),
      turns_(rotation.pairs()) {
  CAIRN_CHECK(RotaryPathSupported(path));
}

void RotaryTable::Put(size_t token) {
  float* const cos = lines_[token * token_lines()].lane;
  float* const sin = cos + padded_;
  const uint32_t pairs = rotation_.pairs();
  size_t stay = 0;
  for (uint32_t i = 0; i < pairs; ++i) {
    const uint32_t place = layout_.At(i);
    cos[place] = turns_[i].cos;
    sin[place] = layout_.twice ? -turns_[i].sin : turns_[i].sin;
    if (layout_.twice) {
      cos[place + 1] = turns_[i].cos;
      sin[place + 1] = turns_[i].sin;
    }
    if (turns_[i].cos == 1.0F && turns_[i].sin == 0.0F) ++stay;
  }
  stays_[token] = stay == 0       ? RotaryStays::kNone
                  : stay == pairs ? RotaryStays::kAll
                                  : RotaryStays::kSome;
}

void RotaryTable::SetBetween(std::span<const uint64_t> from, std::span<const uint64_t> to) {
  const size_t positions = rotation_.positions();
  CAIRN_CHECK(from.size() == to.size() && to.size() % positions == 0);
  tokens_ = to.size() / positions;
  CAIRN_CHECK(tokens_ <= stays_.size());
  for (size_t t = 0; t < tokens_; ++t) {
    rotation_.Between(from.subspan(t * positions, positions), to.subspan(t * positions, positions),
                      turns_);
    Put(t);
  }
}

void RotaryTable::SetAt(std::span<const uint64_t> at) {
  const size_t positions = rotation_.positions();
  CAIRN_CHECK(at.size() % positions == 0);
  tokens_ = at.size() / positions;
  CAIRN_CHECK(tokens_ <= stays_.size());
  for (size_t t = 0; t < tokens_; ++t) {
    rotation_.At(at.subspan(t * positions, positions), turns_);
    Put(t);
  }
}

void RotaryTable::Turn(size_t first, size_t count, size_t heads,
                       const RotaryRows<const std::byte>& from,
                       const RotaryRows<std::byte>& into) const {
  CAIRN_CHECK(first <= tokens_ && count <= tokens_ - first);
  if (count == 0) return;
  const size_t bytes = DtypeBytes(rotation_.dtype());
  const size_t begin = rotation_.first(), end = begin + 2 * size_t{rotation_.pairs()};
  const bool turned = CAIRN_KEPT(kKeysTurned);
  if (from.data != into.data) {
    CopyElements(bytes, 0, turned ? begin : end, count, heads, from, into);
    CopyElements(bytes, end, rotation_.elements(), count, heads, from, into);
  }
  if (!turned) return;
  const auto window = [&](const auto& rows) {
    return rows.data + static_cast<ptrdiff_t>(begin) * rows.element_stride;
  };
  TurnRows(path_,
           {.dtype = rotation_.dtype(),
            .adjacent = rotation_.adjacent(),
            .pairs = rotation_.pairs(),
            .layout = layout_,
            .padded = padded_,
            .turns = lines_[first * token_lines()].lane,
            .stays = stays_.data() + first,
            .tokens = count,
            .heads = heads,
            .from = {window(from), from.token_stride, from.head_stride, from.element_stride},
            .into = {window(into), into.token_stride, into.head_stride, into.element_stride}});
}

}  // namespace cairn
