// SPDX-License-Identifier: Apache-2.0
//
// The objects that a cut of the log loses: those whose put is logged behind the cut.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wal/record.h"

namespace cairn::cli {

struct CutObject {
  std::string ns, key;
  uint64_t sequence = 0;  // The record that is cut and made it an object.
};

// Not thread-safe.
class CutObjects {
 public:
  explicit CutObjects(uint64_t last_kept) : last_kept_(last_kept) {}

  // Call with every readable record, in order: a large object lies in several. Records whose fields
  // this version does not understand are ignored.
  void Add(const wal::RecordView& view);
  // In the order of their records, without those that were deleted or replaced later.
  std::vector<CutObject> List() const;

 private:
  void Name(uint64_t branch, const std::string& name, uint64_t sequence);

  struct Put {
    std::string space;
    std::optional<CutObject> object;  // Nothing: it has no name yet.
  };
  const uint64_t last_kept_;
  std::map<uint64_t, Put> puts_;  // By branch, which count upwards.
};

}  // namespace cairn::cli
