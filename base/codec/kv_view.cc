// SPDX-License-Identifier: Apache-2.0
#include "cairn/kv_view.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/codec/model_check.h"
#include "base/core/mutation.h"
#include "base/core/text.h"

namespace cairn {

namespace {

// The address space of a process on x86-64 with four levels of page tables.
constexpr uint64_t kAddressSpaceBytes = uint64_t{1} << 47;

class Checker {
 public:
  Checker(const ModelSpec& model, KvUse use) : model_(model), use_(use) {}

  Status Check(const KvView& view) {
    if (view.memory > MemoryKind::kCuda) return Bad("memory is unknown");
    on_host_ = view.memory == MemoryKind::kHost;
    if (on_host_ && view.device != 0) {
      return Bad("device is " + std::to_string(view.device) + "; host memory has only 0");
    }
    for (size_t i = 0; i < view.groups.size(); ++i) {
      const GroupView& group = view.groups[i];
      if (group.group >= model_.groups.size()) {
        return Bad("group " + std::to_string(group.group) + " does not exist; the model has " +
                   std::to_string(model_.groups.size()));
      }
      where_ = "group " + std::to_string(group.group);
      if (Status status = CheckGroup(group, model_.groups[group.group]); !status.ok()) {
        return status;
      }
      if (Status status = CheckOthers(view.groups.first(i), group); !status.ok()) return status;
    }
    return Status::Ok();
  }

 private:
  static Status Bad(const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "kv view: " + what);
  }

  // Against the views before it of the same group.
  Status CheckOthers(std::span<const GroupView> before, const GroupView& view) {
    size_t same = 0;
    for (const GroupView& other : before) {
      if (other.group != view.group) continue;
      const Retention kind = model_.groups[view.group].retention.kind;
      if (kind == Retention::kCheckpoint || kind == Retention::kPerRequest) {
        return Bad(where_ + " keeps states and is given twice");
      }
      if (++same == 2) return Bad(where_ + " is given three times");
      if (view.position < other.position + other.count) {
        return Bad(where_ + ": its second view begins at position " +
                   std::to_string(view.position) + ", within or before its first, [" +
                   std::to_string(other.position) + ", " +
                   std::to_string(other.position + other.count) + ")");
      }
    }
    return Status::Ok();
  }

  Status CheckGroup(const GroupView& view, const LayerGroup& group) {
    if (group.planes.empty()) return Bad(where_ + ": the model's group has no planes");
    if (view.planes.size() != group.planes.size()) {
      return Bad(where_ + " has " + std::to_string(view.planes.size()) + " planes; the model has " +
                 std::to_string(group.planes.size()));
    }
    if (view.position + view.count < view.position)
      return Bad(where_ + ": position + count overflows");
    if (use_ == KvUse::kAppend) {
      if (view.count > kMaxAppendTokens) {
        return Bad(where_ + ": count is " + std::to_string(view.count) + ", at most " +
                   std::to_string(kMaxAppendTokens));
      }
      if (Status status = CheckGroupSize(group, where_); !status.ok()) return status;
    }
    if (Status status = CheckTable(view); !status.ok()) return status;
    if (use_ == KvUse::kRestore) {
      if (Status status = CheckDuplicates(view); !status.ok()) return status;
    }
    const uint64_t layers = view.planes[0].layer_bases.size();
    if (layers == 0) return Bad(where_ + " describes no layer");
    if (CAIRN_KEPT(kBoundOfView) && view.layer_begin + layers > group.layers) {
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
        return status.WithContext("plane " + Quoted(group.planes[i].name));
      }
    }
    return Status::Ok();
  }

