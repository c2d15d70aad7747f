// SPDX-License-Identifier: Apache-2.0
//
// Which nodes, and how much of them, something still needs.
//
// Liveness is a length: a node is kept while a head or a child's edge needs it (Node::refs), and is
// trimmed in place only when none reaches beyond the new end. No counts are stored: the farthest
// ref decides. A head or child that went may leave the node *untrimmed*: it reaches beyond the
// farthest ref until it is trimmed.
//
// All of it under the commit lock, and without I/O.
#pragma once

#include <cstdint>

#include "engine/tree/memory/tree.h"

namespace cairn::engine {

// Something other than the branch or child `but` needs the node from the token position on, as far
// as memory knows.
bool IsNeeded(const Tree& tree, const Node& node, uint64_t from, uint64_t but);

// The one child of a node that nothing else needs (join.cc), else 0. REQUIRES: it is in memory.
uint64_t OnlyChild(const Tree& tree, uint64_t node);

// The node lost a ref. If that was the last it dies, and so does what lived only for it; else it
// may be untrimmed or joinable from now on. Idempotent. Cannot fail. REQUIRES: room in leftovers.
void CollectDead(Tree* tree, uint64_t node);
// A drop of the branch would take something that is on lease, as far as memory knows. Expiry and
// eviction, which no caller asks for, wait until it is not. REQUIRES: the branch's path is in
// memory.
bool IsLeasedAlone(const Tree& tree, const Head& head);
// Decides about the first undecided node, of which enough is known now: it dies or is left alone.
void DecideFirst(Tree* tree);

// One of the nodes that may be untrimmed, and is not leased up to its end; 0: there is none.
uint64_t AnyUntrimmed(const Tree& tree);
// True: the node is not untrimmed, or does not exist, and is forgotten as untrimmed. False: it must
// be trimmed, or memory does not know enough. REQUIRES: it is in memory if it exists.
bool SettleUntrimmed(Tree* tree, uint64_t node);

}  // namespace cairn::engine
