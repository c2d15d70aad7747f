// SPDX-License-Identifier: Apache-2.0
#include "wal/segment_files.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/path.h"
#include "wal/format.h"
#include "wal/space_cushion.h"

namespace cairn::wal {
namespace {

constexpr std::string_view kSparePrefix = "spare-";
constexpr std::string_view kSuffix = ".log";
constexpr std::string_view kUnfinishedSuffix = ".tmp";

// Sixteen lower-case hex digits and ".log".
std::optional<uint64_t> ParseName(std::string_view name) {
  if (name.size() != 16 + kSuffix.size() || !name.ends_with(kSuffix)) return std::nullopt;
  uint64_t number = 0;
  const char* end = name.data() + 16;
  const auto parsed = std::from_chars(name.data(), end, number, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  if (SegmentFileName(number) != name) return std::nullopt;
  return number;
}

}  // namespace

Result<LogDirectory> ListLogDirectory(io::FileSystem& files, const std::string& directory) {
  LogDirectory found;
  const Result<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) {
    if (names.status().code() == StatusCode::kNotFound) return found;
    return names.status();
  }
  for (const std::string& name : *names) {
    const std::string_view view = name;
    if (const auto segment = ParseName(view)) {
      if (*segment != 0) found.segments.push_back(*segment);
    } else if (view.ends_with(kUnfinishedSuffix)) {
      found.unfinished.push_back(name);
    } else if (view.starts_with(kSparePrefix)) {
      if (const auto id = ParseName(view.substr(kSparePrefix.size()))) found.spares.push_back(*id);
    }
  }
  std::sort(found.segments.begin(), found.segments.end());
  std::sort(found.spares.begin(), found.spares.end());
  return found;
}

bool IsLogFileName(std::string_view name) {
  if (IsCushionFileName(name)) return true;
  if (name.ends_with(kUnfinishedSuffix)) name.remove_suffix(kUnfinishedSuffix.size());
  if (name.starts_with(kSparePrefix)) name.remove_prefix(kSparePrefix.size());
  return ParseName(name).has_value();
}

Result<bool> HoldsRecords(io::FileSystem& files, const std::string& path) {
  if (path.ends_with(kUnfinishedSuffix) || IsCushionFileName(io::BaseName(path))) return false;
  CAIRN_ASSIGN_OR_RETURN(const auto file, files.Open(path, {.direct = true}));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, file->Size());
  if (bytes < kBlock) return true;  // Cut: a file gets its name when it is whole.
  const AlignedBuffer block = AlignedBuffer::TryAllocate(Allocator::Default(), kBlock, kBlock);
  if (block.empty()) return Status(StatusCode::kOutOfMemory, "no memory to look into " + path);
  CAIRN_RETURN_IF_ERROR(file->Read(0, block.span()));
  return std::any_of(block.data(), block.data() + kBlock,
                     [](std::byte byte) { return byte != std::byte{0}; });
}

std::string SegmentPath(const std::string& directory, uint64_t segment) {
  return directory + "/" + SegmentFileName(segment);
}

std::string SparePath(const std::string& directory, uint64_t id) {
  return directory + "/" + std::string(kSparePrefix) + SegmentFileName(id);
}

Status MakeSegmentFile(io::FileSystem& files, const std::string& path, uint64_t bytes,
                       uint64_t allocated) {
  CAIRN_CHECK(bytes > 0);
  CAIRN_CHECK(bytes % kBlock == 0);
  const std::string temporary = path + std::string(kUnfinishedSuffix);
  const Status status = CatchBadAlloc([&]() -> Status {
    {
      CAIRN_ASSIGN_OR_RETURN(
          const auto file, files.Open(temporary, {.write = true, .create = true, .direct = true}));
      CAIRN_RETURN_IF_ERROR(file->Allocate(0, std::min(allocated, bytes)));
      CAIRN_RETURN_IF_ERROR(file->Truncate(bytes));
      if (CAIRN_KEPT(kSyncNewSegment)) CAIRN_RETURN_IF_ERROR(file->Sync());
    }
    return files.Rename(temporary, path);
  });
  if (!status.ok()) {
    // The reason is already known; a leftover file is removed at the next Open.
    (void)files.Remove(temporary);
  }
  return status;
}

}  // namespace cairn::wal
