// SPDX-License-Identifier: Apache-2.0
#include "engine/store/store_directory.h"

#include <string_view>
#include <vector>

#include "base/core/check.h"
#include "base/core/text.h"
#include "base/io/file_util.h"
#include "base/io/shared_area.h"
#include "base/io/volume.h"
#include "engine/config/constants.h"
#include "engine/follow/hint.h"
#include "sstable/table_files.h"
#include "wal/segment_files.h"

namespace cairn::engine {

namespace {

// Adapters remember the digests of weights in the one, the limits of a store of theirs in the other
// (api/python/cairn/_digest.py, _defaults.py).
constexpr std::string_view kDigestsFile = "DIGESTS";
constexpr std::string_view kDefaultsFile = "DEFAULTS";

bool IsOurs(const std::string& name) {
  return name.starts_with("MANIFEST-") || name == "OPTIONS" || name == kLockFile ||
         name == kHintFile || name == kLogDirectory || name == kTableDirectory ||
         name == kLostDirectory || name == kDigestsFile || name == "DIGESTS.tmp" ||
         name == kDefaultsFile || name == "DEFAULTS.tmp" || name == "probe.tmp" ||
         name == "OPTIONS.tmp" || io::IsAreaName(name);
}

// A link in the place of a file is refused where the file is opened. Here it is refused before
// anything is written, also if the file is only one that a later step would make.
Status CheckNoLinks(io::FileSystem& files, const std::string& path) {
  const auto names = files.List(path);
  for (size_t i = 0; names.ok() && i < names->size(); ++i) {
    if (!IsOurs((*names)[i])) continue;
    const Status status = files.Info(io::JoinPath(path, (*names)[i])).status();
    if (!status.ok() && status.code() != StatusCode::kNotFound) return status;
  }
  return Status::Ok();
}

}  // namespace

Status EnterDirectory(io::World* world, const std::string& path, bool create) {
  const auto info = world->files->Info(path);
  if (!info.ok() && info.status().code() != StatusCode::kNotFound) return info.status();
  if (!info.ok()) {
    if (!create) {
      return Status(StatusCode::kNotFound, path + ": no store here (create_if_missing is off)");
    }
    CAIRN_RETURN_IF_ERROR(world->files->CreateDirectory(path));
  } else if (!info->is_directory) {
    return Status(StatusCode::kInvalidState, path + " is a file, not a store's directory");
  }
  CAIRN_RETURN_IF_ERROR(io::HoldDirectory(world, path));
  return CheckNoLinks(*world->files, path);
}

Status CheckDirectoryIsFree(io::FileSystem& files, const std::string& path) {
  const auto other = [&](const std::string& name) {
    return Status(StatusCode::kInvalidState,
                  path + " is no store and holds other files (" + Quoted(name) + ")");
  };
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(path));
  for (const std::string& name : names) {
    if (io::IsOfVolume(name)) continue;
    if (!IsOurs(name)) return other(name);
    if (name != kLogDirectory) continue;
    const std::string log = io::JoinPath(path, kLogDirectory);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> inside, files.List(log));
    for (const std::string& file : inside) {
      if (!wal::IsLogFileName(file)) return other(io::JoinPath(kLogDirectory, file));
    }
  }
  return Status::Ok();
}

Status NoStoreHere(io::FileSystem& files, const std::string& path, const std::string& why) {
  const std::string log = io::JoinPath(path, kLogDirectory);
  const auto names = files.List(log);
  for (size_t i = 0; names.ok() && i < names->size(); ++i) {
    const std::string& name = (*names)[i];
    if (!wal::IsLogFileName(name)) continue;
    CAIRN_ASSIGN_OR_RETURN(const bool written, wal::HoldsRecords(files, io::JoinPath(log, name)));
    if (!written) continue;
    return Status(
        StatusCode::kCorruption,
        path + ": the log of a store is here (" + name +
            "), but no MANIFEST: it was removed, is another directory's, or a checkpoint was not "
            "finished");
  }
  // There is no table before the first manifest either.
  const auto tables = files.List(io::JoinPath(path, kTableDirectory));
  for (size_t i = 0; tables.ok() && i < tables->size(); ++i) {
    if (!sstable::IsTableFileName((*tables)[i])) continue;
    return Status(StatusCode::kCorruption, path + ": tables of a store are here (" + (*tables)[i] +
                                               "), but no MANIFEST: it was removed, or a " +
                                               "checkpoint was not finished");
  }
  return why.empty() ? Status::Ok() : Status(StatusCode::kNotFound, path + why);
}

}  // namespace cairn::engine
