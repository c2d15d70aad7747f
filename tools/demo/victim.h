// SPDX-License-Identifier: Apache-2.0
//
// A child process that works and reports its progress through a pipe, until it is killed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cairn/status.h"

namespace cairn::demo {

// The child's message once the store has acknowledged a token as durable. Smaller than PIPE_BUF, so
// it arrives whole or not at all.
struct Acknowledgement {
  uint64_t length = 0;     // Tokens of the branch, this one included.
  int32_t token = 0;       // The last of them.
  uint32_t append_ns = 0;  // Save called to acknowledged; at most four seconds are reported.
};

// Parent's side; one thread at a time. The destructor kills a child that is still alive.
class Victim {
 public:
  using Acknowledge = std::function<void(const Acknowledgement&)>;
  // Forks. The child runs `body`, then waits to be killed; if `body` fails it says why on standard
  // error and ends. Only while the calling process has one thread and no open store, because
  // neither survives a fork. The child dies with its parent and leaves Ctrl-C to it.
  static Result<Victim> Start(const std::function<Status(const Acknowledge&)>& body);

  Victim(Victim&& other) noexcept;
  ~Victim();

  // The child's next message; blocks. Nothing when the child is dead, or at Ctrl-C.
  std::optional<Acknowledgement> Next();
  // SIGKILL; waits for the death and returns the messages that were not read yet. kInvalidState
  // when the child had died before, unprompted.
  Result<std::vector<Acknowledgement>> Kill();

 private:
  Victim(pid_t pid, int pipe) : pid_(pid), pipe_(pipe) {}

  pid_t pid_ = -1;  // -1: none, or reaped.
  int pipe_ = -1;
};

}  // namespace cairn::demo
