// SPDX-License-Identifier: Apache-2.0
//
// Shared by all files of the extension module: errors become exceptions, and calls that may wait
// run without the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/python/src/text.h"
#include "cairn/status.h"

namespace cairn::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: "name"_a in every binding.

// The exception for a Status; the module turns it into the exception of its code.
class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return "cairn::Status"; }

 private:
  Status status_;
};

inline void Check(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}
template <typename T>
T Take(Result<T>&& result) {
  if (!result.ok()) throw StatusError(result.status());
  return std::move(result).value();
}
[[noreturn]] inline void BadArgument(const std::string& message) {
  throw StatusError(Status(StatusCode::kInvalidArgument, message));
}

// Runs `call` without the interpreter's lock: it must not touch a Python object.
template <typename Call>
auto Unlocked(const Call& call) {
  const nb::gil_scoped_release release;
  return call();
}

// Equality of values, for class_::def: values of different types are not equal, by NotImplemented.
// Equal values must have equal hashes, and none of these types has a hash.
struct ByValue : nb::def_visitor<ByValue> {
  template <typename Class, typename... Extra>
  void execute(Class& bound, const Extra&... /*extra*/) {
    using T = typename Class::Type;
    bound.def(
        "__eq__", [](const T& a, const T& b) { return a == b; }, nb::is_operator());
    bound.attr("__hash__") = nb::none();
  }
};

// Seconds as in Python; None is for ever.
inline uint64_t TimeoutNs(const std::optional<double>& seconds) {
  if (!seconds.has_value()) return UINT64_MAX;
  if (!(*seconds >= 0)) BadArgument("timeout: not a number of seconds from 0 on");
  return *seconds >= 1e9 ? UINT64_MAX : static_cast<uint64_t>(std::llround(*seconds * 1e9));
}
inline uint64_t DurationNs(double seconds, const char* name) {
  if (!(seconds >= 0) || seconds > 1e9) {
    BadArgument(std::string(name) + ": not a number of seconds from 0 to 1e9");
  }
  return static_cast<uint64_t>(std::llround(seconds * 1e9));
}

// A Status as an exception object, without raising it.
nb::object MakeError(const Status& status);

void BindErrors(nb::module_& module);
void BindDigest(nb::module_& module);
void BindEvents(nb::module_& module);
void BindModel(nb::module_& module);
void BindRotary(nb::module_& module);  // Before BindLayers.
void BindLayers(nb::module_& module);
void BindRotateKeys(nb::module_& module);  // After it.
void BindState(nb::module_& module);
void BindKv(nb::module_& module);
void BindStore(nb::module_& module);
void BindBranch(nb::module_& module);
void BindTicket(nb::module_& module);
void BindGpu(nb::module_& module);
void BindSharedMemory(nb::module_& module);
void BindKvSlots(nb::module_& module);
void BindObjects(nb::module_& module);
void BindObjectQueue(nb::module_& module);

}  // namespace cairn::python
