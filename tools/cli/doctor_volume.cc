// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/io/path.h"
#include "cairn/store.h"
#include "engine/manifest/manifest.h"
#include "tools/cli/command.h"
#include "tools/cli/doctor.h"
#include "tools/cli/output.h"

namespace cairn::cli {

namespace {

namespace fs = std::filesystem;

// "major:minor" of the device below a directory.
std::string DeviceNumber(const std::string& directory) {
  struct stat status{};
  if (stat(directory.c_str(), &status) != 0) return "";
  return std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev));
}

// All options of the mount: those of the mount point and those of the file system. Field 3 of a
// line of mountinfo is the device, 6 the former; the latter are the third word behind " - ".
std::string MountOptions(const std::string& device) {
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string id, parent, number, root, where, options;
    words >> id >> parent >> number >> root >> where >> options;
    const size_t dash = line.find(" - ");
    if (number != device || dash == std::string::npos) continue;
    std::istringstream behind(line.substr(dash + 3));
    std::string type, source, super;
    behind >> type >> source >> super;
    return options + "," + super;
  }
  return "";
}

bool HasOption(const std::string& options, const std::string& wanted) {
  return ("," + options + ",").find("," + wanted + ",") != std::string::npos;
}

// "write back" or "write through" of the disk below; "" when there is no such disk.
std::string WriteCache(const std::string& device) {
  std::error_code error;
  fs::path block = fs::canonical("/sys/dev/block/" + device, error);
  if (error) return "";
  if (!fs::exists(block / "queue", error)) block = block.parent_path();  // A partition.
  return FirstLine((block / "queue/write_cache").string());
}

void CheckFlushes(const std::string& directory, Findings* findings) {
  const std::string device = DeviceNumber(directory);
  const std::string options = MountOptions(device);
  if (HasOption(options, "nobarrier") || HasOption(options, "barrier=0")) {
    findings->push_back({Verdict::kFail, "mount",
                         "mounted with " + options +
                             ": flushes do not reach the disk, a power loss takes what was "
                             "acknowledged; mount without nobarrier"});
  } else if (HasOption(options, "ro")) {
    findings->push_back({Verdict::kWarn, "mount", "read-only: stores can be looked at only"});
  }
  const std::string cache = WriteCache(device);
  if (!cache.empty()) {
    findings->push_back({Verdict::kOk, "disk",
                         cache == "write back" ? "volatile write cache, flushed at every sync"
                                               : "no volatile write cache (" + cache + ")"});
  }
}

// --- Durable writes: fdatasync against RWF_DSYNC

uint64_t P10(std::vector<uint64_t> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 10];
}

// Interleaved, so that both arms meet the same neighbours; p10, because those only add. What
// differs from one time to the next is measured more often.
Result<SyncTimes> Measure(io::Scheduler& clock, io::File& file, std::span<const std::byte> data) {
  constexpr int kRounds = 16;
  constexpr size_t kRepeatsMin = 3, kRepeatsMax = 9;
  std::vector<uint64_t> fdatasync_ns, dsync_ns;
  SyncTimes times;
  do {
    std::vector<uint64_t> synced_ns, written_through_ns;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t start = clock.MonotonicNs();
      CAIRN_RETURN_IF_ERROR(file.Write(0, data, false));
      CAIRN_RETURN_IF_ERROR(file.Sync());
      const uint64_t middle = clock.MonotonicNs();
      CAIRN_RETURN_IF_ERROR(file.Write(0, data, true));
      synced_ns.push_back(middle - start);
      written_through_ns.push_back(clock.MonotonicNs() - middle);
    }
    fdatasync_ns.push_back(P10(std::move(synced_ns)));
    dsync_ns.push_back(P10(std::move(written_through_ns)));
    times = {SpreadOf(fdatasync_ns), SpreadOf(dsync_ns), dsync_ns.size()};
  } while (
      times.repeats < kRepeatsMin ||
      (times.repeats < kRepeatsMax && !(times.fdatasync.IsNarrow() && times.dsync.IsNarrow())));
  return times;
}

