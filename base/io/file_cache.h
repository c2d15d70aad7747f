// SPDX-License-Identifier: Apache-2.0
//
// Files that stay open for reading, so that they are not opened for every read, and are few however
// many are read: the least recently used are closed. A file in use stays open as long as its reader
// holds it, beyond the bound if necessary; so a reader should hold few at once.
//
// Thread-safe; no lock is held while a file is opened or closed.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/core/mutex.h"
#include "base/io/world.h"

namespace cairn::io {

class FileCache {
 public:
  FileCache(Scheduler& scheduler, size_t open_max) : scheduler_(scheduler), open_max_(open_max) {}
  FileCache(const FileCache&) = delete;
  FileCache& operator=(const FileCache&) = delete;

  // The file, for direct reading. If the system refuses to open it (it may have no descriptor
  // left), all files that nobody holds are closed first; with `waits` it then waits a little for
  // files that others hold. Callers that hold files themselves, and can drop them, do not wait.
  // `id`: of this path, and of no other path that this cache is asked for.
  Result<std::shared_ptr<File>> Open(FileSystem& files, uint64_t id, const std::string& path,
                                     bool waits = true);
  // Closes files that nobody holds; returns whether there were any.
  bool CloseIdle();
  // The file is to be deleted: nobody gets it from here any more. Needs no memory.
  void Forget(uint64_t id);
  size_t size() const;

 private:
  struct Entry {
    uint64_t id = 0;
    std::shared_ptr<File> file;
  };
  using Entries = std::list<Entry>;  // Most recently used first.

  Result<std::shared_ptr<File>> OpenNew(FileSystem& files, const std::string& path);
  Entries TakeOldest(size_t left) CAIRN_REQUIRES(mutex_);
  Entries TakeIdle(bool* others_hold);

  Scheduler& scheduler_;
  const size_t open_max_;
  mutable Mutex mutex_;
  Entries entries_ CAIRN_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Entries::iterator> places_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::io
