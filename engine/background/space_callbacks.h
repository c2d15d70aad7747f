// SPDX-License-Identifier: Apache-2.0
//
// Services that giving space back needs from the store.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cairn/branch_types.h"
#include "cairn/status.h"
#include "engine/tree/memory/tree.h"
#include "engine/tree/records/tree_loader.h"
#include "wal/log.h"

namespace cairn::engine {

// Thread-safe, except where marked.
class SpaceCallbacks {
 public:
  using Resolve = std::function<Result<Op>(const Tree&)>;
  virtual ~SpaceCallbacks() = default;

  // The wall clock, as in CommitCallbacks; and its time when the store was opened.
  virtual uint64_t NowNs() const = 0;
  virtual uint64_t opened_wall_ns() const = 0;
  // The store takes changes, and its log works.
  virtual Status CheckWritable() const = 0;

  // Makes a change of the tree for the background: in the log on return, but not yet durable. Does
  // not wait for room. kNotFound and other errors of `resolve` change nothing. Takes the commit
  // lock.
  virtual Result<Op> Change(const TreeNeeds& needs, const Resolve& resolve,
                            wal::Log::Purpose purpose) = 0;
  // Applies appends that were accepted to be coalesced to the branch. kBusy, kNoSpace: they still
  // wait.
  virtual Status ApplyCoalesced(BranchId branch) = 0;
  virtual void ApplyAllCoalesced() = 0;
  // Whether some of them wait. REQUIRES: the commit lock.
  virtual bool HasCoalesced(BranchId branch) const = 0;
  // Whether the object was touched since the last call for it. REQUIRES: the commit lock.
  virtual bool TakeTouched(const Head& object) = 0;

  // Shows readers in other processes how far log and manifest are.
  virtual void PublishHint() = 0;
  virtual void OnEvent(const std::string& line) = 0;
  // Must not fail for want of memory.
  virtual void OnEventOf(const char* what, const Status& status) = 0;
};

}  // namespace cairn::engine
