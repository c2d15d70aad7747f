// SPDX-License-Identifier: Apache-2.0
//
// Assertions that stay on in release builds. A failed check is a programmer's error: the process
// ends with the expression and its place. Operating errors (a full disk, a bad file, a bad
// argument) are never checks; they return Status.
#pragma once

#include "cairn/status.h"

namespace cairn {

[[noreturn]] void CheckFailed(const char* expression, const char* file, int line);

}  // namespace cairn

#define CAIRN_CHECK(expression)                       \
  (__builtin_expect(static_cast<bool>(expression), 1) \
       ? static_cast<void>(0)                         \
       : ::cairn::CheckFailed(#expression, __FILE__, __LINE__))
