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

// Returns the Status of a failed step to the caller.
#define CAIRN_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                           \
    if (::cairn::Status cairn_status_ = (expression); !cairn_status_.ok()) return cairn_status_; \
  } while (false)

#define CAIRN_CONCAT_INNER(a, b) a##b
#define CAIRN_CONCAT(a, b) CAIRN_CONCAT_INNER(a, b)

// CAIRN_ASSIGN_OR_RETURN(auto file, fs.Open(...)): the value, or the caller returns the Status.
#define CAIRN_ASSIGN_OR_RETURN(declaration, expression) \
  CAIRN_ASSIGN_OR_RETURN_IMPL(CAIRN_CONCAT(cairn_result_, __LINE__), declaration, expression)
#define CAIRN_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                        \
  if (!result.ok()) return result.status();                          \
  declaration = std::move(*result)
