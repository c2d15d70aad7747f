// SPDX-License-Identifier: Apache-2.0
//
// The Status of a failed allocation. Making a Status allocates, and after one failed allocation the
// next may fail as well: so this one is made when the program begins.
#pragma once

#include <new>
#include <type_traits>

#include "cairn/status.h"

namespace cairn {

Status OutOfMemory();  // kOutOfMemory. Allocates nothing.

// The result of the call, Ok if it returns nothing, or kOutOfMemory if it throws bad_alloc: the
// only exception that can arise in the library. It crosses neither the API nor the end of a
// thread's job.
template <typename Call>
auto CatchBadAlloc(Call&& call) {
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
