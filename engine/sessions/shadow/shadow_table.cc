// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/shadow/shadow_table.h"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <string>

#include "base/core/check.h"
#include "base/shadow/block_quantizer.h"
#include "base/shadow/landmarks.h"
#include "engine/sessions/shadow/constants.h"

namespace cairn::engine {

namespace {

enum FieldId : uint16_t {
  kVersion = 1,
  kGroup,
  kChunkTokens,
  kKeys,
  kLandmarkBits,
  kLocalTokens,
  kSinkTokens,
  kOutlierShare,
  kOutlierChunks,
  kRank,
  kRankEnergy
};
// Names the arithmetic in docs/shadow.md and the frames above.
constexpr uint64_t kShadowVersion = 1;
constexpr size_t kBasisHeadBytes = 8;
// Behind every position of a part or an outlier.
constexpr uint64_t kHeadBegin = uint64_t{1} << 32;
constexpr uint64_t kBasisBegin = uint64_t{1} << 33;
constexpr uint64_t kRowsBegin = uint64_t{1} << 34;

Status Damaged(const char* what) { return Status(StatusCode::kCorruption, what); }

sstable::FragmentSpec FragmentOf(const ShadowShape& shape, uint64_t node, uint64_t begin,
                                 uint32_t count, uint32_t page_rows) {
  return {.node = node,
          .lane = 1 + shape.group,
          .begin = begin,
          .count = count,
          .page_rows = page_rows,
          .slices = static_cast<uint32_t>(shape.rows())};
}

}  // namespace

FieldWriter EncodeShadowSpec(const ShadowSpec& spec, uint32_t group) {
  FieldWriter fields;
  fields.U64(kVersion, kShadowVersion);
  fields.U64(kGroup, group);
  fields.U64(kChunkTokens, spec.chunk_tokens);
  fields.U64(kKeys, static_cast<uint64_t>(spec.keys));
  fields.U64(kLandmarkBits, spec.landmark_bits);
  fields.U64(kLocalTokens, spec.local_tokens);
  fields.U64(kSinkTokens, spec.sink_tokens);
  fields.F64(kOutlierShare, spec.outlier_share);
  fields.U64(kOutlierChunks, spec.outlier_chunks);
  fields.U64(kRank, spec.rank);
  fields.F64(kRankEnergy, spec.rank_energy);
  return fields;
}

// ---------------------------------------------------------------- parts

ShadowPartLayout::ShadowPartLayout(const ShadowShape& shape, uint64_t first_token, uint32_t count)
    : first(first_token), tokens(count), chunks(count / shape.spec.chunk_tokens) {
  CAIRN_CHECK(tokens % shadow::kBlockRows == 0);
  landmark_blocks = chunks / shadow::kBlockRows;
  landmark_rows = chunks % shadow::kBlockRows;
  landmarks_bytes = size_t{landmark_blocks} * shape.landmark_layout().block_bytes();
  tail_bytes = size_t{landmark_rows} * shape.key_bytes;
  if (shape.has_codes()) {
    keys_bytes = size_t{tokens / shadow::kBlockRows} * shape.key_layout().block_bytes();
  }
}

std::vector<ShadowPartLayout> PartsOf(const ShadowShape& shape) {
  std::vector<ShadowPartLayout> parts;
  for (uint64_t first = 0; first < shape.plan.covered; first += kShadowPartTokens) {
    const uint64_t left = shape.plan.covered - first;
    parts.emplace_back(shape, first,
                       static_cast<uint32_t>(std::min<uint64_t>(left, kShadowPartTokens)));
  }
  return parts;
}

std::vector<std::byte> MakePart(const ShadowShape& shape, const ShadowPartLayout& part,
                                std::span<const uint16_t> keys) {
  CAIRN_CHECK(keys.size() == size_t{part.tokens} * shape.channels);
  constexpr uint32_t kRows = shadow::kBlockRows;
  const size_t block_elements = size_t{kRows} * shape.channels;
  std::vector<std::byte> frame(part.bytes());
  const std::span<std::byte> all(frame);

  const shadow::ChunkKeys rows{.fp16 = shape.fp16,
                               .channels = shape.channels,
                               .chunk_tokens = shape.spec.chunk_tokens,
                               .rows = keys};
  std::vector<uint16_t> landmarks(size_t{part.chunks} * shape.channels);
  shadow::MakeLandmarks(rows, landmarks);
  const auto landmark_layout = shape.landmark_layout();
  for (uint32_t block = 0; block < part.landmark_blocks; ++block) {
    const size_t bytes = landmark_layout.block_bytes();
    const auto of = std::span(landmarks).subspan(block * block_elements, block_elements);
    const std::span<std::byte> into = all.subspan(block * bytes, bytes);
    if (landmark_layout.bits == 16) {
      std::memcpy(into.data(), of.data(), bytes);
    } else {
      shadow::QuantiseBlock(landmark_layout, shape.fp16, of, into);
    }
  }
  if (part.tail_bytes != 0) {
    std::memcpy(&frame[part.tail_at()], &landmarks[part.landmark_blocks * block_elements],
                part.tail_bytes);
  }
  for (uint32_t block = 0; part.keys_bytes != 0 && block < part.tokens / kRows; ++block) {
    const size_t bytes = shape.key_layout().block_bytes();
    shadow::QuantiseBlock(shape.key_layout(), shape.fp16,
                          keys.subspan(block * block_elements, block_elements),
                          all.subspan(part.keys_at() + block * bytes, bytes));
  }
  const std::vector<float> cosines = shadow::ChunkCosines(rows, landmarks);
  std::memcpy(&frame[part.cosines_at()], cosines.data(), cosines.size() * sizeof(float));
  return frame;
}

// ---------------------------------------------------------------- writing

void BeginPart(const ShadowShape& shape, uint64_t node, const ShadowPartLayout& part,
               sstable::SnapshotWriter* table) {
  table->BeginFragment(FragmentOf(shape, node, part.first, part.tokens, part.tokens));
}

void BeginAlways(const ShadowShape& shape, uint64_t node, sstable::SnapshotWriter* table) {
  table->BeginFragment(
      FragmentOf(shape, node, shape.plan.covered, shape.always_chunks(), kShadowAlwaysChunks));
}

Status WriteHead(const ShadowShape& shape, uint64_t node, sstable::SnapshotWriter* table) {
  sstable::FragmentSpec head = FragmentOf(shape, node, shape.plan.covered + kHeadBegin, 1, 1);
  head.slices = 1;
  table->BeginFragment(head);
  const FieldWriter fields = EncodeShadowSpec(shape.spec, shape.group);
  return table->AddFrame(fields.bytes(), static_cast<uint32_t>(fields.bytes().size()));
}

Status WriteBases(const ShadowShape& shape, uint64_t node, std::span<const LayerBasis> bases,
                  sstable::SnapshotWriter* table) {
  CAIRN_CHECK(bases.size() == shape.layers);
  sstable::FragmentSpec fragment = FragmentOf(shape, node, shape.plan.covered + kBasisBegin, 1, 1);
  fragment.slices = shape.layers;
  table->BeginFragment(fragment);
  for (const LayerBasis& one : bases) {
    const auto vectors = std::as_bytes(std::span(one.basis.vectors));
    std::vector<std::byte> frame(kBasisHeadBytes + vectors.size());
    std::memcpy(frame.data(), &one.basis.rank, sizeof(uint32_t));
    std::memcpy(&frame[sizeof(uint32_t)], &one.kept, sizeof(float));
    std::memcpy(&frame[kBasisHeadBytes], vectors.data(), vectors.size());
    CAIRN_RETURN_IF_ERROR(table->AddFrame(frame, static_cast<uint32_t>(frame.size())));
  }
  return Status::Ok();
}

void BeginRows(const ShadowShape& shape, uint64_t node, const ShadowPartLayout& part,
               sstable::SnapshotWriter* table) {
  sstable::FragmentSpec fragment =
      FragmentOf(shape, node, kRowsBegin + part.first, part.tokens, part.tokens);
  fragment.slices = shape.layers;
  table->BeginFragment(fragment);
}

// ---------------------------------------------------------------- reading

namespace {

class Frames {
 public:
  Frames(const ShadowShape& shape, uint64_t covered, const ShadowFrames& frames)
      : shape_(shape), covered_(covered), frames_(frames), spec_(shape.spec, shape.group) {}

