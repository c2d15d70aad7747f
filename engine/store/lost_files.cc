// SPDX-License-Identifier: Apache-2.0
#include "engine/store/lost_files.h"

#include <algorithm>

#include "base/io/file_util.h"
#include "base/io/path.h"
#include "base/io/wall_text.h"
#include "engine/config/constants.h"

namespace cairn::engine {

LostFiles::LostFiles(const io::World& world, const std::string& directory, uint64_t wall_ns)
    : world_(world),
      store_(directory),
      lost_(io::JoinPath(directory, kLostDirectory)),
      wall_ns_(wall_ns) {}

Status LostFiles::MakeDirectory() {
  if (!made_.empty()) return Status::Ok();
  io::FileSystem& files = *world_.files;
  CAIRN_RETURN_IF_ERROR(io::CreateDirectoryIfMissing(files, lost_));
  CAIRN_RETURN_IF_ERROR(files.SyncDirectory(store_));
  const std::string name = io::WallText(wall_ns_);
  CAIRN_RETURN_IF_ERROR(io::CreateDirectoryIfMissing(files, io::JoinPath(lost_, name)));
  CAIRN_RETURN_IF_ERROR(files.SyncDirectory(lost_));
  made_ = io::JoinPath(lost_, name);
  moved_to_ = io::JoinPath(kLostDirectory, name);
  return Status::Ok();
}

// A name that is free: openings within one second share a directory.
Status LostFiles::PathFor(const std::string& path, std::string* to) {
  CAIRN_RETURN_IF_ERROR(MakeDirectory());
  const std::string wanted = io::JoinPath(made_, io::BaseName(path));
  *to = wanted;
  for (int again = 2;; ++again) {
    const auto taken = world_.files->Info(*to);
    if (taken.status().code() == StatusCode::kNotFound) return Status::Ok();
    CAIRN_RETURN_IF_ERROR(taken.status());
    *to = wanted + "." + std::to_string(again);
  }
}

Status LostFiles::Link(const std::string& path) {
  std::string to;
  CAIRN_RETURN_IF_ERROR(PathFor(path, &to));
  CAIRN_ASSIGN_OR_RETURN(const bool linked, world_.files->Link(path, to));
  if (!linked) return Status::Ok();
  linked_.push_back(path);
  return world_.files->SyncDirectory(made_);
}

Status LostFiles::Move(const std::string& path) {
  io::FileSystem& files = *world_.files;
  if (std::find(linked_.begin(), linked_.end(), path) != linked_.end()) {
    CAIRN_RETURN_IF_ERROR(files.Remove(path));
  } else {
    std::string to;
    CAIRN_RETURN_IF_ERROR(PathFor(path, &to));
    CAIRN_RETURN_IF_ERROR(files.Rename(path, to));
    CAIRN_RETURN_IF_ERROR(files.SyncDirectory(made_));
  }
  return files.SyncDirectory(io::ParentPath(path));
}

Result<uint64_t> LostFiles::Bound(uint64_t bytes_max) {
  io::FileSystem& files = *world_.files;
  const auto openings = files.List(lost_);
  if (openings.status().code() == StatusCode::kNotFound) return uint64_t{0};
  CAIRN_RETURN_IF_ERROR(openings.status());
  struct Kept {
    std::string path;
    uint64_t bytes = 0;
    bool is_directory = false;
  };
  std::vector<Kept> all;  // The oldest first, and what is in a directory before it.
  uint64_t bytes = 0;
  for (const std::string& opening : *openings) {
    const std::string directory = io::JoinPath(lost_, opening);
    CAIRN_ASSIGN_OR_RETURN(const io::FileInfo info, files.Info(directory));
    if (info.is_directory) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
      for (const std::string& name : names) {
        const std::string path = io::JoinPath(directory, name);
        CAIRN_ASSIGN_OR_RETURN(const io::FileInfo file, files.Info(path));
        all.push_back({path, file.allocated_bytes});
        bytes += file.allocated_bytes;
      }
    } else {
      bytes += info.allocated_bytes;
    }
    all.push_back({directory, info.is_directory ? 0 : info.allocated_bytes, info.is_directory});
  }
  bool all_gone = true;  // Nothing of the present directory is left.
  for (const Kept& one : all) {
    const bool goes = one.is_directory ? all_gone && one.path != made_ : bytes > bytes_max;
    if (goes) {
      CAIRN_RETURN_IF_ERROR(files.Remove(one.path));
      bytes -= one.bytes;
    }
    all_gone = one.is_directory || (all_gone && goes);
  }
  return bytes;
}

}  // namespace cairn::engine
