// SPDX-License-Identifier: Apache-2.0
//
// Every call of a public class goes through this. It guards against empty handles, use in a child
// after fork(), exceptions, and the cancellation of the calling thread.
#pragma once

#include <memory>

#include "base/core/out_of_memory.h"
#include "base/io/no_cancel.h"
#include "engine/store/store_core.h"

namespace cairn {

template <typename Body>
auto OnCore(const std::shared_ptr<StoreCore>& core, Body&& body) -> decltype(body(*core)) {
  if (core == nullptr) return Status(StatusCode::kInvalidState, "an empty handle");
  const io::NoCancel guard;
  return CatchBadAlloc([&]() -> decltype(body(*core)) {
    CAIRN_RETURN_IF_ERROR(core->lifecycle().CheckProcess());
    return body(*core);
  });
}

}  // namespace cairn