  Status CheckTable(const GroupView& view) {
    const BlockTable& table = view.table;
    if (table.on_device && on_host_) {
      return Bad(where_ + ": table.on_device: the view is of host memory");
    }
    if (table.kind == TableKind::kNone) {
      if (view.count == 0 || BlockOf(view, view.count - 1) < BlocksMax(view)) return Status::Ok();
      return Bad(where_ + ": " + std::to_string(view.count) + " positions do not fit " +
                 std::to_string(view.blocks) + " blocks");
    }
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
    if (table.on_device) {
      if (view.blocks == 0) return Bad(where_ + ": table.on_device: blocks is 0, which bounds it");
      if (table.kind == TableKind::kSlots && view.tokens_per_block == 0) {
        return Bad(where_ + ": table.on_device: a table of slots needs tokens_per_block");
      }
      return Status::Ok();
    }
    for (uint64_t i = (view.position - table.table_position) / per_entry; i <= last / per_entry;
         ++i) {
      const int64_t entry = table.is_64_bit ? static_cast<const int64_t*>(table.entries)[i]
                                            : static_cast<const int32_t*>(table.entries)[i];
      if (entry < 0) {
        return Bad(where_ + ": table entry " + std::to_string(i) + " is " + std::to_string(entry));
      }
      if (BlockOf(view, static_cast<uint64_t>(entry)) >= BlocksMax(view)) {
        return Bad(where_ + ": table entry " + std::to_string(i) + " is " + std::to_string(entry) +
                   "; there are " + std::to_string(view.blocks) + " blocks");
      }
    }
    return Status::Ok();
  }

  // The block that an entry of the table names, or that holds the i-th position of a view without.
  static uint64_t BlockOf(const GroupView& view, uint64_t entry) {
    if (view.table.kind == TableKind::kBlocks) return entry;
    return view.tokens_per_block == 0 ? 0 : entry / view.tokens_per_block;
  }
  static uint64_t BlocksMax(const GroupView& view) {
    return view.blocks == 0 ? UINT64_MAX : view.blocks;
  }

  Status CheckPlane(const GroupView& view, const PlaneView& plane_view, const Plane& plane,
                    uint64_t layers) {
    if (plane_view.layer_bases.size() != layers) {
      return Bad(where_ + " has " + std::to_string(plane_view.layer_bases.size()) +
                 " layer bases; its first plane has " + std::to_string(layers));
    }
    for (size_t layer = 0; layer < layers; ++layer) {
      const std::byte* base = plane_view.layer_bases[layer];
      if (base == nullptr) {
        return Bad(where_ + ": base of layer " + std::to_string(layer) + " is null");
      }
      if (use_ == KvUse::kRestore && layer > 0 && base == plane_view.layer_bases[layer - 1]) {
        return Bad(where_ + ": layers " + std::to_string(layer - 1) + " and " +
                   std::to_string(layer) + " have one base");
      }
    }
    const uint64_t element_bytes = DtypeBytes(plane.dtype);
    const uint64_t elements = plane.row_bytes / element_bytes;
    const int64_t element_stride = plane_view.element_stride == 0
                                       ? static_cast<int64_t>(element_bytes)
                                       : plane_view.element_stride;
    if (Magnitude(element_stride) < element_bytes) {
      return Bad(where_ + ": element_stride " + std::to_string(element_stride) +
                 " is smaller than an element of " + DtypeName(plane.dtype));
    }
    const Slots slots = SlotsOf(view);
    if (slots.blocks > 1 && plane_view.block_stride == 0) {
      return Bad(where_ + ": block_stride is 0 although the view spans several blocks");
    }
    return CheckOverlap({{{"element_stride", element_stride, elements},
                          {"head_stride", plane_view.head_stride, plane.heads},
                          {"token_stride", plane_view.token_stride, slots.in_block},
                          {"block_stride", plane_view.block_stride, slots.blocks}}},
                        element_bytes);
  }

  static uint64_t Magnitude(int64_t value) {
    return value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  }

