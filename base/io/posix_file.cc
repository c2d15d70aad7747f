// SPDX-License-Identifier: Apache-2.0
#include "base/io/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/core/check.h"
#include "base/core/zeros.h"
#include "base/io/os_error.h"

namespace cairn::io {
namespace {

constexpr uint64_t kSectorBytes = 512;

// Newer than the kernel headers of Debian 12; the layout of struct statx has room for them.
constexpr unsigned kStatxDioAlign = 0x2000;
struct StatxDioAlign {
  uint32_t memory;
  uint32_t offset;
};
constexpr size_t kStatxDioAlignPosition = 0x98;

// O_DIRECT is set after open: a file system that refuses it in open() may have created the file
// already, and a second attempt with O_EXCL would then find it.
bool TrySetDirect(int fd) {
  struct statx status;
  static_assert(sizeof(status) >= kStatxDioAlignPosition + sizeof(StatxDioAlign));
  if (statx(fd, "", AT_EMPTY_PATH, kStatxDioAlign, &status) == 0 &&
      (status.stx_mask & kStatxDioAlign) != 0) {
    StatxDioAlign align;
    std::copy_n(reinterpret_cast<const char*>(&status) + kStatxDioAlignPosition, sizeof(align),
                reinterpret_cast<char*>(&align));
    // Zero: direct I/O is not supported for this file (an encrypted one, for example).
    if (align.memory == 0 || align.offset == 0) return false;
    if (align.memory > kBlockBytes || align.offset > kBlockBytes) return false;
  }
  const int flags = fcntl(fd, F_GETFL);
  return flags != -1 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

// A pipe or a device may be in the place of a file, and would block. So everything is opened
// non-blocking, and that ends here: files ignore the flag, but rings do not.
Status CheckIsFile(int fd, const std::string& path) {
  struct stat status;
  if (fstat(fd, &status) != 0) return OsError(errno, "fstat", path);
  if (!S_ISREG(status.st_mode)) {
    return Status(StatusCode::kIoError, "open " + path + ": it is not a regular file");
  }
  if (fcntl(fd, F_SETFL, 0) != 0) return OsError(errno, "fcntl", path);
  return Status::Ok();
}

// As OpenPosix, -1 with errno. Only a new file gets the mode; to know that it is new, it must be
// made by a call that makes it or fails.
int OpenAt(const PosixPlace& place, const OpenOptions& options, uint32_t mode) {
  const int access =
      O_CLOEXEC | O_NONBLOCK | place.no_follow() | (options.write ? O_RDWR : O_RDONLY);
  const auto open_it = [&](int more) {
    return RetryInterrupted(
        [&] { return openat(place.directory, place.name.c_str(), access | more, mode); });
  };
  if (!options.create) return open_it(0);
  if (!options.exclusive) {
    if (const int fd = open_it(0); fd >= 0 || errno != ENOENT) return fd;
  }
  const int made = open_it(O_CREAT | O_EXCL);
  // A file system without modes refuses; then there is no mode to keep.
  if (made >= 0) static_cast<void>(fchmod(made, mode));
  // Another process was quicker, or it is a link that leads to nothing yet.
  if (made < 0 && errno == EEXIST && !options.exclusive) return open_it(O_CREAT);
  return made;
}

uint64_t NewFileId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

const char* CallName(Request::Kind kind) {
  switch (kind) {
    case Request::Kind::kRead: return "pread";
    case Request::Kind::kWrite: return "pwrite";
    case Request::Kind::kDurableWrite: return "pwritev2(RWF_DSYNC)";
    case Request::Kind::kSync: return "fdatasync";
  }
  return "?";
}

}  // namespace

Result<UniqueFd> OpenPosix(const std::string& path, const PosixPlace& place,
                           const OpenOptions& options, uint32_t mode) {
  CAIRN_RETURN_IF_ERROR(place.Check(path));
  UniqueFd fd(OpenAt(place, options, mode));
  if (!fd.valid()) return LookupError(errno, "open", path, place);
  CAIRN_RETURN_IF_ERROR(CheckIsFile(fd.get(), path));
  return fd;
}

Result<std::unique_ptr<PosixFile>> PosixFile::Open(const std::string& path,
                                                   const OpenOptions& options) {
  return Open(path, PosixPlace{.name = path}, options, kPrivateFileMode);
}

Result<std::unique_ptr<PosixFile>> PosixFile::Open(const std::string& path, const PosixPlace& place,
                                                   const OpenOptions& options, uint32_t mode) {
  CAIRN_ASSIGN_OR_RETURN(UniqueFd fd, OpenPosix(path, place, options, mode));
  const bool direct = options.direct && TrySetDirect(fd.get());
  return std::make_unique<PosixFile>(path, std::move(fd), direct);
}

PosixFile::PosixFile(std::string path, UniqueFd fd, bool direct)
    : path_(std::move(path)), fd_(std::move(fd)), id_(NewFileId()), direct_(direct) {}

PosixFile::~PosixFile() {
  const MutexLock lock(&mutex_);
  for (const std::weak_ptr<FileHolder>& one : holders_) {
    if (const std::shared_ptr<FileHolder> holder = one.lock()) holder->Forget(id_);
  }
}

void PosixFile::AddHolder(std::shared_ptr<FileHolder> holder) {
  const MutexLock lock(&mutex_);
  std::erase_if(holders_, [](const auto& one) { return one.expired(); });
  const bool known = std::any_of(holders_.begin(), holders_.end(),
                                 [&](const auto& one) { return one.lock() == holder; });
  if (!known) holders_.push_back(std::move(holder));
}

Result<uint64_t> PosixFile::Size() {
  struct stat status;
  if (fstat(fd(), &status) != 0) {
    return errno == EBADF ? DescriptorIsLost(path_, fd()) : OsError(errno, "fstat", path_);
  }
  if (!fd_.Is(status)) return DescriptorIsLost(path_, fd());
  return static_cast<uint64_t>(status.st_size);
}

Status PosixFile::Truncate(uint64_t bytes) {
  CAIRN_RETURN_IF_ERROR(CheckDescriptor());
  if (RetryInterrupted([&] { return ftruncate(fd(), static_cast<off_t>(bytes)); }) == 0) return {};
  return OsError(errno, "ftruncate", path_, 0, bytes);
}

Status PosixFile::Allocate(uint64_t begin, uint64_t end) {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t old_bytes, Size());
  if (begin >= end) return {};
  const Status status = AllocateBlocks(begin, end);
  // A full disk must not stay full because of a partial allocation.
  if (!status.ok()) (void)Truncate(old_bytes);
  return status;
}

// A signal ends the call, and some file systems then undo all of it: a program with a fast timer
// would come no further. So each interrupted piece is tried again as two halves, and without any
// progress for a while it is an error.
Status PosixFile::AllocateBlocks(uint64_t begin, uint64_t end) {
  constexpr uint64_t kSmallestPiece = 1 << 20;
  constexpr std::chrono::seconds kPatience(2);
  uint64_t piece = end - begin;
  auto progress = std::chrono::steady_clock::now();
  while (begin < end) {
    const uint64_t length = std::min(piece, end - begin);
    if (fallocate(fd(), 0, static_cast<off_t>(begin), static_cast<off_t>(length)) == 0) {
      begin += length;
      progress = std::chrono::steady_clock::now();
      continue;
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS) return WriteZeros(begin, end);
    if (errno != EINTR || std::chrono::steady_clock::now() - progress > kPatience) {
      return OsError(errno, "fallocate", path_, begin, length);
    }
    piece = std::max(kSmallestPiece, length / 2);
  }
  return {};
}

// If nothing else can allocate blocks: writes zeros, into the holes below the file's length and
// beyond it. Whole blocks, so that it works on direct files as well.
Status PosixFile::WriteZeros(uint64_t begin, uint64_t end) {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t old_bytes, Size());
  const auto fill = [this](uint64_t from, uint64_t to) -> Status {
    for (uint64_t at = from / kBlockBytes * kBlockBytes; at < to; at += kZeroBytes) {
      const uint64_t blocks = (to - at + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
      const auto zeros = ZeroBytes().first(std::min<uint64_t>(blocks, kZeroBytes));
      CAIRN_RETURN_IF_ERROR(Write(at, zeros, false));
    }
    return {};
  };
  const uint64_t within = std::min(end, old_bytes);
  for (uint64_t at = begin; at < within;) {
    // A file system that does not track holes reports none.
    const off_t hole = lseek(fd(), static_cast<off_t>(at), SEEK_HOLE);
    if (hole < 0 || static_cast<uint64_t>(hole) >= within) break;
    const off_t data = lseek(fd(), hole, SEEK_DATA);
    at = data < 0 ? within : std::min(within, static_cast<uint64_t>(data));
    CAIRN_RETURN_IF_ERROR(fill(static_cast<uint64_t>(hole), at));
  }
  const uint64_t behind = (old_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  if (end > behind) CAIRN_RETURN_IF_ERROR(fill(std::max(begin, behind), end));
  return Truncate(std::max(end, old_bytes));
}

int64_t PosixFile::Issue(const Request& request) {
  std::byte* data = request.data + request.transferred;
  const size_t length = std::min(request.length - request.transferred, kMaxCallBytes);
  const auto offset = static_cast<off_t>(request.offset + request.transferred);
  int64_t answer = -1;
  switch (request.kind) {
    case Request::Kind::kRead: answer = pread(fd(), data, length, offset); break;
    case Request::Kind::kWrite: answer = pwrite(fd(), data, length, offset); break;
    case Request::Kind::kDurableWrite:
      if (dsync_in_one_call()) {
        const iovec vector{data, length};
        answer = pwritev2(fd(), &vector, 1, offset, RWF_DSYNC);
      } else {
        answer = pwrite(fd(), data, length, offset);
      }
      break;
    case Request::Kind::kSync: answer = fdatasync(fd()); break;
  }
  return answer < 0 ? -errno : answer;
}

void PosixFile::Run(Request& request) {
  constexpr int kAgainLimit = 100;
  constexpr timespec kAgainPause{0, 1'000'000};
  if (request.status = CheckDescriptor(); !request.status.ok()) return;
  int again = 0;
  for (;;) {
    const int64_t answer = Issue(request);
    if (answer == -EAGAIN && ++again <= kAgainLimit) {
      nanosleep(&kAgainPause, nullptr);
      continue;
    }
    if (Advance(request, answer)) break;
  }
  if (request.kind == Request::Kind::kDurableWrite && !dsync_in_one_call() && request.status.ok()) {
    if (RetryInterrupted([&] { return fdatasync(fd()); }) != 0) {
      request.status = OsError(errno, "fdatasync", path_, request.offset, request.length);
    }
  }
}

bool PosixFile::Advance(Request& request, int64_t answer) {
  if (answer < 0) {
    const int error = static_cast<int>(-answer);
    if (error == EINTR) return false;
    if (request.kind == Request::Kind::kDurableWrite && dsync_in_one_call() &&
        (error == EOPNOTSUPP || error == ENOSYS)) {
      dsync_refused_.store(true, std::memory_order_relaxed);
      return false;
    }
    request.status =
        OsError(error, CallName(request.kind), path_, request.offset + request.transferred,
                request.length - request.transferred);
    return true;
  }
  if (request.kind == Request::Kind::kSync) return true;

  const size_t before = request.transferred;
  request.transferred += static_cast<size_t>(answer);
  CAIRN_CHECK(request.transferred <= request.length);
  if (request.transferred == request.length) return true;

  if (request.kind == Request::Kind::kRead) {
    // A direct read that was cut at the end of the file must not go on from there: the place may
    // be unaligned, and the answer would be EINVAL.
    bool at_end = answer == 0;
    if (!at_end && direct_) {
      const Result<uint64_t> size = Size();
      at_end = !size.ok() || request.offset + request.transferred >= *size;
    }
    if (at_end) {
      request.status = EndOfFile(path_, request.offset, request.length, request.transferred);
    }
    return at_end;
  }
  if (direct_) request.transferred -= request.transferred % kSectorBytes;
  if (request.transferred > before) return false;
  request.status =
      OsError(EIO, CallName(request.kind), path_, request.offset + before, request.length - before)
          .WithContext("no progress");
  return true;
}

}  // namespace cairn::io
