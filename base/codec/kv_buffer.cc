// SPDX-License-Identifier: Apache-2.0
#include "cairn/kv_buffer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/core/check.h"
#include "base/core/text.h"

namespace cairn {

namespace {

bool IsShared(TensorLayout layout) { return layout >= TensorLayout::kVllmNhd; }
bool IsHeadMajor(TensorLayout layout) {
  return layout == TensorLayout::kHeadMajor || layout == TensorLayout::kVllmHnd ||
         layout == TensorLayout::kFlashInferHnd;
}

Status Bad(const GroupTensors& of, const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "tensors of group " + std::to_string(of.group) +
                                                  " (" + TensorLayoutName(of.layout) +
                                                  "): " + what);
}

Status CheckShared(const GroupTensors& of, const LayerGroup& group) {
  for (const Plane& plane : group.planes) {
    const Plane& first = group.planes[0];
    if (plane.heads != first.heads || plane.row_bytes != first.row_bytes) {
      return Bad(of, "planes " + Quoted(first.name) + " and " + Quoted(plane.name) +
                         " have other heads or rows, so no tensor holds both");
    }
  }
  return Status::Ok();
}

// Limits of the sizes, before any is multiplied.
Status CheckSizes(const GroupTensors& of) {
  if (of.layout > TensorLayout::kFlashInferHnd) return Bad(of, "there is no such layout");
  const bool paged = of.tokens_per_block != 0;
  if (paged && of.layout == TensorLayout::kLlamaCpp) return Bad(of, "tokens_per_block must be 0");
  if (paged && of.blocks == 0) return Bad(of, "blocks is 0");
  if (!paged && of.blocks != 0) return Bad(of, "tokens_per_block is 0, and blocks is not");
  if (!paged && of.tokens == 0) return Bad(of, "tokens and blocks are 0");
  if (paged && of.tokens != 0) return Bad(of, "tokens is given, and blocks are");
  if (of.blocks > UINT32_MAX || of.tokens > UINT32_MAX) return Bad(of, "is too large");
  if (of.table.kind != TableKind::kNone) {
    if (of.table.count > UINT32_MAX) return Bad(of, "table.count is too large");
    return of.first_token == 0 ? Status::Ok() : Bad(of, "first_token is given, and a table is");
  }
  const uint64_t there = paged ? of.blocks * of.tokens_per_block : of.tokens;
  if (of.first_token > there || of.count > there - of.first_token) {
    return Bad(of, "tokens [" + std::to_string(of.first_token) + ", " +
                       std::to_string(of.first_token) + " + " + std::to_string(of.count) + ") of " +
                       std::to_string(there));
  }
  if (paged && of.first_token % of.tokens_per_block != 0) {
    return Bad(of, "first_token is " + std::to_string(of.first_token) +
                       ", no multiple of tokens_per_block");
  }
  return Status::Ok();
}

// One plane. `offset`: where its first byte lies in its tensor.
struct PlaneAt {
  int64_t offset = 0;
  PlaneView view{};
};

PlaneAt PlaneIn(const GroupTensors& of, const Plane& plane, uint32_t index, size_t planes) {
  const bool paged = of.tokens_per_block != 0;
  const auto row = static_cast<int64_t>(plane.row_bytes);
  const auto token = row * plane.heads;
  const auto in_block = static_cast<int64_t>(paged ? of.tokens_per_block : of.tokens);
  const int64_t block = token * in_block;
  PlaneAt at;
  at.view.token_stride = IsHeadMajor(of.layout) ? row : token;
  at.view.head_stride = IsHeadMajor(of.layout) ? row * in_block : row;
  at.view.block_stride = paged ? block : 0;
  if (of.layout == TensorLayout::kLlamaCpp && plane.role == PlaneRole::kValue) {
    const auto element = static_cast<int64_t>(DtypeBytes(plane.dtype));
    at.view.token_stride = element;
    at.view.element_stride = element * in_block;
    at.view.head_stride = row * in_block;
  }
  if (of.layout == TensorLayout::kVllmNhd || of.layout == TensorLayout::kVllmHnd) {
    at.offset = index * block * static_cast<int64_t>(paged ? of.blocks : 1);
  } else if (IsShared(of.layout)) {
    at.offset = index * block;
    if (paged) at.view.block_stride = block * static_cast<int64_t>(planes);
  }
  if (paged) {
    at.offset += static_cast<int64_t>(of.first_token / of.tokens_per_block) * at.view.block_stride;
  } else {
    at.offset += static_cast<int64_t>(of.first_token) * at.view.token_stride;
  }
  return at;
}

}  // namespace

