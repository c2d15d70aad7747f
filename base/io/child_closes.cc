// SPDX-License-Identifier: Apache-2.0
#include "base/io/child_closes.h"

#include <pthread.h>
#include <unistd.h>

#include <vector>

#include "base/core/mutex.h"

namespace cairn::io {
namespace {

// Never destroyed, since a fork may come at any time; there from the first descriptor on.
class ClosedInChildren {
 public:
  static ClosedInChildren& Get() {
    static auto* const closed = new ClosedInChildren;
    return *closed;
  }
  void Add(const OwnFd* fd) {
    const MutexLock lock(&mutex_);
    files_.push_back(fd);
  }
  void Remove(const OwnFd* fd) {
    const MutexLock lock(&mutex_);
    std::erase(files_, fd);
  }

 private:
  ClosedInChildren() { pthread_atfork(BeforeFork, InParent, InChild); }

  // The mutex is held over the fork, from one function to another.
  static void BeforeFork() CAIRN_NO_THREAD_SAFETY_ANALYSIS { Get().mutex_.Lock(); }
  static void InParent() CAIRN_NO_THREAD_SAFETY_ANALYSIS { Get().mutex_.Unlock(); }
  static void InChild() CAIRN_NO_THREAD_SAFETY_ANALYSIS {
    for (const OwnFd* fd : Get().files_) {
      if (fd->IsOurs()) close(fd->get());
    }
    Get().files_.clear();
    Get().mutex_.Unlock();
  }

  Mutex mutex_;
  std::vector<const OwnFd*> files_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace

void CloseInChildren(const OwnFd* fd) { ClosedInChildren::Get().Add(fd); }
void StopClosingInChildren(const OwnFd* fd) { ClosedInChildren::Get().Remove(fd); }

}  // namespace cairn::io