  Status Take(const sstable::FragmentEntry& fragment, uint32_t page,
              std::span<const std::byte> frame) {
    const uint64_t key = fragment.begin;
    row_ = key == at_ && page == 0 ? row_ + 1 : key == at_ ? row_ : 0;
    at_ = key;
    if (key == covered_ + kHeadBegin) return TakeHead(frame);
    if (key == covered_ + kBasisBegin) return TakeBasis(frame);
    if (key >= kRowsBegin) return TakeRows(fragment, frame);
    if (fragment.slices != shape_.rows() || row_ >= shape_.rows()) {
      return Damaged("a shadow of other heads");
    }
    if (key == covered_) return TakeAlways(fragment.count, page, frame);
    return TakePart(fragment, frame);
  }
  // All parts, and the right spec.
  Status End() const {
    const uint64_t rows = shape_.is_low_rank() ? covered_ * shape_.layers : 0;
    if (!has_head_ || tokens_ != covered_ * shape_.rows() || row_tokens_ != rows) {
      return Damaged("a shadow lacks a part");
    }
    return Status::Ok();
  }

 private:
  struct Spec {
    Spec(const ShadowSpec& spec, uint32_t group) : fields(EncodeShadowSpec(spec, group)) {}
    FieldWriter fields;
  };

  Status TakeHead(std::span<const std::byte> frame) {
    has_head_ = true;
    const std::span<const std::byte> want = spec_.fields.bytes();
    if (std::equal(frame.begin(), frame.end(), want.begin(), want.end())) return Status::Ok();
    return Status(StatusCode::kNotFound, "the shadow that is there is of another spec");
  }
  Status TakeAlways(uint32_t count, uint32_t page, std::span<const std::byte> frame) {
    const uint32_t first = page * kShadowAlwaysChunks;
    const bool is_whole = next_ >= covered_;
    const bool fits = covered_ != shape_.plan.covered || count == shape_.always_chunks();
    if (!is_whole || !fits || first >= count) {
      return Damaged("a shadow has other chunks than it says");
    }
    const uint32_t chunks = std::min(kShadowAlwaysChunks, count - first);
    const size_t rows = size_t{chunks} * shape_.spec.chunk_tokens;
    if (frame.size() !=
        chunks * sizeof(uint32_t) + rows * (shape_.key_bytes + shape_.value_bytes)) {
      return Damaged("rows of a shadow that are not as many as they are said to be");
    }
    return frames_.on_always ? frames_.on_always(first, chunks, row_, frame) : Status::Ok();
  }
  Status TakeBasis(std::span<const std::byte> frame) {
    LayerBasis one;
    one.basis.fp16 = shape_.fp16;
    one.basis.channels = shape_.all_channels();
    if (!shape_.is_low_rank() || row_ >= shape_.layers || frame.size() < kBasisHeadBytes) {
      return Damaged("vectors of a shadow that cannot be there");
    }
    std::memcpy(&one.basis.rank, frame.data(), sizeof(uint32_t));
    std::memcpy(&one.kept, frame.data() + sizeof(uint32_t), sizeof(float));
    frame = frame.subspan(kBasisHeadBytes);
    const uint64_t elements = uint64_t{one.basis.rank} * one.basis.channels;
    if (one.basis.rank == 0 || one.basis.rank > one.basis.channels ||
        frame.size() != elements * sizeof(uint16_t)) {
      return Damaged("vectors of a shadow that are not as many as they are said to be");
    }
    one.basis.vectors.resize(elements);
    std::memcpy(one.basis.vectors.data(), frame.data(), frame.size());
    ranks_.push_back(one.basis.rank);
    return frames_.on_basis ? frames_.on_basis(static_cast<uint32_t>(row_), one) : Status::Ok();
  }
  Status TakeRows(const sstable::FragmentEntry& fragment, std::span<const std::byte> frame) {
    const uint64_t first = fragment.begin - kRowsBegin;
    const uint64_t left = covered_ - std::min(covered_, first);
    if (ranks_.size() != shape_.layers || row_ >= shape_.layers || first % kShadowPartTokens != 0 ||
        fragment.count != std::min<uint64_t>(left, kShadowPartTokens) ||
        frame.size() != uint64_t{fragment.count} * ranks_[row_] * sizeof(uint16_t)) {
      return Damaged("rows of a shadow that cannot be there");
    }
    row_tokens_ += fragment.count;
    const ShadowPartLayout part(shape_, first, fragment.count);
    return frames_.on_rows ? frames_.on_rows(part, row_, frame) : Status::Ok();
  }
  Status TakePart(const sstable::FragmentEntry& fragment, std::span<const std::byte> frame) {
    const uint64_t left = covered_ - std::min(covered_, fragment.begin);
    if (row_ == 0) next_ += kShadowPartTokens;  // Where the next part begins.
    if (fragment.begin + kShadowPartTokens != next_ || fragment.pages != 1 ||
        fragment.count != std::min<uint64_t>(left, kShadowPartTokens)) {
      return Damaged("a part of a shadow that cannot be there");
    }
    const ShadowPartLayout part(shape_, fragment.begin, fragment.count);
    if (frame.size() != part.bytes()) return Damaged("a part of a shadow of another size");
    tokens_ += part.tokens;
    return frames_.on_part ? frames_.on_part(part, row_, frame) : Status::Ok();
  }

