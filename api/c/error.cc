// SPDX-License-Identifier: Apache-2.0
//
// Versions, codes, errors, texts and limits in C.
#include <cstdlib>
#include <cstring>
#include <new>

#include "api/c/call.h"
#include "cairn/limits.h"
#include "cairn/store.h"

namespace cairn::capi {

namespace {
// Returned when there is no memory for an error, and never freed. Making it takes none.
cairn_error* NoMemoryForIt() {
  static cairn_error error{OutOfMemory()};
  return &error;
}
}  // namespace

cairn_code Report(const Status& status, cairn_error** error) noexcept {
  if (error != nullptr) {
    *error = nullptr;
    if (!status.ok()) *error = new (std::nothrow) cairn_error{status};
    if (!status.ok() && *error == nullptr) *error = NoMemoryForIt();
  }
  return static_cast<cairn_code>(status.code());
}

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

char* NewText(const std::string& text) {
  char* const copy = new char[text.size() + 1];
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace cairn::capi

using cairn::StatusCode;

extern "C" {

const char* cairn_version(void) { return cairn::Version(); }

uint32_t cairn_version_number(void) {
  uint32_t number = 0;
  const char* text = cairn::Version();
  for (int part = 0; part < 3; ++part) {
    char* end = nullptr;
    number = number * 1000 + static_cast<uint32_t>(std::strtoul(text, &end, 10));
    text = *end == '.' ? end + 1 : end;
  }
  return number;
}

uint32_t cairn_format_version(void) { return cairn::kFormatVersion; }

const char* cairn_code_name(cairn_code code) {
  if (code < 0 || code > CAIRN_OUT_OF_MEMORY) return "Unknown";
  return cairn::StatusCodeName(static_cast<StatusCode>(code)).data();
}

cairn_code cairn_error_code(const cairn_error* error) {
  return error == nullptr ? CAIRN_OK : static_cast<cairn_code>(error->status.code());
}
cairn_reason cairn_error_reason(const cairn_error* error) {
  return error == nullptr ? CAIRN_REASON_NONE : static_cast<cairn_reason>(error->status.reason());
}
const char* cairn_error_message(const cairn_error* error) {
  return error == nullptr || error->status.ok() ? "" : error->status.message().data();
}
void cairn_error_free(cairn_error* error) {
  if (error != cairn::capi::NoMemoryForIt()) delete error;
}

void cairn_text_free(char* text) { delete[] text; }

size_t cairn_limit_count(void) { return std::size(cairn::kLimits); }
bool cairn_limit_at(size_t index, const char** field, uint64_t* value) {
  if (index >= std::size(cairn::kLimits)) return false;
  if (field != nullptr) *field = cairn::kLimits[index].field;
  if (value != nullptr) *value = cairn::kLimits[index].value;
  return true;
}

}  // extern "C"
