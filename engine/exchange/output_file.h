// SPDX-License-Identifier: Apache-2.0
//
// The file that an export makes: as `path`.tmp until it is whole and durable. Nobody else writes to
// that meanwhile; what a crash left there is replaced.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/io/world.h"
#include "cairn/options.h"

namespace cairn::engine {

// The files that a store's exports are found in: those of the machine, also for a store that lives
// in memory; of the store's own world, where it was given one.
Result<std::shared_ptr<io::FileSystem>> FilesOfExports(const Options& options,
                                                       const io::World& world);

class OutputFile {
 public:
  // kAlreadyExists: `path` exists, and may not be replaced. kLocked: another export writes to it.
  static Result<OutputFile> Create(std::shared_ptr<io::FileSystem> files, const std::string& path,
                                   bool replace);
  OutputFile(OutputFile&&) = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // Removes what was not finished.

  // May be called by several threads at once.
  Status Write(uint64_t offset, std::span<const std::byte> bytes) {
    return file_->Write(offset, bytes, /*durable=*/false);
  }
  // Makes it durable, under its name.
  Status Finish();

 private:
  OutputFile(std::shared_ptr<io::FileSystem> files, std::string path, bool replace)
      : files_(std::move(files)), path_(std::move(path)), replace_(replace) {}
  Status CheckAbsent() const;
  std::string temporary() const { return path_ + ".tmp"; }

  std::shared_ptr<io::FileSystem> files_;
  std::string path_;
  bool replace_;
  std::unique_ptr<io::FileLock> lock_;
  std::unique_ptr<io::File> file_;
};

}  // namespace cairn::engine
