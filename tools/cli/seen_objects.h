// SPDX-License-Identifier: Apache-2.0
//
// The objects of a store (cairn/objects.h) for commands that show what a store holds. The engine
// keeps them as branches that cannot be named, and its metrics count those; here they count as what
// they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/store.h"
#include "tools/cli/output.h"

namespace cairn::cli {

struct SeenObjects {
  std::vector<NamespaceInfo> spaces;  // Those that hold some, or have a policy.
  uint64_t count = 0;
};
Result<SeenObjects> SeeObjects(const Store& store);

// What StoreMetrics counts of branches alone.
struct BranchCounts {
  uint64_t branches = 0, nodes = 0, tokens = 0;
};
// Reads the list of objects, if there are any: an object is a node with a position for each page.
Result<BranchCounts> CountBranches(const Store& store, const StoreMetrics& metrics,
                                   const SeenObjects& objects);

// [{"name", "objects", "bytes"}]
Json ToJson(const SeenObjects& objects);
std::string TableText(const SeenObjects& objects);  // A line a namespace, below a header.

}  // namespace cairn::cli
