// SPDX-License-Identifier: Apache-2.0
//
// Nodes whose farthest branch was dropped are trimmed to what other branches reach (tree/trim.cc).
// The rest of the node is dead, and its space is reclaimed like that of all dead bytes.
#pragma once

#include "engine/space/index_flusher.h"
#include "engine/space/space_means.h"

namespace cairn::engine {

// For the space thread, without a lock. The index, too, knows which nodes are untrimmed: nodes for
// which there is no room now are trimmed in a later round, or after reopening.
Status TrimNodes(const SpaceMeans& means, IndexFlusher* flusher);

}  // namespace cairn::engine
