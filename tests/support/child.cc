// SPDX-License-Identifier: Apache-2.0
#include "tests/support/child.h"

#include <gtest/gtest.h>
#include <seccomp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace cairn::testing {

bool InChild(const std::function<bool()>& body) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) ADD_FAILURE() << "the child died of signal " << WTERMSIG(status);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool Refuse(int system_call, int error) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  const bool loaded =
      filter != nullptr &&
      seccomp_rule_add(filter, SCMP_ACT_ERRNO(static_cast<unsigned>(error)), system_call, 0) == 0 &&
      seccomp_load(filter) == 0;
  seccomp_release(filter);
  return loaded;
}

bool Expect(bool condition, const std::string& what) {
  if (!condition) fprintf(stderr, "in the child: %s\n", what.c_str());
  return condition;
}

}  // namespace cairn::testing
