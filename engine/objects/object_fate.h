// SPDX-License-Identifier: Apache-2.0
//
// The effect of a put on an existing key. Decided under the commit lock.
#pragma once

#include <cstdint>

#include "cairn/objects.h"
#include "engine/tree/memory/tree.h"
#include "wal/log.h"

namespace cairn::engine {

enum class Fate : uint8_t {
  kStored,    // There is nothing.
  kReplaces,  // The old object is dropped in the same record.
  kKept,      // It stays as it is.
  kRefused,   // It stays, and is of another class: see OfAnotherClass.
};
inline bool IsStored(Fate fate) { return fate == Fate::kStored || fate == Fate::kReplaces; }

// `there`: null if the key does not exist. `model`: of the new object.
Fate FateOf(const Head* there, ModelId model, IfPresent if_present);
Status OfAnotherClass(const Tree& tree, const Head& there);  // kModelMismatch.
Op DropOf(const Head& head);

// Whether an error is about one object, or its records in the index: then the rest of a batch goes
// on.
bool IsOfOneObject(const wal::Log& log, const Status& status);

}  // namespace cairn::engine
