// SPDX-License-Identifier: Apache-2.0
#include "engine/objects/object_fate.h"

#include "base/core/text.h"
#include "engine/objects/object_names.h"

namespace cairn::engine {

Fate FateOf(const Head* there, ModelId model, IfPresent if_present) {
  if (there == nullptr) return Fate::kStored;
  if (if_present == IfPresent::kReplace || !IsWhole(*there)) return Fate::kReplaces;
  return there->model == static_cast<uint64_t>(model) ? Fate::kKept : Fate::kRefused;
}

Status OfAnotherClass(const Tree& tree, const Head& there) {
  const auto found = ClassIn(tree, there);
  return Status(StatusCode::kModelMismatch, "the key is there, as an object of class " +
                                                Quoted(found.ok() ? found->name : "?"));
}

Op DropOf(const Head& head) {
  Op op;
  op.kind = OpKind::kDrop;
  op.branch = head.id;
  return op;
}

bool IsOfOneObject(const wal::Log& log, const Status& status) {
  const StatusCode code = status.code();
  return (code == StatusCode::kCorruption || code == StatusCode::kIoError) && log.poisoned().ok();
}

}  // namespace cairn::engine