  // How far the view reaches: slots used in a block, and blocks between the lowest and the highest.
  struct Slots {
    uint64_t in_block = 0, blocks = 1;
  };
  static Slots SlotsOf(const GroupView& view) {
    const uint64_t per_block = view.tokens_per_block;
    const BlockTable& table = view.table;
    if (view.count == 0) return {0, 1};
    if (table.kind == TableKind::kNone) {
      if (per_block == 0) return {view.count, 1};
      return {std::min(view.count, per_block), (view.count + per_block - 1) / per_block};
    }
    const uint64_t per_entry = table.kind == TableKind::kBlocks ? per_block : 1;
    const uint64_t first = (view.position - table.table_position) / per_entry;
    const uint64_t last = (view.position + view.count - 1 - table.table_position) / per_entry;
    uint64_t low = UINT64_MAX, high = 0;
    if (table.on_device) {
      low = 0;
      high = view.blocks * (table.kind == TableKind::kBlocks ? 1 : per_block) - 1;
    }
    for (uint64_t i = first; i <= last && !table.on_device; ++i) {
      const auto entry =
          static_cast<uint64_t>(table.is_64_bit ? static_cast<const int64_t*>(table.entries)[i]
                                                : static_cast<const int32_t*>(table.entries)[i]);
      low = std::min(low, entry);
      high = std::max(high, entry);
    }
    if (table.kind == TableKind::kBlocks) {
      const bool one = first == last;
      const uint64_t slot = (view.position - table.table_position) % per_block;
      return {one ? std::min(view.count, per_block - slot) : per_block, high - low + 1};
    }
    if (per_block == 0) return {high - low + 1, 1};
    return {per_block, high / per_block - low / per_block + 1};
  }

  struct Dimension {
    const char* name;
    int64_t stride;
    uint64_t count;
  };

  // From the smallest stride to the largest, each must step over everything within. Layouts that
  // interleave otherwise exist on paper; no engine has one, and a proof for them would be a search.
  Status CheckOverlap(std::array<Dimension, 4> dimensions, uint64_t element_bytes) const {
    std::sort(dimensions.begin(), dimensions.end(), [](const Dimension& a, const Dimension& b) {
      return Magnitude(a.stride) < Magnitude(b.stride);
    });
    uint64_t span = element_bytes;  // The bytes of everything within.
    for (const Dimension& dimension : dimensions) {
      if (dimension.count <= 1) continue;
      const uint64_t stride = Magnitude(dimension.stride);
      if (stride < span) {
        return Bad(where_ + ": " + dimension.name + " " + std::to_string(dimension.stride) +
                   " makes rows overlap: what it steps over takes " + std::to_string(span) +
                   " bytes");
      }
      uint64_t reach = 0;
      if (__builtin_mul_overflow(stride, dimension.count - 1, &reach) ||
          __builtin_add_overflow(span, reach, &span) || span > kAddressSpaceBytes) {
        return Bad(where_ + ": " + dimension.name + " " + std::to_string(dimension.stride) +
                   " leaves the address space");
      }
    }
    return Status::Ok();
  }

  // Two positions in one place would overwrite each other's KV.
  Status CheckDuplicates(const GroupView& view) const {
    const BlockTable& table = view.table;
    if (table.kind == TableKind::kNone || table.on_device || view.count <= 1) return Status::Ok();
    const uint64_t per_entry = table.kind == TableKind::kBlocks ? view.tokens_per_block : 1;
    const uint64_t first = (view.position - table.table_position) / per_entry;
    const uint64_t last = (view.position + view.count - 1 - table.table_position) / per_entry;
    std::vector<int64_t> entries;
    entries.reserve(last - first + 1);
    for (uint64_t i = first; i <= last; ++i) {
      entries.push_back(table.is_64_bit ? static_cast<const int64_t*>(table.entries)[i]
                                        : static_cast<const int32_t*>(table.entries)[i]);
    }
    if (!std::is_sorted(entries.begin(), entries.end())) std::sort(entries.begin(), entries.end());
    const auto twice = std::adjacent_find(entries.begin(), entries.end());
    if (twice == entries.end()) return Status::Ok();
    return Bad(where_ + ": the table names entry " + std::to_string(*twice) + " twice");
  }

  const ModelSpec& model_;
  const KvUse use_;
  bool on_host_ = true;
  std::string where_;
};

}  // namespace

const char* MemoryKindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHost: return "host";
    case MemoryKind::kCuda: return "cuda";
  }
  return "unknown";
}

Status ValidateKvView(const ModelSpec& model, const KvView& view, KvUse use) {
  return Checker(model, use).Check(view);
}

}  // namespace cairn
