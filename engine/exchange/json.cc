// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/json.h"

#include <algorithm>

#include "base/core/text.h"
#include "engine/exchange/hex.h"
#include "engine/exchange/utf8.h"

namespace cairn::engine {

namespace {

Status Wrong(const std::string& name, const std::string& what) {
  return Status(StatusCode::kCorruption, name + " " + what);
}

}  // namespace

Json TextToJson(std::string_view text) {
  if (IsUtf8(text)) return std::string(text);
  return {{"hex", HexOf(std::as_bytes(std::span(text)))}};
}

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Json> ParseJson(std::string_view text, const std::string& what) {
  const auto values = std::count_if(text.begin(), text.end(),
                                    [](char c) { return c == ',' || c == '[' || c == '{'; });
  if (static_cast<uint64_t>(values) > kJsonValuesMax) {
    return Wrong(what, "has more than " + std::to_string(kJsonValuesMax) + " values");
  }
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return Wrong(what, "is no JSON");
  return parsed;
}

const Json* JsonFields::Find(const char* field) const {
  if (!wrong_.ok()) return nullptr;
  const auto found = object_.find(field);
  return found == object_.end() ? nullptr : &*found;
}

void JsonFields::Fail(const char* field, const std::string& what) const {
  if (wrong_.ok()) wrong_ = Wrong(*field == '\0' ? name_ : name_ + "." + field, what);
}

void JsonFields::ReadNumber(const char* field, uint64_t max, uint64_t* into) const {
  const Json* const value = Find(field);
  if (value == nullptr) return;
  if (!value->is_number_unsigned() || value->get<uint64_t>() > max) {
    return Fail(field, "is no number from 0 to " + std::to_string(max));
  }
  *into = value->get<uint64_t>();
}

void JsonFields::Read(const char* field, std::string* into) {
  const Json* const value = Find(field);
  if (value == nullptr) return;
  if (value->is_string()) {
    *into = value->get<std::string>();
    return;
  }
  const auto hex = value->is_object() ? value->find("hex") : value->end();
  const auto bytes = value->is_object() && hex != value->end() && hex->is_string()
                         ? BytesOfHex(hex->get_ref<const std::string&>())
                         : std::nullopt;
  if (!bytes.has_value()) return Fail(field, "is no text");
  *into = *bytes;
}

void JsonFields::Read(const char* field, bool* into) {
  const Json* const value = Find(field);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Fail(field, "is neither true nor false");
  *into = value->get<bool>();
}

void JsonFields::Read(const char* field, double* into) {
  const Json* const value = Find(field);
  if (value == nullptr) return;
  if (!value->is_number()) return Fail(field, "is no number");
  *into = value->get<double>();
}

void JsonFields::Read(const char* field, float* into) {
  double number = static_cast<double>(*into);
  Read(field, &number);
  *into = static_cast<float>(number);
}

uint64_t NumberOf(const Json& value, const std::string& name, Status* wrong) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (wrong->ok()) *wrong = Wrong(name, "is no number");
  return 0;
}

}  // namespace cairn::engine
