// SPDX-License-Identifier: Apache-2.0
#include "engine/follow/followed_files.h"

#include <utility>

#include "base/core/check.h"
#include "base/io/path.h"

namespace cairn::engine {

void FollowedFiles::Confirm(const std::string& directory, std::function<Status()> confirm) {
  directory_ = io::JoinPath(directory, "");
  confirm_ = std::move(confirm);
}

Result<std::unique_ptr<io::File>> FollowedFiles::Open(const std::string& path,
                                                      const io::OpenOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(auto file, ForwardingFileSystem::Open(path, options));
  // Files beside it (MANIFEST, OPTIONS, HINT) are what is asked.
  const bool below = path.starts_with(directory_) && path.find('/', directory_.size()) != path.npos;
  if (confirm_ && below) CAIRN_RETURN_IF_ERROR(confirm_());
  return file;
}

}  // namespace cairn::engine
