// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/seen_branch.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::cli {

Result<SeenBranch> SeeBranch(const Branch& branch, const BranchInfo& info) {
  SeenBranch seen{info, {}};
  if (info.kv_lengths.empty()) return seen;
  CAIRN_ASSIGN_OR_RETURN(seen.restorable, branch.RestorableLength());
  return seen;
}

Json ToJson(const SeenBranch& branch) {
  Json json = ToJson(static_cast<const BranchInfo&>(branch));
  if (branch.restorable.has_value()) json["restorable"] = *branch.restorable;
  return json;
}

std::string KvText(const SeenBranch& branch) {
  if (!branch.restorable.has_value()) return "-";
  const uint64_t given = *std::max_element(branch.kv_lengths.begin(), branch.kv_lengths.end());
  std::string text = std::to_string(*branch.restorable);
  if (*branch.restorable < given) text += " of " + std::to_string(given);
  return text;
}

std::string KeepText(const Keep& keep) {
  return std::string(keep.pinned ? "pinned" : "not pinned") + ", priority " +
         std::to_string(keep.priority) + ", " +
         (keep.ttl_ns == 0 ? "no ttl" : "ttl " + SpanText(keep.ttl_ns));
}

}  // namespace cairn::cli