const char* TensorLayoutName(TensorLayout layout) {
  switch (layout) {
    case TensorLayout::kTokenMajor: return "token_major";
    case TensorLayout::kHeadMajor: return "head_major";
    case TensorLayout::kLlamaCpp: return "llama_cpp";
    case TensorLayout::kVllmNhd: return "vllm_nhd";
    case TensorLayout::kVllmHnd: return "vllm_hnd";
    case TensorLayout::kFlashInferNhd: return "flashinfer_nhd";
    case TensorLayout::kFlashInferHnd: return "flashinfer_hnd";
  }
  return "unknown";
}

// ---------------------------------------------------------------- views

// Arrays of arrays: a container is not moved once something points into it.
struct OwnedKvView::Arrays {
  struct OfGroup {
    std::vector<std::vector<std::byte*>> bases;  // By plane.
    std::vector<PlaneView> planes;
    std::vector<int64_t> wide;
    std::vector<int32_t> narrow;
  };

  explicit Arrays(size_t count) : of(count), groups(count) { view.groups = groups; }

  Status Add(const ModelSpec& model, size_t index, const GroupTensors& tensors) {
    if (tensors.group >= model.groups.size()) {
      return Bad(tensors, "the model has " + std::to_string(model.groups.size()) + " groups");
    }
    const LayerGroup& group = model.groups[tensors.group];
    if (group.planes.empty()) return Bad(tensors, "the model's group has no planes");
    CAIRN_RETURN_IF_ERROR(CheckSizes(tensors));
    const bool shared = IsShared(tensors.layout);
    if (shared) CAIRN_RETURN_IF_ERROR(CheckShared(tensors, group));
    const size_t planes = group.planes.size();
    const size_t of_layer = shared ? 1 : planes;
    const size_t layers = tensors.tensors.size() / of_layer;
    if (tensors.tensors.size() % of_layer != 0 || layers > group.layers) {
      return Bad(tensors, std::to_string(tensors.tensors.size()) + " tensors; all " +
                              std::to_string(group.layers) + " layers have " +
                              std::to_string(group.layers * of_layer));
    }
    const auto null = std::find(tensors.tensors.begin(), tensors.tensors.end(), nullptr);
    if (null != tensors.tensors.end()) {
      return Bad(tensors, "tensor " + std::to_string(null - tensors.tensors.begin()) + " is null");
    }
    OfGroup& own = of[index];
    own.bases.resize(planes);
    for (uint32_t plane = 0; plane < planes; ++plane) {
      PlaneAt at = PlaneIn(tensors, group.planes[plane], plane, planes);
      for (size_t layer = 0; layer < layers; ++layer) {
        const size_t tensor = layer * of_layer + (shared ? 0 : plane);
        own.bases[plane].push_back(tensors.tensors[tensor] + at.offset);
      }
      at.view.layer_bases = own.bases[plane];
      own.planes.push_back(at.view);
    }
    // Without blocks a table of slots is one of places in a single block, which bounds it.
    const bool slots = tensors.table.kind == TableKind::kSlots;
    GroupView& made = groups[index];
    made = {.group = tensors.group,
            .layer_begin = tensors.layer_begin,
            .position = tensors.position,
            .count = tensors.count,
            .tokens_per_block = tensors.tokens_per_block,
            .table = TableOf(tensors.table, &own),
            .planes = own.planes};
    if (tensors.tokens_per_block != 0) {
      made.blocks = tensors.blocks - tensors.first_token / tensors.tokens_per_block;
    } else if (slots) {
      made.tokens_per_block = static_cast<uint32_t>(tensors.tokens);
      made.blocks = 1;
    }
    return Status::Ok();
  }

