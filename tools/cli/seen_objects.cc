// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/seen_objects.h"

#include <algorithm>

#include "base/core/check.h"
#include "cairn/objects.h"
#include "tools/cli/names.h"

namespace cairn::cli {

namespace {

uint64_t Less(uint64_t all, uint64_t part) { return all - std::min(all, part); }

}  // namespace

Result<SeenObjects> SeeObjects(const Store& store) {
  SeenObjects seen;
  CAIRN_ASSIGN_OR_RETURN(seen.spaces, Objects(store).Usage());
  for (const NamespaceInfo& one : seen.spaces) seen.count += one.branches;
  return seen;
}

Result<BranchCounts> CountBranches(const Store& store, const StoreMetrics& metrics,
                                   const SeenObjects& objects) {
  uint64_t pages = 0;
  for (const NamespaceInfo& one : objects.spaces) {
    if (one.branches == 0) continue;
    std::string cursor;
    do {
      CAIRN_ASSIGN_OR_RETURN(const ObjectPage page,
                             Objects(store).List(one.name, kListedAtOnce, cursor));
      for (const ObjectInfo& object : page.objects) pages += object.pages;
      cursor = page.cursor;
    } while (!cursor.empty());
  }
  return BranchCounts{.branches = Less(metrics.branches, objects.count),
                      .nodes = Less(metrics.nodes, objects.count),
                      .tokens = Less(metrics.tokens, pages)};
}

Json ToJson(const SeenObjects& objects) {
  Json list = Json::array();
  for (const NamespaceInfo& one : objects.spaces) {
    list.push_back({{"name", one.name}, {"objects", one.branches}, {"bytes", one.bytes}});
  }
  return list;
}

std::string TableText(const SeenObjects& objects) {
  TextTable table({"NAMESPACE", "OBJECTS", "HOLDS", "CAP"}, {1, 2, 3});
  for (const NamespaceInfo& one : objects.spaces) {
    const bool capped = one.policy.max_bytes != UINT64_MAX;
    table.Add({NamespaceText(one.name), std::to_string(one.branches), BytesText(one.bytes),
               capped ? BytesText(one.policy.max_bytes) : "-"});
  }
  return table.ToString();
}

}  // namespace cairn::cli
