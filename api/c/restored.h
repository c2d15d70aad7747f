// SPDX-License-Identifier: Apache-2.0
//
// The result of a restore, as C sees it.
#pragma once

#include <utility>

#include "cairn/branch.h"
#include "cairn/c/restore.h"

namespace cairn::capi {

// Made before the restore; Set allocates nothing when it is given the result to keep.
struct Restored : cairn_restore_result {
  Restored() : cairn_restore_result{} { struct_size = sizeof(cairn_restore_result); }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

  void Set(RestoreResult from) {
    kept_ = std::move(from);
    begin = kept_.begin;
    end = kept_.end;
    kv_ends = kept_.kv_ends.data();
    kv_end_count = kept_.kv_ends.size();
    bytes = kept_.bytes;
    hot_bytes = kept_.hot_bytes;
    lossy_bytes = kept_.lossy_bytes;
    approximate_bytes = kept_.approximate_bytes;
  }

 private:
  RestoreResult kept_;
};

}  // namespace cairn::capi
