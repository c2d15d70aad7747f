// SPDX-License-Identifier: Apache-2.0
//
// Shared by benchmarks of the log-structured index: the numbers of its tables, and keys like those
// of the engine.
#pragma once

#include <cstdint>
#include <string>

#include "sstable/table_callbacks.h"

namespace cairn::bench::micro {

class Numbers final : public sstable::TableCallbacks {
 public:
  Result<uint64_t> NewTableNumber() override { return ++last_; }
  Status TakeSpace(uint64_t) override { return Status::Ok(); }
  void ReturnSpace(uint64_t) override {}

 private:
  uint64_t last_ = 0;
};

// A letter and eight bytes, in the order of the numbers.
inline std::string RecordKey(uint64_t i) {
  std::string key(1, 'n');
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(i >> shift));
  return key;
}

}  // namespace cairn::bench::micro
