// SPDX-License-Identifier: Apache-2.0
//
// The low-rank keys of a session that grows: the vectors that its device has, and how well they
// serve the keys that came after those they were taken over for. A table of the longer context is
// made by the same rule (shadow_builder.cc), from the same sums: it has the same coefficients.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sessions/shadow/device_upload.h"
#include "engine/sessions/shadow/key_rows.h"
#include "engine/sessions/shadow/shadow_memory.h"
#include "engine/sessions/shadow/shadow_parts.h"
#include "engine/sessions/shadow/shadow_table.h"

namespace cairn::engine {

class SessionVectors {
 public:
  static Result<SessionVectors> Of(const LayerGroup& group);

  const KeyRows& keys() const { return keys_; }
  // The device has vectors, and coefficients of them. False: none, or it is not known which.
  bool is_whole() const { return is_whole_; }
  void Forget() { is_whole_ = false; }
  // Vectors of a table that covers `covered` are under way to the device; Commit says that it has
  // all.
  void Reset(std::vector<LayerBasis> bases, uint64_t covered);
  uint64_t table_covered() const { return table_covered_; }  // By the table that has them.

  // Coefficients of the tokens of the shape that come behind `had`, which the device has; with
  // those of the part that `had` lies in, which have the same bytes. `*serve`: the vectors lose
  // little enough of the new keys. REQUIRES: is_whole().
  Status PutRows(const ShadowRowsOf& from, const ShadowShape& shape, uint64_t had,
                 ShadowMemory* memory, DeviceUpload* upload, bool* serve);
  // The session is what PutRows or Reset was last called for. Without it they may be called again,
  // for other content behind `had`.
  void Commit();
  Status PutTurns(const ShadowPartLayout& part, ShadowMemory* memory, DeviceUpload* upload) const;

 private:
  explicit SessionVectors(KeyRows keys) : keys_(std::move(keys)) {}
  // By layer; of the keys since the last part that the table has all of.
  struct Sums {
    std::vector<double> all{}, kept{};
  };

  KeyRows keys_;
  std::vector<LayerBasis> bases_;  // By layer.
  bool is_whole_ = false;
  uint64_t table_covered_ = 0;
  Sums sums_, next_sums_;  // Up to the last whole part; those for Commit.
};

}  // namespace cairn::engine
