// SPDX-License-Identifier: Apache-2.0
//
// Child processes, for what cannot be undone in one's own: refused system calls, above all.
#pragma once

#include <functional>
#include <string>

namespace cairn::testing {

// Runs `body` in a child process; true when it returned true there. The child prints what failed.
bool InChild(const std::function<bool()>& body);

// From here on this process gets `error` from the system call (SCMP_SYS of <seccomp.h>).
bool Refuse(int system_call, int error);

// `condition`; where that is false, `what` is printed.
bool Expect(bool condition, const std::string& what);

}  // namespace cairn::testing
