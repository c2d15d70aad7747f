// SPDX-License-Identifier: Apache-2.0
//
// Wraps the one call of every function of the C API: no exception leaves it, a failure becomes a
// code and an error object, and NULL arguments are named.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "cairn/c/base.h"
#include "cairn/status.h"

struct cairn_error {
  cairn::Status status;
};

namespace cairn::capi {

// The code of `status`; *error, if there is one, becomes NULL or an error that describes it.
cairn_code Report(const Status& status, cairn_error** error) noexcept;

// `body` returns a Status. noexcept: only bad_alloc can arise here; anything else ends the process.
template <typename Body>
cairn_code Call(cairn_error** error, const Body& body) noexcept {
  return Report(CatchBadAlloc([&]() -> Status { return body(); }), error);
}

Status Invalid(std::string message);  // kInvalidArgument.

// The body of a call that returns a handle: `make` returns the value of Handle::value. If `out` is
// null the value is released. The handle is made first, so that nothing can fail after `make`.
template <typename Handle, typename Make>
Status Give(Handle** out, const Make& make) {
  auto handle = std::make_unique<Handle>();
  auto made = make();
  if (!made.ok()) return made.status();
  handle->value = std::move(*made);
  if (out != nullptr) *out = handle.release();
  return Status::Ok();
}

// A text for cairn_text_free.
char* NewText(const std::string& text);

}  // namespace cairn::capi

// Within the body of a Call: the argument must not be NULL.
#define CAIRN_C_NEED(argument) \
  if ((argument) == nullptr) return ::cairn::capi::Invalid(#argument " is NULL")

// The same for an output that points to a pointer, which is set to NULL first.
#define CAIRN_C_OUT(argument) \
  CAIRN_C_NEED(argument);     \
  *(argument) = nullptr
