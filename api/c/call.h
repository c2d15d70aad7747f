// SPDX-License-Identifier: Apache-2.0
//
// What every function of the C API does around its one call: no exception leaves it, a failure
// becomes a code and an error object, and NULL arguments are named.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "cairn/c_base.h"
#include "cairn/status.h"

struct cairn_error {
  cairn::Status status;
};

namespace cairn::capi {

// The code of `status`; *error, if there is one, becomes NULL or an error that tells of it.
cairn_code Tell(const Status& status, cairn_error** error) noexcept;

// `body` returns a Status. noexcept: what is no bad_alloc cannot arise here, and ends the process.
template <typename Body>
cairn_code Call(cairn_error** error, const Body& body) noexcept {
  return Tell(Guarded([&]() -> Status { return body(); }), error);
}

Status Invalid(std::string message);  // kInvalidArgument.

// The body of a call that gives a handle: `make` returns what Handle::value becomes. Without a
// place for it (`out` is null) it is let go of. The handle is made first, so that what was done
// does not fail behind its back.
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

// The same of an output that points to a pointer, which then is NULL until there is something.
#define CAIRN_C_OUT(argument) \
  CAIRN_C_NEED(argument);     \
  *(argument) = nullptr
