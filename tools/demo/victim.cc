// SPDX-License-Identifier: Apache-2.0

#include "tools/demo/victim.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "tools/demo/console.h"

namespace cairn::demo {
namespace {

Status SystemError(const char* call) {
  return Status(StatusCode::kIoError, std::string(call) + ": " + std::strerror(errno));
}

[[noreturn]] void RunChild(const std::function<Status(const Victim::Acknowledge&)>& body,
                           pid_t parent, int pipe) {
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // It died before the line above.
  Status status;
  try {
    status = body([pipe](const Acknowledgement& acknowledgement) {
      // Without a reader there is nobody to prove anything to.
      if (write(pipe, &acknowledgement, sizeof(acknowledgement)) < 0) _exit(1);
    });
  } catch (const std::exception& exception) {
    status = Status(StatusCode::kInvalidState, exception.what());
  }
  if (!status.ok()) {
    std::fprintf(stderr, "cairn-demo: in the child: %s\n", status.ToString().c_str());
    _exit(1);  // Not exit: the parent's buffers and objects are not this process's to end.
  }
  while (true) pause();
}

}  // namespace

Result<Victim> Victim::Start(const std::function<Status(const Acknowledge&)>& body) {
  std::fflush(nullptr);
  int ends[2];
  if (pipe(ends) != 0) return SystemError("pipe");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    RunChild(body, parent, ends[1]);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return SystemError("fork");
  }
  return Victim(pid, ends[0]);
}

Victim::Victim(Victim&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pipe_(std::exchange(other.pipe_, -1)) {}

Victim::~Victim() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (pipe_ >= 0) close(pipe_);
}

std::optional<Acknowledgement> Victim::Next() {
  Acknowledgement acknowledgement;
  while (true) {
    const ssize_t bytes = read(pipe_, &acknowledgement, sizeof(acknowledgement));
    if (bytes == sizeof(acknowledgement)) return acknowledgement;
    if (bytes >= 0 || errno != EINTR || Interrupted()) return std::nullopt;
  }
}

Result<std::vector<Acknowledgement>> Victim::Kill() {
  kill(pid_, SIGKILL);
  int outcome = 0;
  while (waitpid(pid_, &outcome, 0) < 0) {
    if (errno != EINTR) return SystemError("waitpid");
  }
  pid_ = -1;
  if (!WIFSIGNALED(outcome) || WTERMSIG(outcome) != SIGKILL) {
    return Status(StatusCode::kInvalidState, "the child ended before it was killed");
  }
  std::vector<Acknowledgement> unread;
  while (const std::optional<Acknowledgement> last = Next()) unread.push_back(*last);
  return unread;
}

}  // namespace cairn::demo
