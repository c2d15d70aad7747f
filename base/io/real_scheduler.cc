// SPDX-License-Identifier: Apache-2.0
#include "base/io/real_scheduler.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <new>
#include <system_error>
#include <thread>

#include "base/core/check.h"
#include "base/io/unique_fd.h"

namespace cairn::io {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;

timespec ToTimespec(uint64_t ns) {
  return {static_cast<time_t>(ns / kNsPerSecond), static_cast<long>(ns % kNsPerSecond)};
}

uint64_t Now(clockid_t clock) {
  timespec time;
  CAIRN_CHECK(clock_gettime(clock, &time) == 0);
  return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
}

// Weighs a third of an ordinary thread if both want a core, so that work which has to keep up still
// does. The kernel also gives the thread's requests a lower priority if its I/O scheduler has any.
// Not SCHED_BATCH: a thread that waits for the device again and again then gets back to a busy core
// late each time (a tenth of the throughput was seen). Neither call needs a privilege; a refused
// one changes nothing.
void GoToBackground() {
  constexpr int kNicer = 5;
  const sched_param ordinary{};
  sched_setscheduler(0, SCHED_OTHER, &ordinary);
  // On Linux these two apply to the thread.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kNicer);
}

class RealThread final : public Thread {
 public:
  // Throws what std::thread throws.
  explicit RealThread(std::function<void()> body)
      : owner_(getpid()), thread_(std::make_unique<std::thread>(std::move(body))) {}
  ~RealThread() override {
    if (getpid() == owner_) {
      thread_->join();
    } else {
      // In a forked child the thread does not exist: joining would hang, destroying would abort.
      (void)thread_.release();
    }
  }

 private:
  const pid_t owner_;
  std::unique_ptr<std::thread> thread_;
};

class EventFdNotifier final : public Notifier {
 public:
  EventFdNotifier() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  int fd() const override { return fd_.get(); }
  // EAGAIN means "already readable" here and "already clear" below.
  void Signal() override { (void)!eventfd_write(fd_.get(), 1); }
  void Clear() override {
    eventfd_t count;
    (void)!eventfd_read(fd_.get(), &count);
  }

 private:
  const UniqueFd fd_;
};

}  // namespace

std::unique_ptr<Thread> RealScheduler::StartThread(std::string name, std::function<void()> body,
                                                   ThreadPriority priority) {
  sigset_t all, before;
  sigfillset(&all);
  CAIRN_CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
  std::unique_ptr<Thread> thread;
  try {
    thread =
        std::make_unique<RealThread>([name = std::move(name), body = std::move(body), priority] {
          constexpr size_t kLongestName = 15;
          pthread_setname_np(pthread_self(), name.substr(0, kLongestName).c_str());
          if (priority == ThreadPriority::kBackground) GoToBackground();
          body();
        });
  } catch (const std::system_error&) {
    // Out of threads, or below of memory; the caller gets null.
  } catch (const std::bad_alloc&) {
  }
  CAIRN_CHECK(pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
  return thread;
}

bool RealScheduler::Wait(std::atomic<uint32_t>& word, uint32_t expected, uint64_t deadline_ns) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  const timespec deadline = ToTimespec(deadline_ns);
  // FUTEX_WAIT_BITSET is the one that takes an absolute time, on the monotonic clock.
  const long result =
      syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
              deadline_ns == kNoDeadline ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
  if (result == 0 || errno == EAGAIN || errno == EINTR) return true;
  CAIRN_CHECK(errno == ETIMEDOUT);
  return false;
}

void RealScheduler::WakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, nullptr, nullptr, 0);
}

void RealScheduler::Sleep(uint64_t duration_ns) {
  const timespec until = ToTimespec(MonotonicNs() + duration_ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

uint64_t RealScheduler::MonotonicNs() { return Now(CLOCK_MONOTONIC); }

uint64_t RealScheduler::WallNs() { return Now(CLOCK_REALTIME); }

uint64_t RealScheduler::Random64() {
  uint64_t value = 0;
  while (getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value))) {
    CAIRN_CHECK(errno == EINTR);
  }
  return value;
}

uint64_t RealScheduler::ProcessId() { return static_cast<uint64_t>(getpid()); }

// The cores that this process may use, in a container fewer than the machine has.
uint32_t RealScheduler::Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) {
    return static_cast<uint32_t>(CPU_COUNT(&set));
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

std::unique_ptr<Notifier> RealScheduler::NewNotifier() {
  return std::make_unique<EventFdNotifier>();
}

}  // namespace cairn::io
