// SPDX-License-Identifier: Apache-2.0
//
// The findings of doctor. Each check is a function that adds findings; the worst one is the
// verdict.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/io/world.h"
#include "tools/cli/sync_times.h"

namespace cairn::cli {

enum class Verdict : uint8_t { kOk, kWarn, kFail };

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string what;    // "io_uring"
  std::string detail;  // The finding and, if it is not good, the remedy.
};
using Findings = std::vector<Finding>;

// --- doctor_machine.cc: this process on this machine
void CheckProcessor(Findings* findings);
void CheckUring(Findings* findings);
void CheckLimits(Findings* findings);
void CheckHugePages(Findings* findings);

// --- doctor_gpu.cc: the driver, and ways to a card that go past the host's memory
void CheckGpu(Findings* findings);
// The rates of the disk below `directory` into pinned memory, and of that to a card, each by
// itself; uses a small file there, which is removed. `name`: as in cairn-bench gpu.
void MeasureGpu(io::World& world, const std::string& directory, const std::string& name,
                Findings* findings);

// --- doctor_volume.cc: a directory
void CheckVolume(io::World& world, const std::string& directory, Findings* findings);
// Times of durable writes of 4 and of 128 KiB.
using SyncsMeasured = std::array<SyncTimes, 2>;
// Writes and removes a small file. Nothing when it could not be measured.
std::optional<SyncsMeasured> CheckSync(io::World& world, const std::string& directory,
                                       Findings* findings);
void CheckStore(io::World& world, const std::string& directory,
                const std::optional<SyncsMeasured>& measured, Findings* findings);

// Helpers of both. The first line of a file, or "" when it cannot be read.
std::string FirstLine(const std::string& path);

}  // namespace cairn::cli
