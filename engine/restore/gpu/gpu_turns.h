// SPDX-License-Identifier: Apache-2.0
//
// The turns of a restore (engine/restore/plan/key_turns.h) in device memory, for rotate_keys: made
// by the host, copied once, read by the rows of all layers and heads.
//
// Memory: 8 bytes a pair and token that is turned, on the device and pinned, until the restore
// ends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/device/device_staging.h"
#include "engine/restore/plan/key_turns.h"
#include "gpu/describe.h"

namespace cairn::engine {

class GpuTurns {
 public:
  // Null: there is nothing to turn. Never waits. Errors of the device; kOutOfMemory.
  static Result<std::unique_ptr<GpuTurns>> Make(const GpuWaits* waits, DeviceStaging* pool,
                                                std::unique_ptr<KeyTurns> turns);
  ~GpuTurns();
  GpuTurns(const GpuTurns&) = delete;
  GpuTurns& operator=(const GpuTurns&) = delete;

  // The turns of the wanted rows of a frame of this plane, the first of which is `position` of its
  // source. Nothing: they stay as they are.
  std::optional<gpu::RowsToTurn> RowsOf(const gpu::FrameToScatter& frame, uint32_t group,
                                        uint32_t plane, int64_t shift, uint64_t position) const;
  // When it is reached the turns are on the device: streams that read them wait for it.
  gpu::Event copied() const { return staged_.copied; }

 private:
  // A range of positions, and its first turn in the memory.
  struct Stretch {
    const KeyTurns::Shifted* of = nullptr;
    Range range{};
    uint64_t at = 0;  // In bytes.
  };

  GpuTurns(const GpuWaits* waits, DeviceStaging* pool, std::unique_ptr<KeyTurns> turns)
      : waits_(*waits), pool_(pool), turns_(std::move(turns)) {}
  Status Fill();

  const GpuWaits& waits_;
  DeviceStaging* const pool_;
  const std::unique_ptr<KeyTurns> turns_;
  std::vector<Stretch> stretches_;  // By plane and shift, then by position.
  DeviceStaging::Buffers staged_{};
};

}  // namespace cairn::engine
