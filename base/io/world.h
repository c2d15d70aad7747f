// SPDX-License-Identifier: Apache-2.0
//
// The world, seen through one narrow interface: files, directories, asynchronous I/O, threads,
// waiting, clocks and random numbers. Code above base/io uses these in no other way, so a test can
// run the whole engine on a simulated machine from one seed.
//
// A World is made of two halves that can be combined:
//   FileSystem  io_uring, blocking threads, memory, or the simulated disk (sim_disk.h)
//   Scheduler   real threads and clocks, or seeded fibers and a virtual clock (sim_scheduler.h)
//
// Rules for all code above:
//   - No lock is held across an I/O call, Wait, Sleep or Join. (In simulation a switch to another
//     fiber happens exactly there, and the one thread would deadlock on its own mutex.)
//   - No threads before they are needed: making a World starts none.
//   - Every call is safe from any thread unless its comment says otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"

namespace cairn::io {

// Offsets, lengths and addresses of direct I/O are multiples of this everywhere. statx may report
// less (512), but 4096 is a multiple of every device's block. Pages may be larger (page_bytes.h).
inline constexpr size_t kBlockBytes = 4096;

inline constexpr uint64_t kNoDeadline = UINT64_MAX;

// For new files, by default. Users that can read the files can enter the directories.
inline constexpr uint32_t kPrivateFileMode = 0600;

class File;

// One transfer or sync. The caller owns the request and its buffer until Reap() hands it back.
struct Request {
  enum class Kind : uint8_t {
    kRead,
    kWrite,         // In the operating system's hands when done: survives kill -9, not power loss.
    kDurableWrite,  // Also on stable media, this write alone (RWF_DSYNC).
    kSync,          // fdatasync: every write of this file that completed before is on stable media.
  };
  Kind kind = Kind::kRead;
  File* file = nullptr;
  std::byte* data = nullptr;  // For writes the bytes are only read.
  size_t length = 0;          // Whole transfers: a short one is continued by the backend.
  uint64_t offset = 0;

  // Set by the backend. A read that meets the end of the file is kIoError naming file, offset and
  // the length found, except that `transferred` is how much was read.
  Status status{};
  size_t transferred = 0;

  void* owner = nullptr;    // Free for the caller.
  Request* next = nullptr;  // Belongs to the backend while in flight.
};

// Submits requests and collects them. One thread at a time uses a queue (it may be handed on under
// a lock of the owner). Requests run concurrently and complete in any order. Destroying a queue
// with requests in flight waits for them.
class Queue {
 public:
  virtual ~Queue() = default;
  // Starts the request, never blocks for its completion. At most `depth` may be in flight.
  virtual void Submit(Request* request) = 0;
  // Blocks until one request is complete and returns it. With one in flight, backends without
  // io_uring run it on this very thread. Must not be called with none in flight.
  virtual Request* Reap() = 0;
  virtual size_t in_flight() const = 0;
};

struct OpenOptions {
  bool write = false;
  bool create = false;     // Create when missing...
  bool exclusive = false;  // ...and fail with kAlreadyExists when present.
  bool direct = false;     // O_DIRECT where the file system allows; see File::direct().
};

class File {
 public:
  virtual ~File() = default;
  virtual const std::string& path() const = 0;
  // True when transfers bypass the page cache. Requests must then be aligned to kBlockBytes.
  virtual bool direct() const = 0;
  virtual Result<uint64_t> Size() = 0;
  virtual Status Truncate(uint64_t bytes) = 0;
  // Allocates blocks for [begin, end) to the file and grows it to `end`; a longer file keeps its
  // length, and bytes keep their values. kNoSpace when there are none; the length is then
  // unchanged. Durable with the next sync. No one may write to that part meanwhile.
  virtual Status Allocate(uint64_t begin, uint64_t end) = 0;

  // Blocking whole transfers on the calling thread; the same errors as Request::status.
  virtual Status Read(uint64_t offset, std::span<std::byte> into) = 0;
  virtual Status Write(uint64_t offset, std::span<const std::byte> from, bool durable) = 0;
  virtual Status Sync() = 0;  // fdatasync
};

struct FileInfo {
  uint64_t bytes = 0;            // Length.
  uint64_t allocated_bytes = 0;  // Blocks really held.
  bool is_directory = false;
};

// Properties of a volume; for `doctor` and for warnings at Open.
struct VolumeInfo {
  std::string file_system;  // "ext4", "tmpfs", "memory", ...
  bool durable = true;      // False for memory file systems: nothing on them survives power loss.
  bool direct_io = false;
};

// Space of a volume that this user may have.
struct DiskSpace {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};

// Held while alive; another holder, in this or any process, is refused. Must be destroyed before
// its file system.
class FileLock {
 public:
  virtual ~FileLock() = default;
  // kLocked once the held file has lost its name, or the name leads to another file: then another
  // process can have the lock, too. Only looks the name up, which takes a microsecond.
  virtual Status Check() = 0;
};

// All paths are taken as given, "/"-separated. Directory operations are durable only after
// SyncDirectory of the parent.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual std::string_view name() const = 0;  // "io_uring", "threads", "memory", "simulated"

