// SPDX-License-Identifier: Apache-2.0
//
// JSON as exports hold it. Text of a store may be any bytes: what is no UTF-8 is {"hex": "c3..."}.
// Only exports use this library; none of its symbols leaves libcairn.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cairn/status.h"

namespace cairn::engine {

using Json = nlohmann::ordered_json;

// A text of a file holds no more values than this, about 100 bytes of memory each.
inline constexpr uint64_t kJsonValuesMax = 1u << 20;

Json TextToJson(std::string_view text);
std::string Dump(const Json& value);
// kCorruption: no JSON, or more than kJsonValuesMax values.
Result<Json> ParseJson(std::string_view text, const std::string& what);

// Reads the fields of an object that anybody may have written. What is absent keeps its value. The
// first thing that is wrong is remembered in `wrong`, kCorruption naming the field, and later calls
// change nothing.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string name, Status* wrong)
      : object_(object), name_(std::move(name)), wrong_(*wrong) {
    if (!object_.is_object()) Fail("", "is no object");
  }

  void Read(const char* field, std::string* into);
  void Read(const char* field, bool* into);
  void Read(const char* field, double* into);
  void Read(const char* field, float* into);
  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  void Read(const char* field, T* into) {
    uint64_t number = *into;
    ReadNumber(field, static_cast<T>(~T{0}), &number);
    *into = static_cast<T>(number);
  }
  // By its number; `last` is the greatest.
  template <typename Enum>
  void ReadEnum(const char* field, Enum last, Enum* into) {
    auto number = static_cast<uint64_t>(*into);
    ReadNumber(field, static_cast<uint64_t>(last), &number);
    *into = static_cast<Enum>(number);
  }
  // An array's elements; none where it is absent.
  template <typename Visit>
  void Each(const char* field, const Visit& visit) {
    const Json* const array = Find(field);
    if (array == nullptr) return;
    if (!array->is_array()) return Fail(field, "is no array");
    size_t index = 0;
    for (const Json& element : *array) {
      if (!wrong_.ok()) return;
      visit(element, name_ + "." + field + "[" + std::to_string(index++) + "]");
    }
  }
  // Null: it is absent, or something was wrong before.
  const Json* Find(const char* field) const;
  void Fail(const char* field, const std::string& what) const;
  const std::string& name() const { return name_; }

 private:
  void ReadNumber(const char* field, uint64_t max, uint64_t* into) const;

  const Json& object_;
  const std::string name_;
  Status& wrong_;
};

// A number of an array. kCorruption, as of JsonFields.
uint64_t NumberOf(const Json& value, const std::string& name, Status* wrong);

}  // namespace cairn::engine
