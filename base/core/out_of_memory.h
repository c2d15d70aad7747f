// SPDX-License-Identifier: Apache-2.0
//
// What is said when an allocation failed. Making a Status allocates, and where one allocation
// failed the next may as well: this one was made when the program began.
#pragma once

#include <new>
#include <type_traits>

#include "cairn/status.h"

namespace cairn {

Status OutOfMemory();  // kOutOfMemory. Allocates nothing.

// What the call returns, Ok if that is nothing, or kOutOfMemory where it throws bad_alloc: the one
// exception that can arise in the library. It crosses neither the API nor the end of a thread's
// job.
template <typename Call>
auto Guarded(Call&& call) {
  using Returned = std::conditional_t<std::is_void_v<decltype(call())>, Status, decltype(call())>;
  try {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return Returned();
    } else {
      return call();
    }
  } catch (const std::bad_alloc&) {
    return Returned(OutOfMemory());
  }
}

}  // namespace cairn