  // This file system, holding the directory that `path` leads to now. From then on `path`, paths
  // that begin with it, and ParentPath(path) lead to that directory and to that parent, whatever
  // becomes of their names and of the working directory; all other paths are looked up as before.
  // Below `path` no symbolic link is followed: a call that would have to is kIoError naming it.
  // Null if names and working directory cannot change (in memory): the file system serves as it is.
  // Use HoldDirectory.
  virtual Result<std::shared_ptr<FileSystem>> Hold(const std::string& path) {
    static_cast<void>(path);
    return std::shared_ptr<FileSystem>();
  }
  // For a held `path`: whether its name leads to something else now. False if there is no such
  // name, as after a move.
  virtual Result<bool> IsReplaced(const std::string& path) {
    static_cast<void>(path);
    return false;
  }

  virtual Result<std::unique_ptr<File>> Open(const std::string& path,
                                             const OpenOptions& options) = 0;
  virtual Result<FileInfo> Info(const std::string& path) = 0;  // kNotFound when absent.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;  // Replaces `to`.
  // Makes a second name `to` for the file `from`: they share content, and the file goes with its
  // last name. kAlreadyExists when `to` exists. False when these two names cannot share a file
  // (another volume, no hard links there, too many of them): then there is nothing at `to`, and the
  // caller may copy.
  virtual Result<bool> Link(const std::string& from, const std::string& to) = 0;
  virtual Status Remove(const std::string& path) = 0;
  virtual Status CreateDirectory(const std::string& path) = 0;  // kAlreadyExists when present.
  virtual Status SyncDirectory(const std::string& path) = 0;
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;  // Sorted names.
  // kLocked when there is another holder, named where that is known. Creates the file. In-flight
  // I/O can keep a killed process's lock for milliseconds: this retries for a quarter of a second.
  virtual Result<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;
  // Whether there is a holder. Creates nothing, takes nothing, and false when there is no such
  // file.
  virtual Result<bool> IsLocked(const std::string& path) = 0;
  // Volume opens a file and removes it; Space is a microsecond's work.
  virtual Result<VolumeInfo> Volume(const std::string& path) = 0;
  virtual Result<DiskSpace> Space(const std::string& path) = 0;
  // Files and queues that the process may have open at once, including all that it has open.
  virtual uint64_t OpenFilesMax() = 0;

  virtual std::unique_ptr<Queue> NewQueue(size_t depth) = 0;
};

// Joined by its destructor.
class Thread {
 public:
  virtual ~Thread() = default;
};

// Makes a file descriptor readable, for event loops. In simulation, and in a process that has no
// descriptor left, there is none (-1) and the calls do nothing.
class Notifier {
 public:
  virtual ~Notifier() = default;
  virtual int fd() const = 0;
  virtual void Signal() = 0;
  virtual void Clear() = 0;
};

enum class ThreadPriority : uint8_t {
  kInherited,   // As that of the thread that starts it.
  kBackground,  // Yields the core to other threads, even if a real-time thread starts it.
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // Null when the operating system refuses another thread.
  virtual std::unique_ptr<Thread> StartThread(
      std::string name, std::function<void()> body,
      ThreadPriority priority = ThreadPriority::kInherited) = 0;

  // Futex: returns at once when word != expected; otherwise sleeps until WakeAll(word) or the
  // deadline on MonotonicNs. False only when the deadline passed. Wakes may be spurious.
  virtual bool Wait(std::atomic<uint32_t>& word, uint32_t expected, uint64_t deadline_ns) = 0;
  virtual void WakeAll(std::atomic<uint32_t>& word) = 0;
  virtual void Sleep(uint64_t duration_ns) = 0;
  // Lets other threads run; a point where the simulated scheduler may switch. Free in production.
  virtual void Yield() = 0;

  virtual uint64_t MonotonicNs() = 0;
  virtual uint64_t WallNs() = 0;  // Since 1970. Only written down, never compared at replay.
  virtual uint64_t Random64() = 0;
  // Differs in a child after fork(); constant in simulation.
  virtual uint64_t ProcessId() = 0;
  virtual uint32_t Cores() = 0;
  // Resident memory of this process; 0 where that is not known, as in simulation.
  virtual uint64_t ResidentBytes() { return 0; }
  virtual std::unique_ptr<Notifier> NewNotifier() = 0;
};

struct World {
  std::shared_ptr<FileSystem> files;
  std::shared_ptr<Scheduler> scheduler;
};

enum class IoBackend : uint8_t { kAuto, kUring, kThreads };

// The real machine. kAuto takes io_uring when the kernel grants it, blocking threads otherwise;
// `why` then says in one line why not and how to allow it. kUring fails with kIoError instead. New
// files get `file_mode`, whatever the umask is. kIoError if the system refuses random numbers.
Result<World> MakeRealWorld(IoBackend backend, std::string* why = nullptr,
                            uint32_t file_mode = kPrivateFileMode);

// Files in memory, real threads and clocks: ":memory:". Nothing survives the World.
World MakeMemoryWorld();

}  // namespace cairn::io
