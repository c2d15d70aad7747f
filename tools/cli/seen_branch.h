// SPDX-License-Identifier: Apache-2.0
//
// A branch for display: the store's facts about it, and how much of its KV can be restored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cairn/store.h"
#include "tools/cli/output.h"

namespace cairn::cli {

struct SeenBranch : BranchInfo {
  std::optional<uint64_t> restorable;  // Branch::RestorableLength; nothing: a model without KV.
};
// Reads the branch's path, but no content.
Result<SeenBranch> SeeBranch(const Branch& branch, const BranchInfo& info);

Json ToJson(const SeenBranch& branch);

// The position up to which KV can be restored: "480"; "480 of 500" when some group has more, but KV
// was evicted or other groups lag behind; "-" for models without KV.
std::string KvText(const SeenBranch& branch);
std::string KeepText(const Keep& keep);  // "pinned, priority 7, ttl 2 h"

}  // namespace cairn::cli
