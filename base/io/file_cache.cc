// SPDX-License-Identifier: Apache-2.0
#include "base/io/file_cache.h"

#include <iterator>
#include <utility>

#include "base/core/check.h"

namespace cairn::io {

namespace {

// A slow read takes a millisecond; a disk that opens nothing should be reported soon.
constexpr int kOpenAgainMax = 100;
constexpr uint64_t kOpenAgainNs = 1'000'000;

}  // namespace

Result<std::shared_ptr<File>> FileCache::Open(FileSystem& files, uint64_t id,
                                              const std::string& path, bool waits) {
  {
    MutexLock lock(&mutex_);
    if (const auto found = places_.find(id); found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().file;
    }
  }
  auto file = OpenNew(files, path);
  for (int again = 0; file.status().code() == StatusCode::kIoError; ++again) {
    bool others_hold = false;
    const bool closed = !TakeIdle(&others_hold).empty();
    if (!closed && !(waits && others_hold && again < kOpenAgainMax)) break;
    if (!closed) scheduler_.Sleep(kOpenAgainNs);
    file = OpenNew(files, path);
  }
  if (!file.ok()) return file.status();
  Entries closing;  // Closed without the lock.
  MutexLock lock(&mutex_);
  if (const auto found = places_.find(id); found != places_.end()) {
    return found->second->file;  // Another thread was faster.
  }
  Entries opened = {{id, *file}};
  places_.emplace(id, opened.begin());
  entries_.splice(entries_.begin(), opened);
  closing = TakeOldest(open_max_);
  return file;
}

bool FileCache::CloseIdle() {
  bool others_hold = false;
  return !TakeIdle(&others_hold).empty();
}

void FileCache::Forget(uint64_t id) {
  Entries closing;
  MutexLock lock(&mutex_);
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  closing.splice(closing.begin(), entries_, found->second);
  places_.erase(found);
}

size_t FileCache::size() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

Result<std::shared_ptr<File>> FileCache::OpenNew(FileSystem& files, const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<File> file, files.Open(path, {.direct = true}));
  return std::shared_ptr<File>(std::move(file));
}

// Takes the oldest until this many are left.
FileCache::Entries FileCache::TakeOldest(size_t left) {
  Entries taken;
  while (entries_.size() > left) {
    places_.erase(entries_.back().id);
    taken.splice(taken.begin(), entries_, std::prev(entries_.end()));
  }
  return taken;
}

// Takes files that nobody holds.
FileCache::Entries FileCache::TakeIdle(bool* others_hold) {
  Entries taken;
  MutexLock lock(&mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto next = std::next(it);
    if (it->file.use_count() == 1) {
      places_.erase(it->id);
      taken.splice(taken.begin(), entries_, it);
    } else {
      *others_hold = true;
    }
    it = next;
  }
  return taken;
}

}  // namespace cairn::io