constexpr std::array<size_t, 2> kProbeBytes = {4 << 10, 128 << 10};

Status Probe(io::World& world, const std::string& path, SyncsMeasured* times) {
  const AlignedBuffer buffer =
      AlignedBuffer::TryAllocate(Allocator::Default(), kProbeBytes.back(), io::kBlockBytes);
  if (buffer.empty()) return Status(StatusCode::kOutOfMemory, "probe buffer");
  std::memset(buffer.data(), 0x5a, buffer.size());
  CAIRN_ASSIGN_OR_RETURN(
      const auto file,
      world.files->Open(path, {.write = true, .create = true, .exclusive = true, .direct = true}));
  // Blocks that were written before, as those of a log segment.
  Status status = file->Write(0, buffer.span(), false);
  if (status.ok()) status = file->Sync();
  for (size_t i = 0; i < kProbeBytes.size() && status.ok(); ++i) {
    const auto measured = Measure(*world.scheduler, *file, buffer.span().first(kProbeBytes[i]));
    status = measured.status();
    if (measured.ok()) (*times)[i] = *measured;
  }
  const Status removed = world.files->Remove(path);
  return status.ok() ? removed : status;
}

std::string Microseconds(uint64_t ns) {
  const uint64_t tenths = (ns + 50) / 100;
  return tenths >= 1000 ? std::to_string((tenths + 5) / 10) + " us"
                        : std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " us";
}

std::string SpreadText(const Spread& spread) {
  return Microseconds(spread.middle_ns) + " (" + Microseconds(spread.low_ns) + " to " +
         Microseconds(spread.high_ns) + ")";
}

// fdatasync unless the other is clearly better, as when a store is made.
std::string SyncText(const SyncTimes& times) {
  constexpr uint64_t kSixteenth = 16;
  const char* const verdict =
      IsFaster(times.dsync, times.fdatasync, kSixteenth)   ? "use dsync"
      : IsFaster(times.fdatasync, times.dsync, kSixteenth) ? "use fdatasync"
                                                           : "alike, within the spread";
  return "fdatasync " + SpreadText(times.fdatasync) + ", dsync " + SpreadText(times.dsync) +
         ", each p10 of " + std::to_string(times.repeats) + " measurements: " + verdict;
}

void CheckSpace(io::World& world, const std::string& directory, Findings* findings) {
  const auto space = world.files->Space(directory);
  if (!space.ok()) {
    findings->push_back({Verdict::kFail, "space", space.status().ToString()});
    return;
  }
  constexpr uint64_t kLittle = 1 << 30, kTooLittle = 64 << 20;
  findings->push_back({space->free_bytes < kTooLittle ? Verdict::kFail
                       : space->free_bytes < kLittle  ? Verdict::kWarn
                                                      : Verdict::kOk,
                       "space",
                       BytesText(space->free_bytes) + " free of " + BytesText(space->total_bytes)});
}

}  // namespace

void CheckVolume(io::World& world, const std::string& directory, Findings* findings) {
  const auto volume = world.files->Volume(directory);
  if (!volume.ok()) {
    findings->push_back({Verdict::kFail, "volume", volume.status().ToString()});
    return;
  }
  Finding kind{Verdict::kOk, "file system", volume->file_system};
  if (!volume->durable) {
    kind = {Verdict::kFail, "file system",
            volume->file_system + " lives in memory: nothing survives a power loss"};
  } else if (volume->file_system == "overlayfs") {
    kind = {Verdict::kWarn, "file system",
            "overlayfs: the layer of a container goes with it; put the store on a volume"};
  } else if (volume->file_system == "nfs" || volume->file_system == "cifs" ||
             volume->file_system == "smb2" || volume->file_system == "9p" ||
             volume->file_system == "fuse") {
    kind = {Verdict::kWarn, "file system",
            volume->file_system +
                ": durability and locks are what its server makes of them; a "
                "local disk is safer and faster"};
  }
  findings->push_back(kind);
  findings->push_back(
      volume->direct_io
          ? Finding{Verdict::kOk, "O_DIRECT", "accepted"}
          : Finding{Verdict::kWarn, "O_DIRECT",
                    "refused, or no file may be made to ask with: without it writes go through the "
                    "page cache, which costs a copy and memory"});
  CheckSpace(world, directory, findings);
  CheckFlushes(directory, findings);
}

