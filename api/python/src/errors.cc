// SPDX-License-Identifier: Apache-2.0
//
// Turns a Status into the exception of its code in cairn/_errors.py.
#include "api/python/src/common.h"

namespace cairn::python {

namespace {

const char* ReasonName(StatusReason reason) {
  switch (reason) {
    case StatusReason::kNone: return nullptr;
    case StatusReason::kNamespaceQuota: return "NamespaceQuota";
    case StatusReason::kEndOfFile: return "EndOfFile";
    case StatusReason::kNoDescriptor: return "NoDescriptor";
  }
  return nullptr;
}

void Translate(const std::exception_ptr& pointer, void* /*payload*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const StatusError& error) {
    const nb::object made = MakeError(error.status());
    PyErr_SetObject(made.type().ptr(), made.ptr());
  }
}

}  // namespace

nb::object MakeError(const Status& status) {
  const nb::module_ errors = nb::module_::import_("cairn._errors");
  const std::string_view code = StatusCodeName(status.code());
  nb::object made =
      errors.attr("BY_CODE")[nb::str(code.data(), code.size())](std::string(status.message()));
  const char* const reason = ReasonName(status.reason());
  if (reason != nullptr) made.attr("reason") = reason;
  return made;
}

void BindErrors(nb::module_& /*module*/) { nb::register_exception_translator(Translate); }

}  // namespace cairn::python
