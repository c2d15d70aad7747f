// SPDX-License-Identifier: Apache-2.0
//
// Applies the policy of a namespace (cairn/keep.h) to an append. Under the commit lock.
#pragma once

#include <cstdint>

#include "cairn/branch_types.h"
#include "cairn/status.h"
#include "engine/tree/memory/node.h"

namespace cairn::engine {

// Whether the KV of an append to the branch is wanted.
bool KeepsKv(const Head& head, const AppendOptions& options);
// Called after an append was applied, to check whether it may stay; or before, with its `more`
// bytes. kNoSpace, with kNamespaceQuota.
Status CheckQuota(const Head& head, uint64_t more = 0);

}  // namespace cairn::engine
