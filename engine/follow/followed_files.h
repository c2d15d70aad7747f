// SPDX-License-Identifier: Apache-2.0
//
// The files of a store as a follower opens them: each is believed only when it was asked, behind
// its opening, whose they are. Files that are open stay what they are, whatever is put in their
// place; names do not.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/io/forwarding_file_system.h"

namespace cairn::engine {

class FollowedFiles final : public io::ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  // Called behind every opening of a file below `directory`, which it may refuse.
  void Confirm(const std::string& directory, std::function<Status()> confirm);

  Result<std::unique_ptr<io::File>> Open(const std::string& path,
                                         const io::OpenOptions& options) override;

 private:
  std::string directory_;
  std::function<Status()> confirm_;
};

}  // namespace cairn::engine
