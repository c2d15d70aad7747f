// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/output_file.h"

#include <utility>

#include "base/io/file_util.h"
#include "base/io/path.h"

namespace cairn::engine {

Result<std::shared_ptr<io::FileSystem>> FilesOfExports(const Options& options,
                                                       const io::World& world) {
  if (options.world != nullptr || world.files->name() != "memory") return world.files;
  CAIRN_ASSIGN_OR_RETURN(io::World machine, io::MakeRealWorld(io::IoBackend::kThreads));
  return std::move(machine.files);
}

Status OutputFile::CheckAbsent() const {
  if (replace_) return Status::Ok();
  const Status found = files_->Info(path_).status();
  if (found.code() == StatusCode::kNotFound) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(found);
  return Status(StatusCode::kAlreadyExists, path_ + " exists");
}

Result<OutputFile> OutputFile::Create(std::shared_ptr<io::FileSystem> files,
                                      const std::string& path, bool replace) {
  CAIRN_RETURN_IF_ERROR(io::CheckPath(path));
  OutputFile output(std::move(files), path, replace);
  CAIRN_RETURN_IF_ERROR(output.CheckAbsent());
  CAIRN_ASSIGN_OR_RETURN(output.lock_, output.files_->Lock(output.temporary()));
  CAIRN_ASSIGN_OR_RETURN(output.file_, output.files_->Open(output.temporary(), {.write = true}));
  CAIRN_RETURN_IF_ERROR(output.file_->Truncate(0));
  return output;
}

OutputFile::~OutputFile() {
  if (lock_ == nullptr) return;  // Finished, or never begun.
  file_.reset();
  (void)io::RemoveIfExists(*files_, temporary());
}

Status OutputFile::Finish() {
  CAIRN_RETURN_IF_ERROR(CheckAbsent());
  CAIRN_RETURN_IF_ERROR(file_->Sync());
  CAIRN_RETURN_IF_ERROR(files_->Rename(temporary(), path_));
  file_.reset();
  lock_.reset();
  return files_->SyncDirectory(io::ParentPath(path_));
}

}  // namespace cairn::engine
