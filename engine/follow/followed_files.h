// SPDX-License-Identifier: Apache-2.0
//
// The files of a store as a follower opens them. After opening a file it checks that the file
// belongs to the store, and only then believes it. An open file stays what it is, whatever is put
// in its place; a name does not.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/io/forwarding_file_system.h"

namespace cairn::engine {

class FollowedFiles final : public io::ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  // `confirm` is called after every opening of a file below `directory`, and may refuse the file.
  void Confirm(const std::string& directory, std::function<Status()> confirm);

  Result<std::unique_ptr<io::File>> Open(const std::string& path,
                                         const io::OpenOptions& options) override;

 private:
  std::string directory_;
  std::function<Status()> confirm_;
};

}  // namespace cairn::engine