  static BlockTable TableOf(BlockTable table, OfGroup* own) {
    if (table.kind == TableKind::kNone || table.on_device || table.entries == nullptr) return table;
    if (table.is_64_bit) {
      const auto* const entries = static_cast<const int64_t*>(table.entries);
      own->wide.assign(entries, entries + table.count);
      table.entries = own->wide.data();
    } else {
      const auto* const entries = static_cast<const int32_t*>(table.entries);
      own->narrow.assign(entries, entries + table.count);
      table.entries = own->narrow.data();
    }
    return table;
  }

  std::vector<OfGroup> of;
  std::vector<GroupView> groups;
  KvView view;
};

OwnedKvView::OwnedKvView() = default;
OwnedKvView::OwnedKvView(OwnedKvView&&) noexcept = default;
OwnedKvView& OwnedKvView::operator=(OwnedKvView&&) noexcept = default;
OwnedKvView::~OwnedKvView() = default;

const KvView* OwnedKvView::view() const {
  static constexpr KvView kNone;
  return arrays_ == nullptr ? &kNone : &arrays_->view;
}

Result<OwnedKvView> OwnedKvView::Make(const ModelSpec& model, std::span<const GroupTensors> groups,
                                      KvUse use, MemoryKind memory, uint32_t device) {
  OwnedKvView owned;
  owned.arrays_ = std::make_unique<Arrays>(groups.size());
  owned.arrays_->view.memory = memory;
  owned.arrays_->view.device = device;
  for (size_t i = 0; i < groups.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(owned.arrays_->Add(model, i, groups[i]));
  }
  CAIRN_RETURN_IF_ERROR(ValidateKvView(model, owned.arrays_->view, use));
  return owned;
}

// ---------------------------------------------------------------- buffers

namespace {

// Rows of a group that a branch of this many tokens can have.
std::pair<uint64_t, uint64_t> RowsOf(const LayerGroup& group, uint64_t tokens) {
  if (tokens == 0) return {0, 0};
  switch (group.retention.kind) {
    case Retention::kCheckpoint: return {tokens - 1, 1};
    case Retention::kPerRequest: return {0, 1};
    default: return {0, tokens};
  }
}

}  // namespace

KvBuffer::KvBuffer(const ModelSpec& model, uint64_t tokens) : model_(model), tokens_(tokens) {
  CAIRN_CHECK(model.Validate().ok());
  uint64_t bytes = 0;
  for (const LayerGroup& group : model.groups) {
    const auto [position, count] = RowsOf(group, tokens);
    parts_.push_back({.position = position, .count = count, .tensors = {}});
    bytes += group.token_bytes() * count;
  }
  bytes_.resize(bytes);
  std::byte* at = bytes_.data();
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (uint32_t layer = 0; layer < model.groups[i].layers; ++layer) {
      for (const Plane& plane : model.groups[i].planes) {
        parts_[i].tensors.push_back(at);
        at += parts_[i].count * plane.heads * plane.row_bytes;
      }
    }
  }
  all_ = View(0, tokens);
}

OwnedKvView KvBuffer::View(uint64_t begin, uint64_t end) const {
  CAIRN_CHECK(begin <= end && end <= tokens_);
  std::vector<GroupTensors> groups;
  for (uint32_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const uint64_t first = std::max(begin, part.position);
    const uint64_t last = std::min(end, part.position + part.count);
    if (first >= last) continue;
    groups.push_back({.group = i,
                      .layout = TensorLayout::kHeadMajor,
                      .tensors = part.tensors,
                      .tokens = part.count,
                      .position = first,
                      .count = last - first,
                      .first_token = first - part.position});
  }
  auto view = OwnedKvView::Make(model_, groups, KvUse::kRestore);
  CAIRN_CHECK(view.ok());
  return std::move(*view);
}

std::span<std::byte> KvBuffer::Row(uint32_t group, uint32_t layer, uint32_t plane, uint32_t head,
                                   uint64_t position) {
  CAIRN_CHECK(group < parts_.size());
  const Part& part = parts_[group];
  const std::vector<Plane>& planes = model_.groups[group].planes;
  CAIRN_CHECK(layer < model_.groups[group].layers && plane < planes.size());
  CAIRN_CHECK(head < planes[plane].heads && position >= part.position &&
              position < part.position + part.count);
  const uint64_t row = uint64_t{head} * part.count + (position - part.position);
  return {part.tensors[layer * planes.size() + plane] + row * planes[plane].row_bytes,
          planes[plane].row_bytes};
}

}  // namespace cairn
