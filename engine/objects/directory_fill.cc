// SPDX-License-Identifier: Apache-2.0
//
// Runs after an opening: the directory learns which objects exist, and unfinished puts of an
// earlier process are dropped.
#include <utility>

#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/objects/object_change.h"
#include "engine/objects/object_names.h"
#include "engine/objects/object_space.h"
#include "engine/tree/memory/reserved_names.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

void ObjectSpace::Start(uint64_t seed) {
  directory_.BeginFill(seed);
  std::vector<std::string> spaces;
  uint64_t first_id = 0;  // This process makes branches from this number on.
  {
    std::lock_guard lock(deps_.mutex());
    first_id = deps_.tree().next_id();
    for (const auto& [name, use] : deps_.tree().namespaces()) {
      if (IsReserved(name) && use.branches != 0) spaces.push_back(name);
    }
  }
  if (spaces.empty()) return EndFill(true);
  filler_ = std::make_unique<io::Executor>(*deps_.world.scheduler, "cairn-objects", 1,
                                           io::ThreadPriority::kBackground);
  filler_->Post([this, spaces, first_id] {
    const Status filled = CatchBadAlloc([&]() -> Status {
      for (const std::string& space : spaces) CAIRN_RETURN_IF_ERROR(Fill(space, first_id));
      return Status::Ok();
    });
    EndFill(filled.ok());
  });
}

void ObjectSpace::EndFill(bool all) {
  std::lock_guard lock(deps_.mutex());
  directory_.EndFill(all);
}

void ObjectSpace::Stop() {
  if (filler_ != nullptr) filler_->Stop();
}

// Unnamed ones come first.
Status ObjectSpace::Fill(const std::string& space, uint64_t first_id) {
  Tree::NameKey from{space, "", 0};
  while (true) {
    CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Head> heads,
                           deps_.access->ReadInOrder(from, kObjectsAtOnce));
    for (const Head& head : heads) {
      if (head.name.empty() && head.id < first_id) {
        static_cast<void>(Sweep(head.id));  // Else the next opening does.
      } else {
        directory_.Insert(head);
      }
    }
    if (heads.size() < kObjectsAtOnce) return Status::Ok();
    from = {space, heads.back().name, heads.back().id + 1};
  }
}

Status ObjectSpace::Sweep(uint64_t branch) {
  // A writer gives up what a salvage left out; this must not decide that.
  if (!CAIRN_KEPT(kObjectSwept) || deps_.options->recovery == Recovery::kSetAside)
    return Status::Ok();
  ObjectChange drop(
      deps_, {.branches = {branch}, .nodes = {}, .names = {}},
      [&](const Tree& tree) -> Result<std::vector<Op>> {
        std::vector<Op> ops;
        if (tree.FindHead(branch) == nullptr) return ops;
        CAIRN_ASSIGN_OR_RETURN(ops.emplace_back(), ResolveDrop(tree, branch));
        return ops;
      },
      wal::Log::Purpose::kRelease);
  return drop.Run(io::kNoDeadline).status();
}

}  // namespace cairn::engine
