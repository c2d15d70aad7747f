// SPDX-License-Identifier: Apache-2.0
//
// A mutex whose rules the compiler checks. A field names the mutex that guards it, a function the
// mutex that it needs held or takes itself, and Clang refuses code that breaks this
// (-Wthread-safety, which the fuzz preset turns on for the library). GCC sees none of it.
//
//   Mutex mutex_;
//   std::deque<Job> jobs_ CAIRN_GUARDED_BY(mutex_);
//   void StartWorkerLocked() CAIRN_REQUIRES(mutex_);
//
// The analysis looks at one function at a time, and at a lambda as a function of its own: one that
// is called under the lock begins with mutex_.AssertHeld(). It leaves constructors and destructors
// alone, where an object has no other thread yet, or none any more.
#pragma once

#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define CAIRN_THREAD_ANNOTATION(annotation) __attribute__((annotation))
#else
#define CAIRN_THREAD_ANNOTATION(annotation)
#endif

// --- For fields
#define CAIRN_GUARDED_BY(mutex) CAIRN_THREAD_ANNOTATION(guarded_by(mutex))
// --- For functions. Called with the mutex held; the function may release it meanwhile.
#define CAIRN_REQUIRES(...) CAIRN_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// Called without the mutex, since the function takes it.
#define CAIRN_EXCLUDES(...) CAIRN_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// For code that the analysis cannot follow. Only with a comment that says why the code is right.
#define CAIRN_NO_THREAD_SAFETY_ANALYSIS CAIRN_THREAD_ANNOTATION(no_thread_safety_analysis)
// --- For the types below
#define CAIRN_CAPABILITY(name) CAIRN_THREAD_ANNOTATION(capability(name))
#define CAIRN_SCOPED_CAPABILITY CAIRN_THREAD_ANNOTATION(scoped_lockable)
#define CAIRN_ACQUIRE(...) CAIRN_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define CAIRN_ACQUIRE_SHARED(...) CAIRN_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define CAIRN_RELEASE(...) CAIRN_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define CAIRN_ASSERT_CAPABILITY(...) CAIRN_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))

namespace cairn::io {
class CondVar;  // base/io/cond_var.h
}

namespace cairn {

class CAIRN_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() CAIRN_ACQUIRE() { mutex_.lock(); }
  void Unlock() CAIRN_RELEASE() { mutex_.unlock(); }
  // States to the analysis what it cannot see; does nothing.
  void AssertHeld() const CAIRN_ASSERT_CAPABILITY(this) {}

 private:
  friend class io::CondVar;
  std::mutex mutex_;
};

// Holds the mutex while it lives, except between Unlock and Lock.
class CAIRN_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) CAIRN_ACQUIRE(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() CAIRN_RELEASE() {
    if (held_) mutex_->Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() CAIRN_RELEASE() {
    held_ = false;
    mutex_->Unlock();
  }
  void Lock() CAIRN_ACQUIRE() {
    mutex_->Lock();
    held_ = true;
  }

 private:
  Mutex* const mutex_;
  bool held_ = true;
};

// Releases the mutex while it lives, for I/O and waits of a function that REQUIRES it.
class CAIRN_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex* mutex) CAIRN_RELEASE(mutex) : mutex_(mutex) { mutex_->Unlock(); }
  // In a scope, "release" undoes what its constructor did.
  ~MutexUnlock() CAIRN_RELEASE() { mutex_->Lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex* const mutex_;
};

// Held by one writer, or by any number of readers.
class CAIRN_CAPABILITY("shared mutex") SharedMutex {
 public:
  void Lock() CAIRN_ACQUIRE() { mutex_.lock(); }
  void Unlock() CAIRN_RELEASE() { mutex_.unlock(); }
  void LockShared() CAIRN_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void UnlockShared() CAIRN_THREAD_ANNOTATION(release_shared_capability()) {
    mutex_.unlock_shared();
  }

 private:
  std::shared_mutex mutex_;
};

class CAIRN_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex* mutex) CAIRN_ACQUIRE(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~WriterLock() CAIRN_RELEASE() { mutex_->Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex* const mutex_;
};

class CAIRN_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex* mutex) CAIRN_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_->LockShared();
  }
  ~ReaderLock() CAIRN_RELEASE() { mutex_->UnlockShared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex* const mutex_;
};

}  // namespace cairn
