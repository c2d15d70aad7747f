// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/store_files.h"

#include <charconv>
#include <filesystem>

#include "base/io/world.h"
#include "tools/cli/command.h"
#include "wal/format.h"

namespace cairn::cli {

namespace {

namespace fs = std::filesystem;

const char* KindOfSegment(const fs::path& path, const LiveSegments& live) {
  const std::string name = path.filename().string();
  uint64_t number = 0;
  std::from_chars(name.data(), name.data() + name.size(), number, 16);
  if (name != wal::SegmentFileName(number)) return "spares";
  if (live.resting.contains(number)) return "resting";
  return number >= live.first && number - live.first < live.count ? "segments" : "spares";
}

const char* KindOfFile(const fs::path& path, const LiveSegments& live) {
  const std::string extension = path.extension().string();
  if (extension == ".log") return KindOfSegment(path, live);
  if (extension == ".snapshot") return "snapshot_tables";
  return extension == ".index" ? "index_tables" : "other";
}

}  // namespace

void FileSums::Add(const FileSums& other) {
  count += other.count;
  bytes += other.bytes;
  allocated += other.allocated;
  shared += other.shared;
}

Json FileSums::ToJson() const {
  return {{"count", count}, {"bytes", bytes}, {"allocated_bytes", allocated}};
}

std::map<std::string, FileSums> SumFiles(const std::string& store, const LiveSegments& live) {
  std::map<std::string, FileSums> sums;
  for (const char* kind :
       {"segments", "resting", "spares", "snapshot_tables", "index_tables", "other"}) {
    sums[kind] = {};
  }
  const Result<io::World> world = WorldOfStore(store);
  if (!world.ok()) return sums;
  std::error_code error;
  fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator it(store, error); !error && it != end;
       it.increment(error)) {
    std::error_code vanished;  // A live writer renames and removes files at any time.
    if (!it->is_regular_file(vanished)) continue;
    const auto info = world->files->Info(it->path().string());
    if (!info.ok()) continue;
    const bool shared = fs::hard_link_count(it->path(), vanished) > 1 && !vanished;
    sums[KindOfFile(it->path(), live)].Add({.count = 1,
                                            .bytes = info->bytes,
                                            .allocated = info->allocated_bytes,
                                            .shared = shared ? info->allocated_bytes : 0});
  }
  return sums;
}

FileSums SumAllFiles(const std::string& store) {
  FileSums all;
  for (const auto& [kind, sums] : SumFiles(store, {})) all.Add(sums);
  return all;
}

std::string FilesText(const FileSums& sums) {
  return Plural(sums.count, "file") + ", " + BytesText(sums.allocated) + " on disk, " +
         BytesText(sums.bytes) + " long";
}

}  // namespace cairn::cli
