// SPDX-License-Identifier: Apache-2.0
//
// Nodes whose farthest branch was dropped are trimmed to what other branches reach
// (tree/ops/trim.cc). The rest of the node is dead, and its space is reclaimed like that of all
// dead bytes.
#pragma once

#include "engine/background/index_flusher.h"
#include "engine/background/space_deps.h"

namespace cairn::engine {

// For the space thread, without a lock. The index, too, knows which nodes are untrimmed: nodes for
// which there is no room now are trimmed in a later round, or after reopening.
Status TrimNodes(const SpaceDeps& deps, IndexFlusher* flusher);

}  // namespace cairn::engine
