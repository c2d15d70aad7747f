// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/seal_source.h"

#include <algorithm>

#include "engine/tree/memory/fragment_layout.h"

namespace cairn::engine {

void CollectSealSources(const Tree& tree, uint64_t id,
                        const std::function<bool(const Place&)>& wanted, uint64_t bytes,
                        std::vector<SealSource>* sources) {
  const Node* node = tree.FindNode(id);
  if (node == nullptr) return;
  const std::shared_ptr<const ModelSpec> model = tree.FindModel(node->model);
  for (uint32_t lane = 0; lane < node->lanes.size(); ++lane) {
    const FragmentLayout layout(*model, lane);
    SealSource source;
    const auto flush = [&] {
      if (source.count > 0) sources->push_back(std::move(source));
      source = SealSource{.node = id, .lane = lane, .model = model};
    };
    flush();
    for (const Extent& extent : node->lanes[lane].extents) {
      if (!wanted(extent.place)) {
        flush();
        continue;
      }
      const bool full = (uint64_t{source.count} + extent.count) * layout.position_bytes() > bytes ||
                        source.begin / layout.page_rows() != extent.begin / layout.page_rows();
      // Channels have a scale for each page. Joined with others they might get a larger one, and
      // values that were quantised once would change: so fragments that were sealed apart stay
      // apart.
      const bool quantised = layout.lossy() && extent.place.table != 0;
      // A fragment is exact or not as a whole.
      const bool other = source.count > 0 && source.extents.front().exact != extent.exact;
      if (full || quantised || other) flush();
      if (source.count == 0) source.begin = extent.begin;
      source.count += extent.count;
      source.extents.push_back(extent);
    }
    flush();
  }
  const auto states = [&](const std::vector<Mark>& marks, uint32_t lane) {
    for (const Mark& mark : marks) {
      if (!wanted(mark.place)) continue;
      sources->push_back({.node = id,
                          .lane = lane,
                          .begin = mark.position,
                          .count = 1,
                          .model = model,
                          .mark = mark});
    }
  };
  states(node->samplers, kSamplerLane);
  states(node->metadata, kMetadataLane);
}

// Each lane is compared extent by extent: the first that is not the one that was read ends the
// range. An append in place of a trimmed part is never mistaken for it, since its place differs.
Op ResolveSeal(const Tree& tree, uint64_t table, uint64_t table_bytes,
               std::span<const SealSource> sources) {
  Op op;
  op.kind = OpKind::kSeal;
  op.other = table;
  op.position = table_bytes;
  for (const SealSource& source : sources) {
    const Node* node = tree.FindNode(source.node);
    if (node == nullptr) continue;
    uint64_t same = 0;  // Positions.
    if (source.lane == kSamplerLane || source.lane == kMetadataLane) {
      for (const Mark& mark : source.lane == kSamplerLane ? node->samplers : node->metadata) {
        if (mark.position == source.begin && mark.place == source.mark.place) same = 1;
      }
    } else {
      const std::vector<Extent>& extents = node->lanes[source.lane].extents;
      auto extent = std::partition_point(extents.begin(), extents.end(),
                                         [&](const Extent& e) { return e.begin < source.begin; });
      for (const Extent& read : source.extents) {
        if (extent == extents.end() || extent->begin != read.begin || extent->place != read.place ||
            extent->count > read.count) {
          break;
        }
        same += extent->count;
        if (extent->count < read.count) break;  // Trimmed: nothing behind it is what was read.
        ++extent;
      }
    }
    if (same == 0) continue;
    op.sealed.push_back({source.node, source.begin, source.lane, static_cast<uint32_t>(same),
                         source.stored_bytes * same / source.count});
  }
  return op;
}

}  // namespace cairn::engine
