// SPDX-License-Identifier: Apache-2.0
#include "base/io/area_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/core/check.h"
#include "base/io/os_error.h"
#include "base/io/path.h"

namespace cairn::io {
namespace {

constexpr char kMagic[8] = {'C', 'R', 'N', 'A', 'R', 'E', 'A', '1'};
// Who connects and says nothing keeps the others waiting this long at most.
constexpr uint64_t kQuestionNs = 1'000'000'000;
// A creator looks this often whether its descriptors are still its own.
constexpr int kLookMs = 1000;
constexpr int kBacklog = 64;
constexpr uint64_t kDirectoryNs = 2'000'000'000, kAgainNs = 5'000'000;

enum class Verdict : uint32_t { kMapped = 1, kOtherUser = 2, kOtherNonce = 3, kNoQuestion = 4 };

struct Question {
  char magic[sizeof kMagic] = {};
  uint8_t nonce[16] = {};
};
struct AreaAnswer {
  char magic[sizeof kMagic] = {};
  Verdict verdict = Verdict::kNoQuestion;
  uint32_t zeros = 0;
};

int LeftMs(Scheduler& scheduler, uint64_t deadline_ns) {
  const uint64_t now_ns = scheduler.MonotonicNs();
  return now_ns >= deadline_ns ? 0 : static_cast<int>((deadline_ns - now_ns) / 1'000'000 + 1);
}

bool IsOfThisUser(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// A socket's name has 107 bytes. A longer path is reached through the descriptor of its directory.
Result<sockaddr_un> SocketAddress(const std::string& path, int directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string text = path;
  if (text.size() >= sizeof address.sun_path) {
    text = "/proc/self/fd/" + std::to_string(directory) + "/" + BaseName(path);
  }
  if (text.size() >= sizeof address.sun_path) {
    return Status(StatusCode::kInvalidArgument, path + ": the name of the socket is too long");
  }
  std::copy(text.begin(), text.end(), address.sun_path);
  return address;
}

int Connect(int socket, const sockaddr_un& address) {
  return RetryInterrupted(
      [&] { return connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address); });
}

UniqueFd NewSocket() {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Removes sockets on which nobody listens: their creators are dead. A process that makes one here
// holds the directory's lock until it listens.
void RemoveDeadSockets(const std::string& path, int directory) {
  const int listed = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (listed < 0) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> names(fdopendir(listed), closedir);
  if (names == nullptr) {
    close(listed);
    return;
  }
  while (const dirent* const entry = readdir(names.get())) {
    struct stat status {};
    if (!IsAreaName(entry->d_name) ||
        fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISSOCK(status.st_mode) || status.st_uid != geteuid()) {
      continue;
    }
    const UniqueFd socket = NewSocket();
    const Result<sockaddr_un> address = SocketAddress(JoinPath(path, entry->d_name), directory);
    if (!socket.valid() || !address.ok()) return;
    if (Connect(socket.get(), *address) != 0 && errno == ECONNREFUSED) {
      unlinkat(directory, entry->d_name, 0);
    }
  }
}

Status LockDirectory(const std::string& path, int directory, Scheduler* scheduler) {
  const uint64_t until_ns = scheduler->MonotonicNs() + kDirectoryNs;
  while (RetryInterrupted([&] { return flock(directory, LOCK_EX | LOCK_NB); }) != 0) {
    if (errno != EWOULDBLOCK) return OsError(errno, "flock", path);
    if (scheduler->MonotonicNs() >= until_ns) {
      return Status(StatusCode::kLocked, path + ": another process is making a shared area here");
    }
    scheduler->Sleep(kAgainNs);
  }
  return Status::Ok();
}

Result<std::string> AbsolutePath(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  if (real == nullptr) return OsError(errno, "realpath", path);
  return std::string(real.get());
}

// Listens under a name of mode 0600: the mode of a socket that is not bound yet becomes that of its
// name.
Status Listen(int socket, const std::string& path, int directory) {
  CAIRN_ASSIGN_OR_RETURN(const sockaddr_un address, SocketAddress(path, directory));
  if (fchmod(socket, 0600) != 0) return OsError(errno, "fchmod", path);
  if (bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return OsError(errno, "bind", path);
  }
  const std::string name = BaseName(path);
  struct stat status {};
  const auto fails = [&](const char* call) {
    const int error = errno;
    unlinkat(directory, name.c_str(), 0);
    return OsError(error, call, path);
  };
  if (fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return fails("stat");
  if ((status.st_mode & 0777) != 0600 && fchmodat(directory, name.c_str(), 0600, 0) != 0) {
    return fails("chmod");
  }
  if (listen(socket, kBacklog) != 0) return fails("listen");
  return Status::Ok();
}

}  // namespace

OwnedHere::OwnedHere(UniqueFd fd) : process_(getpid()), fd_(std::move(fd)) {
  CloseInChildren(&fd_);
}

OwnedHere::~OwnedHere() {
  if (getpid() != process_) {
    static_cast<void>(fd_.Release());  // The fork closed it.
    return;
  }
  StopClosingInChildren(&fd_);
}

// ---------------------------------------------------------------- the creator

Result<std::unique_ptr<AreaServer>> AreaServer::Start(const std::string& directory,
                                                      const OwnedHere* memory, AreaAddress* address,
                                                      std::shared_ptr<Scheduler> scheduler) {
  CAIRN_ASSIGN_OR_RETURN(const std::string path, AbsolutePath(directory));
  UniqueFd held(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!held.valid()) return OsError(errno, "open", path);
  UniqueFd listening = NewSocket();
  if (!listening.valid()) return OsError(errno, "socket", path);
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return OsError(errno, "eventfd", path);
  char name[32];
  std::snprintf(name, sizeof name, "area-%016llx",
                static_cast<unsigned long long>(scheduler->Random64()));
  address->socket = JoinPath(path, name);
  CAIRN_RETURN_IF_ERROR(LockDirectory(path, held.get(), scheduler.get()));
  RemoveDeadSockets(path, held.get());
  CAIRN_RETURN_IF_ERROR(Listen(listening.get(), address->socket, held.get()));
  static_cast<void>(flock(held.get(), LOCK_UN));
  std::unique_ptr<AreaServer> server(new AreaServer(memory, *address, std::move(held),
                                                    std::move(listening), std::move(stop),
                                                    std::move(scheduler)));
  server->thread_ =
      server->scheduler_->StartThread("cairn-area", [of = server.get()] { of->Serve(); });
  if (server->thread_ == nullptr) {
    return Status(StatusCode::kIoError, address->socket + ": the system refuses a thread");
  }
  return server;
}

AreaServer::AreaServer(const OwnedHere* memory, const AreaAddress& address, UniqueFd directory,
                       UniqueFd listening, UniqueFd stop, std::shared_ptr<Scheduler> scheduler)
    : memory_(*memory),
      address_(address),
      name_(BaseName(address.socket)),
      scheduler_(std::move(scheduler)),
      process_(scheduler_->ProcessId()),
      directory_(std::move(directory)),
      listening_(std::move(listening)),
      stop_(std::move(stop)) {}

AreaServer::~AreaServer() {
  if (scheduler_->ProcessId() != process_) {
    static_cast<void>(thread_.release());  // A child of fork() has no such thread.
    return;
  }
  stopping_.store(true);
  const uint64_t one = 1;
  if (stop_.IsOurs()) static_cast<void>(!write(stop_.get(), &one, sizeof one));
  thread_.reset();
  if (directory_.IsOurs()) unlinkat(directory_.get(), name_.c_str(), 0);
}

void AreaServer::Serve() {
  while (!stopping_.load()) {
    // Another part of the program may have closed them.
    if (!listening_.IsOurs() || !stop_.IsOurs()) return;
    pollfd wanted[2] = {{listening_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(wanted, 2, kLookMs) <= 0 || wanted[1].revents != 0) continue;
    const UniqueFd peer(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (peer.valid()) {
      Answer(peer);
    } else if (errno != EAGAIN && errno != ECONNABORTED) {
      scheduler_->Sleep(kAgainNs);  // No descriptor left, say.
    }
  }
}

// Counts before it answers: the other process may look at once.
void AreaServer::Answer(const UniqueFd& peer) {
  AreaAnswer answer;
  std::copy_n(kMagic, sizeof kMagic, answer.magic);
  Question question;
  if (!IsOfThisUser(peer.get())) {
    answer.verdict = Verdict::kOtherUser;
  } else {
    pollfd wanted[2] = {{peer.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(wanted, 2, kQuestionNs / 1'000'000) <= 0 || wanted[1].revents != 0) {
      refused_.fetch_add(1);
      return;
    }
    const ssize_t size = recv(peer.get(), &question, sizeof question, MSG_TRUNC);
    if (size == sizeof question && std::equal(kMagic, std::end(kMagic), question.magic)) {
      answer.verdict = address_.HasNonce(question.nonce) ? Verdict::kMapped : Verdict::kOtherNonce;
    }
  }
  // Another part of the program may have closed it.
  if (answer.verdict == Verdict::kMapped && !memory_.IsOurs()) {
    refused_.fetch_add(1);
    return;
  }
  iovec text{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  if (answer.verdict == Verdict::kMapped) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int memory = memory_.get();
    std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  }
  std::atomic<uint64_t>& count = answer.verdict == Verdict::kMapped ? mapped_ : refused_;
  count.fetch_add(1);
  if (sendmsg(peer.get(), &message, MSG_NOSIGNAL) != sizeof answer) {
    count.fetch_sub(1);
    refused_.fetch_add(1);
  }
}

// ---------------------------------------------------------------- the others

namespace {

Status Gone(const std::string& socket) {
  return Status(StatusCode::kNotFound, socket + ": the creator of the shared area has ended");
}

Status Silent(const std::string& socket) {
  return Status(StatusCode::kDeadlineExceeded,
                socket + ": the creator of the shared area does not answer");
}

// The verdict, and a descriptor where one came along. More than one are closed.
Result<UniqueFd> ReadAnswer(int socket, const std::string& path) {
  AreaAnswer answer;
  iovec text{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size =
      RetryInterrupted([&] { return recvmsg(socket, &message, MSG_CMSG_CLOEXEC); });
  const int error = errno;
  UniqueFd given;
  for (cmsghdr* header = size < 0 ? nullptr : CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      given = UniqueFd(fd);
    }
  }
  if (size < 0 && error != ECONNRESET) return OsError(error, "recvmsg", path);
  if (size <= 0) return Gone(path);
  const auto bad = [&](const char* what) {
    return Status(StatusCode::kIoError, path + ": " + what);
  };
  if (size != sizeof answer || !std::equal(kMagic, std::end(kMagic), answer.magic)) {
    return bad("what answers is not the creator of a shared area");
  }
  switch (answer.verdict) {
    case Verdict::kMapped: break;
    case Verdict::kOtherUser: return bad("the shared area is of another user");
    case Verdict::kOtherNonce:
      return Status(StatusCode::kConflict,
                    path + ": the creator has another shared area; ask it for its address");
    default: return bad("the creator of the shared area did not understand the question");
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 && !given.valid())
    return OsError(EMFILE, "recvmsg", path);
  if (!given.valid()) return bad("the creator of the shared area gave no memory");
  return given;
}

}  // namespace

Result<UniqueFd> AskForArea(const AreaAddress& address, Scheduler* scheduler, uint64_t answer_ns) {
  const uint64_t deadline_ns = scheduler->MonotonicNs() + answer_ns;
  const std::string& path = address.socket;
  const std::string parent = ParentPath(path);
  const UniqueFd directory(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return OsError(errno, "open", parent);
  CAIRN_ASSIGN_OR_RETURN(const sockaddr_un name, SocketAddress(path, directory.get()));
  const UniqueFd socket = NewSocket();
  if (!socket.valid()) return OsError(errno, "socket", path);
  while (Connect(socket.get(), name) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return Gone(path);
    if (errno != EAGAIN) return OsError(errno, "connect", path);
    if (LeftMs(*scheduler, deadline_ns) == 0) return Silent(path);
    scheduler->Sleep(kAgainNs);
  }
  if (!IsOfThisUser(socket.get())) {
    return Status(StatusCode::kIoError, path + ": the shared area is of another user");
  }
  Question question;
  std::copy_n(kMagic, sizeof kMagic, question.magic);
  std::copy(address.nonce.begin(), address.nonce.end(), question.nonce);
  if (send(socket.get(), &question, sizeof question, MSG_NOSIGNAL) != sizeof question) {
    return errno == EPIPE || errno == ECONNRESET ? Gone(path) : OsError(errno, "send", path);
  }
  pollfd wanted{socket.get(), POLLIN, 0};
  while (true) {
    const int left_ms = LeftMs(*scheduler, deadline_ns);
    const int ready = poll(&wanted, 1, left_ms);
    if (ready > 0) return ReadAnswer(socket.get(), path);
    if (ready < 0 && errno != EINTR) return OsError(errno, "poll", path);
    if (left_ms == 0) return Silent(path);
  }
}

}  // namespace cairn::io