std::optional<SyncsMeasured> CheckSync(io::World& world, const std::string& directory,
                                       Findings* findings) {
  const std::string path =
      io::JoinPath(directory, ".cairn-doctor-" + std::to_string(getpid()) + ".tmp");
  SyncsMeasured times;
  if (Status status = Probe(world, path, &times); !status.ok()) {
    findings->push_back({Verdict::kFail, "sync", status.ToString()});
    return std::nullopt;
  }
  for (size_t i = 0; i < times.size(); ++i) {
    findings->push_back({Verdict::kOk, "sync " + BytesText(kProbeBytes[i]), SyncText(times[i])});
  }
  // The fastest disks with power-loss protection need about 10 us.
  constexpr uint64_t kTooGoodNs = 5'000;
  const auto volume = world.files->Volume(directory);
  const uint64_t small_ns = times[0].fdatasync.middle_ns;
  if (volume.ok() && volume->durable && small_ns < kTooGoodNs) {
    findings->push_back({Verdict::kWarn, "sync",
                         "no disk makes 4 KiB durable in " + Microseconds(small_ns) +
                             ": something below ignores flushes"});
  }
  return times;
}

void CheckStore(io::World& world, const std::string& directory,
                const std::optional<SyncsMeasured>& measured, Findings* findings) {
  const auto manifest = engine::ReadManifest(*world.files, directory);
  const bool missing = manifest.status().code() == StatusCode::kNotFound;
  if (!manifest.ok() && !missing) {
    findings->push_back({Verdict::kFail, "store", manifest.status().ToString()});
    return;
  }
  const auto store = OpenForReading(directory);
  // No manifest and nothing else of a store: there is none to be looked at.
  if (missing && store.status().code() == StatusCode::kNotFound) return;
  if (missing && !store.ok()) {
    findings->push_back({Verdict::kFail, "store", store.status().ToString()});
    return;
  }
  if (!store.ok()) {
    findings->push_back({Verdict::kFail, "store",
                         store.status().ToString() + "; cairn repair shows what can be saved"});
    return;
  }
  const StoreMetrics metrics = store->Metrics();
  findings->push_back({Verdict::kOk, "store",
                       Plural(metrics.branches, "branch") + ", opens" +
                           (store->recovery_note().empty() ? "" : "; " + store->recovery_note())});
  const auto chosen = engine::ReadOptionsFile(*world.files, directory);
  if (!chosen.ok()) {
    findings->push_back({Verdict::kFail, "sync method", chosen.status().ToString()});
    return;
  }
  Finding method{Verdict::kOk, "sync method",
                 store->sync_method() + ", chosen when the store was made" +
                     (chosen->probe.empty() ? "" : " (" + chosen->probe + ")")};
  if (measured.has_value()) {
    const bool dsync = chosen->sync_method == wal::SyncMethod::kDurableWrite;
    const auto used = [dsync](const SyncTimes& times) {
      return dsync ? times.dsync : times.fdatasync;
    };
    const auto other = [dsync](const SyncTimes& times) {
      return dsync ? times.fdatasync : times.dsync;
    };
    const auto& [small, large] = *measured;
    if (IsWorthAChange(used(small), other(small), used(large), other(large))) {
      method.verdict = Verdict::kWarn;
      method.detail += std::string("; ") + (dsync ? "fdatasync" : "dsync") +
                       " was faster in all measurements: change sync_method in " +
                       io::JoinPath(directory, "OPTIONS") + " while the store is closed";
    }
  }
  findings->push_back(std::move(method));
}

}  // namespace cairn::cli
