// SPDX-License-Identifier: Apache-2.0
#include "base/io/real_scheduler.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <new>
#include <span>
#include <system_error>
#include <thread>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "base/io/os_error.h"
#include "base/io/own_fd.h"
#include "base/io/page_bytes.h"
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
  EventFdNotifier() : fd_(UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {}
  int fd() const override { return fd_.get(); }
  // EAGAIN means "already readable" here and "already clear" below.
  void Signal() override {
    if (fd_.IsOurs()) (void)!eventfd_write(fd_.get(), 1);
  }
  void Clear() override {
    eventfd_t count;
    if (fd_.IsOurs()) (void)!eventfd_read(fd_.get(), &count);
  }

 private:
  const OwnFd fd_;
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

int RealScheduler::RandomIsRefused() {
  uint64_t value = 0;
  const auto draw = [&] { return getrandom(&value, sizeof(value), 0); };
  return RetryInterrupted(draw) == static_cast<ssize_t>(sizeof(value)) ? 0 : errno;
}

// A sandbox that refuses the call later, in a process that could draw when its store was opened,
// must not end it: then 128 bits that the kernel gave the process at its start, mixed with a count
// and the clock.
uint64_t RealScheduler::Random64() {
  uint64_t value = 0;
  const auto draw = [&] { return getrandom(&value, sizeof(value), 0); };
  if (RetryInterrupted(draw) == static_cast<ssize_t>(sizeof(value))) return value;
  static std::atomic<uint64_t> count{0};
  struct {
    std::array<std::byte, 16> start;
    uint64_t count, process, monotonic_ns, wall_ns;
  } mixed{};
  if (const auto* start = reinterpret_cast<const std::byte*>(getauxval(AT_RANDOM))) {
    std::copy_n(start, mixed.start.size(), mixed.start.begin());
  }
  mixed.count = count.fetch_add(1);
  mixed.process = ProcessId();
  mixed.monotonic_ns = MonotonicNs();
  mixed.wall_ns = WallNs();
  return Hash(std::as_bytes(std::span(&mixed, 1)));
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

uint64_t RealScheduler::ResidentBytes() {
  UniqueFd file(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[128] = {};
  if (file.get() < 0 || read(file.get(), text, sizeof(text) - 1) <= 0) return 0;
  uint64_t pages = 0, resident_pages = 0;
  if (std::sscanf(text, "%" SCNu64 " %" SCNu64, &pages, &resident_pages) != 2) return 0;
  return resident_pages * PageBytes();
}

std::unique_ptr<Notifier> RealScheduler::NewNotifier() {
  return std::make_unique<EventFdNotifier>();
}

}  // namespace cairn::io
