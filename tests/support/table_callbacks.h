// SPDX-License-Identifier: Apache-2.0
//
// Where a test's tables ask for numbers and space.
#pragma once

#include "sstable/table_callbacks.h"

namespace cairn::testing {

class CountingTableCallbacks final : public sstable::TableCallbacks {
 public:
  explicit CountingTableCallbacks(uint64_t first_number = 1) : next_(first_number) {}
  Result<uint64_t> NewTableNumber() override { return next_++; }
  Status TakeSpace(uint64_t bytes) override {
    if (taken + bytes > limit) return Status(StatusCode::kNoSpace, "the cap");
    taken += bytes;
    return Status::Ok();
  }
  void ReturnSpace(uint64_t bytes) override { taken -= bytes; }

  uint64_t taken = 0;
  uint64_t limit = UINT64_MAX;

 private:
  uint64_t next_;
};

}  // namespace cairn::testing
