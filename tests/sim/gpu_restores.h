// SPDX-License-Identifier: Apache-2.0
//
// Restores into a simulated GPU on the simulated machine, where the disk and the GPU both fail, all
// from one seed: a conversation is written and sealed, opened again and again, and restored into
// memory of the device in drawn layouts; calls are cancelled, or have too little time.
#pragma once

#include <cstdint>
#include <string>

namespace cairn::sim {

struct GpuRestoresOptions {
  uint64_t seed = 1;
  // Canaries that the checks must find: a byte of a layer that is reported complete is wrong; the
  // memory is written after a restore is over.
  bool wrong_byte = false, late_byte = false;
};

struct GpuRestoresResult {
  uint64_t restores = 0;
  // How they ended: of failures, whether only the device, only the disk, or both had struck.
  uint64_t whole = 0, cancelled = 0, timed_out = 0, by_device = 0, by_disk = 0, by_either = 0;
  uint64_t lost = 0;          // Devices.
  uint64_t layers_early = 0;  // Looked at, complete, while their restore still ran.
  uint64_t schedule_hash = 0;
  std::string violation;  // The first; empty if none.

  void Add(const GpuRestoresResult& other);
  std::string Counts() const;  // One line.
};

GpuRestoresResult RunGpuRestores(const GpuRestoresOptions& options);

}  // namespace cairn::sim
