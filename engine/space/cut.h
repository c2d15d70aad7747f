// SPDX-License-Identifier: Apache-2.0
//
// Nodes whose farthest branch went are cut to what the others reach (tree/cut.cc). What they lose
// is dead and comes back as all dead bytes do.
#pragma once

#include "engine/space/index_flusher.h"
#include "engine/space/space_means.h"

namespace cairn::engine {

// For the space thread, without a lock. Which nodes are loose is in the index, too: what there is
// no room for now is cut in a later round, or after another opening.
Status CutLoose(const SpaceMeans& means, IndexFlusher* flusher);

}  // namespace cairn::engine
