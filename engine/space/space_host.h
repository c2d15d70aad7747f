// SPDX-License-Identifier: Apache-2.0
//
// What giving space back asks of the store around it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cairn/branch.h"
#include "cairn/status.h"
#include "engine/tree/tree.h"
#include "engine/tree/tree_loader.h"
#include "wal/log.h"

namespace cairn::engine {

// Thread-safe, but for what is marked.
class SpaceHost {
 public:
  using Resolve = std::function<Result<Op>(const Tree&)>;
  virtual ~SpaceHost() = default;

  // The wall clock, as CommitHost has it; and as it was when the store was opened.
  virtual uint64_t NowNs() const = 0;
  virtual uint64_t opened_wall_ns() const = 0;
  // The store takes changes, and its log goes on.
  virtual Status CheckWritable() const = 0;

  // One change of the tree of the background's own: in the log, but not waited for there. It waits
  // for no room. kNotFound and other errors of `resolve` change nothing. Takes the commit lock.
  virtual Result<Op> Change(const TreeNeeds& needs, const Resolve& resolve,
                            wal::Log::Purpose purpose) = 0;
  // What was accepted to be joined to the branch is applied. kBusy, kNoSpace: it still waits.
  virtual Status ApplyJoined(BranchId branch) = 0;
  virtual void ApplyAllJoined() = 0;
  // Whether some of it waits. REQUIRES: the commit lock.
  virtual bool HasJoined(BranchId branch) const = 0;
  // An append of so many bytes goes into a table of its own.
  virtual bool IsIngested(uint64_t bytes) const = 0;
  // Whether the object was touched since this was asked of it last. REQUIRES: the commit lock.
  virtual bool TakeTouched(const Head& object) = 0;

  // Readers beside are told how far log and checkpoint are.
  virtual void PublishHint() = 0;
  virtual void OnEvent(const std::string& line) = 0;
  // Must not fail for want of memory.
  virtual void OnEventOf(const char* what, const Status& status) = 0;
};

}  // namespace cairn::engine
