// SPDX-License-Identifier: Apache-2.0
#include "cairn/kv_view.h"

#include <cstdlib>
#include <string>

namespace cairn {

namespace {

class Checker {
 public:
  Checker(const ModelSpec& model, KvUse use) : model_(model), use_(use) {}

  Status Check(const KvView& view) {
    uint32_t seen = 0;
    for (const GroupView& group : view.groups) {
      if (group.group >= model_.groups.size()) {
        return Bad("group " + std::to_string(group.group) + " does not exist; the model has " +
                   std::to_string(model_.groups.size()));
      }
      if ((seen >> group.group & 1u) != 0) {
        return Bad("group " + std::to_string(group.group) + " is given twice");
      }
      seen |= 1u << group.group;
      where_ = "group " + std::to_string(group.group);
      if (Status status = CheckGroup(group, model_.groups[group.group]); !status.ok()) {
        return status;
      }
    }
    return Status::Ok();
  }

 private:
  static Status Bad(const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "kv view: " + what);
  }

  Status CheckGroup(const GroupView& view, const LayerGroup& group) {
    if (view.planes.size() != group.planes.size()) {
      return Bad(where_ + " has " + std::to_string(view.planes.size()) + " planes; the model has " +
                 std::to_string(group.planes.size()));
    }
    if (view.position + view.count < view.position)
      return Bad(where_ + ": position + count overflows");
    if (Status status = CheckTable(view); !status.ok()) return status;
    const uint64_t layers = view.planes[0].layer_bases.size();
    if (layers == 0) return Bad(where_ + " describes no layer");
    if (view.layer_begin + layers > group.layers) {
      return Bad(where_ + " describes layers [" + std::to_string(view.layer_begin) + ", " +
                 std::to_string(view.layer_begin + layers) + "); the model has " +
                 std::to_string(group.layers));
    }
    if (use_ == KvUse::kAppend && layers != group.layers) {
      return Bad(where_ + " describes " + std::to_string(layers) + " layers; an append needs all " +
                 std::to_string(group.layers));
    }
    for (size_t i = 0; i < view.planes.size(); ++i) {
      if (Status status = CheckPlane(view, view.planes[i], group.planes[i], layers); !status.ok()) {
        return status.WithContext("plane \"" + group.planes[i].name + "\"");
      }
    }
    return Status::Ok();
  }

  Status CheckTable(const GroupView& view) {
    const BlockTable& table = view.table;
    if (table.kind == TableKind::kNone) return Status::Ok();
    if (table.kind != TableKind::kBlocks && table.kind != TableKind::kSlots) {
      return Bad(where_ + ": table kind is unknown");
    }
    if (view.tokens_per_block == 0 && table.kind == TableKind::kBlocks) {
      return Bad(where_ + ": a table of blocks needs tokens_per_block");
    }
    if (view.count == 0) return Status::Ok();
    if (table.entries == nullptr) return Bad(where_ + ": table.entries is null");
    if (table.table_position > view.position) {
      return Bad(where_ + ": table begins at position " + std::to_string(table.table_position) +
                 ", the view at " + std::to_string(view.position));
    }
    const uint64_t last = view.position + view.count - 1 - table.table_position;
    const uint64_t per_entry = table.kind == TableKind::kBlocks ? view.tokens_per_block : 1;
    if (last / per_entry >= table.count) {
      return Bad(where_ + ": table has " + std::to_string(table.count) +
                 " entries; positions up to " + std::to_string(view.position + view.count) +
                 " need " + std::to_string(last / per_entry + 1));
    }
    for (uint64_t i = (view.position - table.table_position) / per_entry; i <= last / per_entry;
         ++i) {
      const int64_t entry = table.is_64_bit ? static_cast<const int64_t*>(table.entries)[i]
                                            : static_cast<const int32_t*>(table.entries)[i];
      if (entry < 0) {
        return Bad(where_ + ": table entry " + std::to_string(i) + " is " + std::to_string(entry));
      }
    }
    return Status::Ok();
  }

  Status CheckPlane(const GroupView& view, const PlaneView& plane_view, const Plane& plane,
                    uint64_t layers) {
    if (plane_view.layer_bases.size() != layers) {
      return Bad(where_ + " has " + std::to_string(plane_view.layer_bases.size()) +
                 " layer bases; its first plane has " + std::to_string(layers));
    }
    for (size_t layer = 0; layer < layers; ++layer) {
      if (plane_view.layer_bases[layer] == nullptr) {
        return Bad(where_ + ": base of layer " + std::to_string(layer) + " is null");
      }
    }
    const auto element_bytes = static_cast<int64_t>(DtypeBytes(plane.dtype));
    const int64_t element_stride =
        plane_view.element_stride == 0 ? element_bytes : plane_view.element_stride;
    if (std::abs(element_stride) < element_bytes) {
      return Bad(where_ + ": element_stride " + std::to_string(element_stride) +
                 " is smaller than an element of " + DtypeName(plane.dtype));
    }
    const int64_t elements = plane.row_bytes / element_bytes;
    const int64_t row_span = (elements - 1) * std::abs(element_stride) + element_bytes;
    const bool adjacent = element_stride == element_bytes;
    if (!StrideFits(plane_view.head_stride, plane.heads, row_span, adjacent)) {
      return Bad(where_ + ": head_stride " + std::to_string(plane_view.head_stride) +
                 " makes rows of " + std::to_string(row_span) + " bytes overlap");
    }
    if (!StrideFits(plane_view.token_stride, view.count, row_span, adjacent)) {
      return Bad(where_ + ": token_stride " + std::to_string(plane_view.token_stride) +
                 " makes rows of " + std::to_string(row_span) + " bytes overlap");
    }
    // A table of blocks may be entered in the middle of one; slots say nothing before they are
    // read.
    const uint64_t first_slot =
        view.table.kind == TableKind::kBlocks
            ? (view.position - view.table.table_position) % view.tokens_per_block
            : 0;
    const bool many_blocks =
        view.tokens_per_block != 0 && first_slot + view.count > view.tokens_per_block;
    if (many_blocks && plane_view.block_stride == 0) {
      return Bad(where_ + ": block_stride is 0 although the view spans several blocks");
    }
    return Status::Ok();
  }

  // Rows interleaved by an element stride may lie closer together than their span.
  static bool StrideFits(int64_t stride, uint64_t count, int64_t row_span, bool adjacent) {
    if (count <= 1) return true;
    return adjacent ? std::abs(stride) >= row_span : stride != 0;
  }

  const ModelSpec& model_;
  const KvUse use_;
  std::string where_;
};

}  // namespace

Status ValidateKvView(const ModelSpec& model, const KvView& view, KvUse use) {
  return Checker(model, use).Check(view);
}

}  // namespace cairn
