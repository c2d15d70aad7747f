// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a put when this is there under its key. Decided under the commit lock.
#pragma once

#include <cstdint>

#include "cairn/objects.h"
#include "engine/tree/tree.h"
#include "wal/log.h"

namespace cairn::engine {

enum class Fate : uint8_t {
  kStored,    // There is nothing.
  kReplaces,  // What is there is dropped in the same record.
  kKept,      // It stays as it is.
  kRefused,   // It stays, and is of another class: see OfAnotherClass.
};
inline bool IsStored(Fate fate) { return fate == Fate::kStored || fate == Fate::kReplaces; }

// `there`: null if nothing is. `model`: of what is put.
Fate FateOf(const Head* there, ModelId model, IfPresent if_present);
Status OfAnotherClass(const Tree& tree, const Head& there);  // kModelMismatch.
Op DropOf(const Head& head);

// What is wrong with one object, or with what the index has of it: the rest of a batch, each for
// itself, does not mind.
bool IsOfOneObject(const wal::Log& log, const Status& status);

}  // namespace cairn::engine
