// SPDX-License-Identifier: Apache-2.0
//
// The turns of keys that a restore brings to other positions than they were stored at
// (base/codec/rotary.h). Rows of planes that are stored rotated (RotaryState::kApplied) are turned
// on their way into the view, from the row that was stored; rows of all other planes are the same
// at every position. Caches keep what is stored.
//
//   stretch    kTurnTokens positions of one shift: a table of turns, which all layers, heads and
//              sources of that shift share. The first thread that needs it makes it.
//
// Memory: 8 bytes a pair and token that is turned, until the restore ends (512 bytes a token for
// heads of 128), twice that where f16 pairs are adjacent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/codec/kv_copy.h"
#include "base/codec/rotary_table.h"
#include "engine/restore/plan/plan.h"

namespace cairn::engine {

class KeyTurns {
 public:
  // The turns of one plane and shift. Thread-safe. May throw std::bad_alloc.
  class Shifted {
   public:
    Shifted(const Rotation& rotation, int64_t shift) : rotation_(rotation), shift_(shift) {}
    ~Shifted();
    Shifted(const Shifted&) = delete;
    Shifted& operator=(const Shifted&) = delete;
    // Writes the rows of a run, whose first position in the source is `position`.
    void Turn(const RowRun& run, uint64_t position, uint32_t heads) const;
    // The turns of one position of the source. REQUIRES: room for rotation().pairs().
    void TurnsOf(uint64_t position, std::span<RotaryTurn> turns) const;
    const Rotation& rotation() const { return rotation_; }
    // The positions that are turned, of the sources; apart, ascending.
    const std::vector<Range>& ranges() const { return ranges_; }

   private:
    friend class KeyTurns;
    void Prepare();  // Call when all ranges are known.
    const RotaryTable& TableOf(uint64_t stretch) const;

    const Rotation rotation_;
    const int64_t shift_;
    std::vector<Range> ranges_;
    uint64_t first_stretch_ = 0;
    mutable std::vector<std::atomic<const RotaryTable*>> tables_;  // By stretch.
  };

  // kInvalidArgument naming group and plane: a plane that is stored rotated is shifted, and how it
  // is rotated is not known (Rotation::Of). Several positions of a token (M-RoPE) count as equal,
  // as they are where no content spans stand: a caller shifts nothing else.
  static Result<std::unique_ptr<KeyTurns>> Make(const RestorePlan& plan);

  bool empty() const { return shifted_.empty(); }
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [key, shifted] : shifted_) visit(*shifted);
  }
  // Null: rows of this plane stay as they are.
  const Shifted* Find(uint32_t group, uint32_t plane, int64_t shift) const {
    if (shift == 0 || shifted_.empty()) return nullptr;
    const auto found = shifted_.find({group, plane, shift});
    return found == shifted_.end() ? nullptr : found->second.get();
  }

 private:
  struct Key {
    uint32_t group, plane;
    int64_t shift;
    auto operator<=>(const Key&) const = default;
  };
  Status Add(const ModelSpec& model, uint32_t lane, uint64_t begin, uint64_t end, int64_t shift);

  std::map<Key, std::unique_ptr<Shifted>> shifted_;
};

}  // namespace cairn::engine
