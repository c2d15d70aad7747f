// SPDX-License-Identifier: Apache-2.0
//
// A file of the operating system. Both real backends use it: it issues one request as a blocking
// call, and knows what the kernel's answer means for the rest of a request, whichever backend
// issued it.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/held_directory.h"
#include "base/io/own_fd.h"
#include "base/io/request_file.h"
#include "base/io/unique_fd.h"
#include "base/io/world.h"

namespace cairn::io {

// The largest transfer of one call. The kernel's own limit is 2 GiB less a page.
inline constexpr size_t kMaxCallBytes = size_t{1} << 30;

// A descriptor of the regular file at `place`, which errors call `path`. A new one gets `mode`,
// whatever the umask says.
Result<UniqueFd> OpenPosix(const std::string& path, const PosixPlace& place,
                           const OpenOptions& options, uint32_t mode);

// What keeps a file open besides its descriptor.
class FileHolder {
 public:
  virtual ~FileHolder() = default;
  // The file ends. Throws nothing.
  virtual void Forget(uint64_t file_id) = 0;
};

class PosixFile final : public RequestFile {
 public:
  static Result<std::unique_ptr<PosixFile>> Open(const std::string& path,
                                                 const OpenOptions& options);
  static Result<std::unique_ptr<PosixFile>> Open(const std::string& path, const PosixPlace& place,
                                                 const OpenOptions& options, uint32_t mode);
  PosixFile(std::string path, UniqueFd fd, bool direct);
  ~PosixFile() override;

  const std::string& path() const override { return path_; }
  bool direct() const override { return direct_; }
  Result<uint64_t> Size() override;
  Status Truncate(uint64_t bytes) override;
  Status Allocate(uint64_t begin, uint64_t end) override;

  // Executes what is left of the request on the calling thread.
  void Run(Request& request) override;

  // Takes the answer to one call for what was left of the request: bytes, or -errno. True when the
  // request is over, its status set; false when the rest is to be issued (again).
  bool Advance(Request& request, int64_t answer);

  int fd() const { return fd_.get(); }
  // kIoError once the descriptor was closed by somebody else. Every call here looks first.
  Status CheckDescriptor() const { return fd_.Check(path_); }
  uint64_t id() const { return id_; }  // No other file of this process has, or had, it.
  // Adds a holder, which is notified when the file ends. Adding one again changes nothing.
  void AddHolder(std::shared_ptr<FileHolder> holder);
  // False once the kernel refused RWF_DSYNC: durable writes then take two calls, see Run().
  bool dsync_in_one_call() const { return !dsync_refused_.load(std::memory_order_relaxed); }

 private:
  int64_t Issue(const Request& request);
  Status AllocateBlocks(uint64_t begin, uint64_t end);
  Status WriteZeros(uint64_t begin, uint64_t end);

  const std::string path_;
  const OwnFd fd_;
  const uint64_t id_;
  const bool direct_;
  std::atomic<bool> dsync_refused_{false};
  Mutex mutex_;
  std::vector<std::weak_ptr<FileHolder>> holders_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::io
