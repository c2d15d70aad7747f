// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/quota.h"

#include <string>

#include "base/core/text.h"

namespace cairn::engine {

bool KeepsKv(const Head& head, const AppendOptions& options) {
  switch (head.use->policy.persist) {
    case Persist::kAlways: return true;
    case Persist::kTurnEnd: return options.ends_turn;
    case Persist::kReused: return head.reused;
    case Persist::kTokensOnly: return false;
  }
  return true;
}

Status CheckQuota(const Head& head, uint64_t more) {
  const NamespaceUsage& use = *head.use;
  if (use.HasRoom(more)) return Status::Ok();
  use.refused_bytes = use.bytes + use.coalesced_bytes + more;
  return Status(StatusCode::kNoSpace,
                "max_bytes of namespace " + Quoted(head.ns) + " is " +
                    std::to_string(use.policy.max_bytes) + ": it would hold " +
                    std::to_string(use.refused_bytes),
                StatusReason::kNamespaceQuota);
}

}  // namespace cairn::engine
