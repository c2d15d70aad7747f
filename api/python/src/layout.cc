// SPDX-License-Identifier: Apache-2.0
//
// Turns tensors with a named order of dimensions into bases and strides, each checked against the
// model: errors name the tensor, the plane and the dimension.
#include <algorithm>
#include <string_view>

#include "api/python/src/kv.h"
#include "api/python/src/names.h"
#include "base/core/text.h"

namespace cairn::python {

namespace {

// Dimensions: L layer, P plane, B block, T token (of the block), H head, R row: an element of it,
// or, in the last place, all dimensions that are left.
constexpr std::string_view kDimensions = "LPBTHR";

struct Named {
  std::string_view name, axes;
  bool may_have_blocks;  // `axes` are those without blocks.
};
// As cairn::TensorLayout.
constexpr Named kLayouts[] = {
    {"token_major", "THR", true},       {"head_major", "HTR", true},
    {"llama_cpp", "THR", false},        {"vllm_nhd", "PBTHR", false},
    {"vllm_hnd", "PBHTR", false},       {"flashinfer_nhd", "BPTHR", false},
    {"flashinfer_hnd", "BPHTR", false},
};

std::string AxesOf(const std::string& layout, size_t dimensions) {
  for (const Named& named : kLayouts) {
    if (layout != named.name) continue;
    const std::string axes(named.axes);
    return named.may_have_blocks && dimensions == axes.size() + 1 ? "B" + axes : axes;
  }
  const bool known = !layout.empty() && layout.find_first_not_of(kDimensions) == std::string::npos;
  std::string sorted = layout;
  std::ranges::sort(sorted);
  if (!known || std::ranges::adjacent_find(sorted) != sorted.end() ||
      layout.find('R') == std::string::npos) {
    std::string names;
    for (const Named& named : kLayouts) names += std::string(named.name) + ", ";
    BadArgument("layout: " + Quoted(layout) + " is none of " + names +
                "and no order of dimensions out of L, P, B, T, H and R");
  }
  return layout;
}

// The facts about one dimension of one tensor.
struct Dimension {
  int64_t size = 1, stride = 0;
};

// A tensor of planes [plane, plane + planes), read by its axes.
class Reader {
 public:
  Reader(const Tensor& tensor, std::string axes, std::string what)
      : tensor_(tensor), axes_(std::move(axes)), what_(std::move(what)) {
    const bool row_last = axes_.back() == 'R';
    const size_t there = tensor.shape.size();
    if (there != axes_.size() && !(row_last && there > axes_.size())) {
      Refuse("has " + std::to_string(there) + " dimensions, " + ShapeText(tensor.shape) + "; " +
             std::to_string(axes_.size()) + " are expected, [" + axes_ + "]");
    }
  }

  Dimension Of(char axis) const {
    const size_t at = axes_.find(axis);
    if (at == std::string::npos) return {};
    if (axis != 'R' || at + 1 != axes_.size()) return {tensor_.shape[at], tensor_.strides[at]};
    Dimension row{.size = 1, .stride = tensor_.strides.back()};
    for (size_t i = at; i < tensor_.shape.size(); ++i) row.size *= tensor_.shape[i];
    if (at + 1 == tensor_.shape.size()) return row;
    if (!tensor_.DenseFrom(at)) {
      Refuse("dimensions of a row must be contiguous; the strides are " +
             ShapeText(tensor_.strides) + " bytes");
    }
    // Not the last dimension's own stride: if that has one element, its stride means nothing.
    row.stride = tensor_.item_bytes();
    return row;
  }
  bool Has(char axis) const { return axes_.find(axis) != std::string::npos; }

