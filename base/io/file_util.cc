// SPDX-License-Identifier: Apache-2.0
#include "base/io/file_util.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"

namespace cairn::io {
namespace {

Status WriteAndSync(FileSystem& files, const std::string& path, std::span<const std::byte> bytes) {
  CAIRN_ASSIGN_OR_RETURN(auto file, files.Open(path, {.write = true, .create = true}));
  CAIRN_RETURN_IF_ERROR(file->Truncate(0));  // A crash may have left one.
  CAIRN_RETURN_IF_ERROR(file->Write(0, bytes, false));
  return CAIRN_KEPT(kSyncSmallFile) ? file->Sync() : Status::Ok();
}

}  // namespace

Result<std::vector<std::byte>> ReadWholeFile(FileSystem& files, const std::string& path,
                                             uint64_t max_bytes) {
  CAIRN_ASSIGN_OR_RETURN(auto file, files.Open(path, {}));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  if (size > max_bytes) {
    return Status(StatusCode::kCorruption, path + ": " + std::to_string(size) + " bytes, at most " +
                                               std::to_string(max_bytes) + " expected");
  }
  std::vector<std::byte> bytes(size);
  CAIRN_RETURN_IF_ERROR(file->Read(0, bytes));
  return bytes;
}

Status WriteFileDurably(FileSystem& files, const std::string& path,
                        std::span<const std::byte> bytes) {
  const std::string temporary = path + ".tmp";
  Status status = WriteAndSync(files, temporary, bytes);
  if (status.ok()) status = files.Rename(temporary, path);
  if (!status.ok()) {
    (void)RemoveIfExists(files, temporary);
    return status;
  }
  if (!CAIRN_KEPT(kSyncDirectorySmallFile)) return Status::Ok();
  return files.SyncDirectory(ParentPath(path));
}

Status HoldDirectory(World* world, const std::string& path) {
  if (!CAIRN_KEPT(kHoldDirectory)) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<FileSystem> held, world->files->Hold(path));
  if (held != nullptr) world->files = std::move(held);
  return Status::Ok();
}

Status CopyRange(File& from, File& to, uint64_t begin, uint64_t end, std::span<std::byte> buffer,
                 const std::function<Status(uint64_t)>& copied) {
  CAIRN_CHECK(begin % kBlockBytes == 0 && end % kBlockBytes == 0 && !buffer.empty() &&
              buffer.size() % kBlockBytes == 0);
  for (uint64_t at = begin; at < end;) {
    const auto piece = buffer.first(std::min<uint64_t>(buffer.size(), end - at));
    CAIRN_RETURN_IF_ERROR(from.Read(at, piece));
    CAIRN_RETURN_IF_ERROR(to.Write(at, piece, /*durable=*/false));
    at += piece.size();
    CAIRN_RETURN_IF_ERROR(copied(piece.size()));
  }
  return Status::Ok();
}

Status RemoveIfExists(FileSystem& files, const std::string& path) {
  return CatchBadAlloc([&] {
    Status status = files.Remove(path);
    return status.code() == StatusCode::kNotFound ? Status() : status;
  });
}

Status CreateDirectoryIfMissing(FileSystem& files, const std::string& path) {
  Status status = files.CreateDirectory(path);
  if (status.code() != StatusCode::kAlreadyExists) return status;
  CAIRN_ASSIGN_OR_RETURN(const FileInfo info, files.Info(path));
  return info.is_directory ? Status() : status;
}

Status MissingIsCorruption(const Status& status) {
  if (status.reason() == StatusReason::kEndOfFile) {
    return Status(StatusCode::kCorruption, std::string(status.message()));
  }
  if (status.code() != StatusCode::kNotFound) return status;
  return Status(StatusCode::kCorruption, std::string(status.message()) + ": the file is gone");
}

}  // namespace cairn::io
