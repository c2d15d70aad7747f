// SPDX-License-Identifier: Apache-2.0
//
// Takes into memory what was read from the index at the tree's generation. Entries that memory
// already has are newer and stay as they are. kCorruption when something does not fit the rest: a
// record's checksum says that it is as it was written, not that it belongs to this tree.
//
// All of it under the commit lock, and without I/O. An error, or a throw, leaves the tree as it
// was.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/tree/memory/tree.h"

namespace cairn::engine {

Status InsertNode(Tree* tree, std::unique_ptr<Node> node);  // REQUIRES: its parent is in memory.
Status InsertHead(Tree* tree, Head head);                   // REQUIRES: its node is in memory.
// The refs of a node that follow refs_from downwards, as read; `from`: how far they reach. Does
// nothing if the node is not in memory.
void InsertRefs(Tree* tree, uint64_t node, std::span<const Ref> refs, const Ref& from);

}  // namespace cairn::engine
