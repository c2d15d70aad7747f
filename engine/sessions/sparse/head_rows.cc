// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/sparse/head_rows.h"

#include <vector>

namespace cairn::engine {

Status ReadHeadRows(BranchReads* reads, NodeId node, uint32_t group,
                    std::span<const uint32_t> row_bytes, std::span<const HeadRows> rows,
                    uint64_t timeout_ns) {
  struct View {
    std::byte* base = nullptr;
    std::vector<PlaneView> planes{};
    GroupView group{};
    KvView kv{};
  };
  std::vector<View> views(rows.size());
  std::vector<RestoreItem> items(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const HeadRows& of = rows[i];
    View& view = views[i];
    const auto bytes = static_cast<int64_t>(of.tokens) * row_bytes[of.plane];
    view.base = of.into - bytes * of.head;
    view.planes.resize(row_bytes.size());
    for (size_t plane = 0; plane < row_bytes.size(); ++plane) {
      view.planes[plane].layer_bases = {&view.base, 1};
      view.planes[plane].token_stride = row_bytes[plane];
      view.planes[plane].head_stride = static_cast<int64_t>(of.tokens) * row_bytes[plane];
    }
    view.group = {.group = group,
                  .layer_begin = of.layer,
                  .position = of.first,
                  .count = of.tokens,
                  .planes = view.planes};
    view.kv.groups = {&view.group, 1};
    RestoreItem& item = items[i];
    item.node = node;
    item.request.begin = of.first;
    item.request.end = of.first + of.tokens;
    item.request.into = &view.kv;
    item.request.require_kv = true;
    item.counts = false;
    item.only = HeadOfPlane{of.plane, of.head};
  }
  CAIRN_RETURN_IF_ERROR(reads->RestoreMany(items, timeout_ns));
  for (const RestoreItem& item : items) CAIRN_RETURN_IF_ERROR(item.status);
  return Status::Ok();
}

}  // namespace cairn::engine