  const ShadowShape& shape_;
  const uint64_t covered_;
  const ShadowFrames& frames_;
  const Spec spec_;
  uint64_t at_ = UINT64_MAX;
  size_t row_ = 0;
  uint64_t tokens_ = 0, row_tokens_ = 0, next_ = 0;
  std::vector<uint32_t> ranks_;  // By layer.
  bool has_head_ = false;
};

}  // namespace

Status ReadShadow(const ShadowShape& shape, uint64_t covered, sstable::SnapshotTable* table,
                  const ShadowFrames& frames) {
  CAIRN_CHECK(covered <= shape.plan.covered);
  Frames reader(shape, covered, frames);
  Status first;
  table->VerifyEach(
      [&](const sstable::FragmentEntry& fragment, uint32_t page, const sstable::FrameEntry&,
          std::span<const std::byte> frame) {
        if (first.ok()) first = reader.Take(fragment, page, frame);
        return first;
      },
      [&](const Status& damage) {
        if (first.ok()) first = damage;
      });
  return first.ok() ? reader.End() : first;
}

Result<uint32_t> MostRank(const ShadowShape& shape, sstable::SnapshotTable* table) {
  CAIRN_ASSIGN_OR_RETURN(const auto fragments, table->Fragments());
  const auto bases = std::ranges::find(fragments, shape.plan.covered + kBasisBegin,
                                       &sstable::FragmentEntry::begin);
  if (bases == fragments.end()) return Damaged("a shadow lacks its vectors");
  CAIRN_ASSIGN_OR_RETURN(const auto frames, table->Frames(*bases));
  const uint64_t vector_bytes = uint64_t{shape.all_channels()} * sizeof(uint16_t);
  uint64_t most = 0;
  for (const sstable::FrameEntry& frame : frames) {
    most = std::max(most, frame.raw_bytes / vector_bytes);
  }
  if (most == 0 || most > shape.all_channels()) {
    return Damaged("vectors of a shadow that are not as many as they are said to be");
  }
  return static_cast<uint32_t>(most);
}

}  // namespace cairn::engine