  // Checks it against the model's description of a plane.
  void CheckPlane(const Plane& plane) const {
    const std::string& dtype = tensor_.dtype;
    const std::string wanted = Word(plane.dtype);
    const bool bits = plane.dtype != Dtype::kF32 &&
                      (dtype == "u16" || dtype == "i16" || dtype == "u8" || dtype == "i8");
    const bool same_width = tensor_.item_bytes() == DtypeBytes(plane.dtype);
    if (plane.dtype != Dtype::kOpaque && dtype != wanted && !(bits && same_width)) {
      Refuse("is " + dtype + ", and plane " + Quoted(plane.name) + " is " + wanted);
    }
    const Dimension heads = Of('H');
    if (heads.size != plane.heads) {
      Refuse("has " + std::to_string(heads.size) + " heads (dimension H of [" + axes_ + "], " +
             ShapeText(tensor_.shape) + "), and plane " + Quoted(plane.name) + " has " +
             std::to_string(plane.heads));
    }
    const Dimension row = Of('R');
    if (row.size * tensor_.item_bytes() != plane.row_bytes) {
      Refuse("has rows of " + std::to_string(row.size) + " elements, " +
             std::to_string(row.size * tensor_.item_bytes()) + " bytes (dimension R of [" + axes_ +
             "], " + ShapeText(tensor_.shape) + "), and those of plane " + Quoted(plane.name) +
             " have " + std::to_string(plane.row_bytes) + " bytes");
    }
    // A stride steps over elements of the plane: for opaque planes over single bytes.
    if (row.stride != tensor_.item_bytes() && tensor_.item_bytes() != DtypeBytes(plane.dtype)) {
      Refuse("has elements of " + std::to_string(tensor_.item_bytes()) + " bytes, " +
             std::to_string(row.stride) + " bytes apart; those of plane " + Quoted(plane.name) +
             ", which is " + wanted + ", must be contiguous");
    }
  }

  PlaneView Strides(const Plane& plane) const {
    const Dimension row = Of('R');
    PlaneView view;
    view.block_stride = Of('B').stride;
    // A block without a dimension of tokens is one token.
    view.token_stride = Has('T') ? Of('T').stride : plane.row_bytes;
    view.head_stride = Has('H') ? Of('H').stride : plane.row_bytes;
    view.element_stride = row.stride == tensor_.item_bytes() ? 0 : row.stride;
    return view;
  }

  [[noreturn]] void Refuse(const std::string& why) const { BadArgument(what_ + " " + why); }

 private:
  const Tensor& tensor_;
  std::string axes_;
  std::string what_;
};

bool SameStrides(const PlaneView& a, const PlaneView& b) {
  return a.block_stride == b.block_stride && a.token_stride == b.token_stride &&
         a.head_stride == b.head_stride && a.element_stride == b.element_stride;
}

class Maker {
 public:
  explicit Maker(GroupMemory* memory) : memory_(*memory), group_(memory->of()) {}

  void Make() {
    const std::vector<Tensor>& tensors = memory_.tensors;
    if (tensors.empty()) BadArgument("tensors: there are none");
    axes_ = AxesOf(memory_.layout, tensors[0].shape.size());
    const size_t planes = group_.planes.size();
    memory_.bases.resize(planes);
    memory_.planes.resize(planes);
    const bool all_layers = axes_.find('L') != std::string::npos;
    const bool all_planes = axes_.find('P') != std::string::npos;
    const size_t of_layer = all_planes ? 1 : planes;
    const size_t of_all = all_layers ? of_layer : of_layer * group_.layers;
    if (all_layers ? tensors.size() != of_all
                   : tensors.size() % of_layer != 0 || tensors.size() > of_all) {
      BadArgument("tensors: " + std::to_string(tensors.size()) + " of group " +
                  Quoted(group_.name) + " in layout " + memory_.layout + "; its " +
                  std::to_string(group_.layers) + " layers have " + std::to_string(of_all));
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const size_t layer = all_layers ? 0 : i / of_layer;
      for (size_t plane = 0; plane < planes; ++plane) {
        if (!all_planes && plane != i % of_layer) continue;
        AddPlane(i, layer, plane);
      }
    }
    memory_.layers = static_cast<uint32_t>(memory_.bases[0].size());
    if (memory_.layers > group_.layers) {
      BadArgument("tensors: " + std::to_string(memory_.layers) + " layers, and group " +
                  Quoted(group_.name) + " has " + std::to_string(group_.layers));
    }
  }

