// SPDX-License-Identifier: Apache-2.0
//
// What is said when an allocation failed. Making a Status allocates, and where one allocation
// failed the next may as well: this one was made when the program began.
#pragma once

#include <new>

#include "cairn/status.h"

namespace cairn {

Status OutOfMemory();  // kOutOfMemory. Allocates nothing.

// What the call returns, or kOutOfMemory where it throws bad_alloc: the one exception that can
// arise in the library. It crosses neither the API nor the end of a thread's job.
template <typename Call>
auto Guarded(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

}  // namespace cairn