 private:
  void AddPlane(size_t index, size_t layer, size_t plane_index) {
    const Tensor& tensor = memory_.tensors[index];
    const Plane& plane = group_.planes[plane_index];
    // llama.cpp without flash attention has values transposed.
    const bool transposed = memory_.layout == "llama_cpp" && plane.role == PlaneRole::kValue;
    const Reader reader(tensor, transposed ? "HRT" : axes_,
                        "tensors[" + std::to_string(index) + "] (layer " + std::to_string(layer) +
                            ", plane " + Quoted(plane.name) + " of group " + Quoted(group_.name) +
                            ")");
    reader.CheckPlane(plane);
    const Dimension planes = reader.Of('P');
    if (reader.Has('P') && planes.size != static_cast<int64_t>(group_.planes.size())) {
      reader.Refuse("has " + std::to_string(planes.size) + " planes, and the group has " +
                    std::to_string(group_.planes.size()));
    }
    CheckPlace(tensor, reader);
    const PlaneView strides = reader.Strides(plane);
    std::vector<std::byte*>& bases = memory_.bases[plane_index];
    if (bases.empty()) {
      memory_.planes[plane_index] = strides;
    } else if (!SameStrides(strides, memory_.planes[plane_index])) {
      reader.Refuse("has strides of " + ShapeText(tensor.strides) +
                    " bytes, which are not those of the layers before it");
    }
    const Dimension layers = reader.Of('L');
    for (int64_t i = 0; i < layers.size; ++i) {
      bases.push_back(tensor.data + i * layers.stride +
                      static_cast<int64_t>(plane_index) * planes.stride);
    }
  }

  // Blocks, tokens and memory must be the same for all tensors.
  void CheckPlace(const Tensor& tensor, const Reader& reader) {
    const uint64_t blocks = reader.Has('B') ? static_cast<uint64_t>(reader.Of('B').size) : 0;
    const auto tokens = static_cast<uint64_t>(reader.Of('T').size);
    if (first_) {
      first_ = false;
      memory_.blocks = blocks;
      memory_.tokens_per_block = tokens;
      memory_.memory = tensor.memory;
      memory_.device = tensor.device;
    }
    if (tokens == 0 || (reader.Has('B') && blocks == 0)) reader.Refuse("is empty");
    if (tokens > UINT32_MAX || blocks > UINT32_MAX) reader.Refuse("is too large");
    if (blocks != memory_.blocks || tokens != memory_.tokens_per_block) {
      reader.Refuse("has " + std::to_string(blocks) + " blocks of " + std::to_string(tokens) +
                    " tokens, and the first has " + std::to_string(memory_.blocks) + " of " +
                    std::to_string(memory_.tokens_per_block));
    }
    if (tensor.memory != memory_.memory || tensor.device != memory_.device) {
      reader.Refuse("is in other memory than the first");
    }
    memory_.writable = memory_.writable && tensor.writable;
  }

  GroupMemory& memory_;
  const LayerGroup& group_;
  std::string axes_;
  bool first_ = true;
};

}  // namespace

std::shared_ptr<const GroupMemory> MakeGroupMemory(std::shared_ptr<const ModelSpec> spec,
                                                   uint32_t group, uint32_t layer_begin,
                                                   const std::string& layout,
                                                   std::vector<Tensor> tensors) {
  auto memory = std::make_shared<GroupMemory>();
  if (group >= spec->groups.size()) {
    BadArgument("group: " + std::to_string(group) + ", and the model has " +
                std::to_string(spec->groups.size()) + " groups");
  }
  memory->spec = std::move(spec);
  memory->group = group;
  memory->layer_begin = layer_begin;
  memory->layout = layout;
  memory->tensors = std::move(tensors);
  Maker(memory.get()).Make();
  return memory;
}

}  // namespace cairn::python
