// SPDX-License-Identifier: Apache-2.0
//
// Records as exports hold them: MessagePack maps from text to a number, a boolean, a text or bytes,
// one behind the other. Nothing nests, so nothing that a file says makes the reader go deep; and a
// record takes memory only for bytes that the file really has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cairn/status.h"

namespace cairn::engine {

// All values of a record together, and its fields.
inline constexpr uint64_t kPackRecordBytesMax = 64u << 20;
inline constexpr size_t kPackFieldsMax = 64;

using PackBytes = std::vector<std::byte>;
using PackValue = std::variant<uint64_t, double, bool, std::string, PackBytes>;

// A record. In a file its fields may come in any order.
class PackRecord {
 public:
  void Set(const std::string& field, PackValue value) { fields_[field] = std::move(value); }
  bool Has(const std::string& field) const { return fields_.contains(field); }
  size_t size() const { return fields_.size(); }
  std::vector<std::byte> Encode() const;

  // Each leaves `into` as it is where the field is absent. kCorruption naming the field: it is of
  // another type.
  Status Read(const std::string& field, uint64_t* into) const;
  Status Read(const std::string& field, double* into) const;
  Status Read(const std::string& field, bool* into) const;
  // A text, or bytes: what is no UTF-8 is written as bytes.
  Status Read(const std::string& field, std::string* into) const;
  Status Read(const std::string& field, PackBytes* into) const;

 private:
  std::map<std::string, PackValue> fields_;
};

// As PackRecord wants it: text where it is UTF-8, else bytes.
PackValue PackText(std::string_view text);

// Reads records from something that gives bytes in order.
class PackReader {
 public:
  // Fills the span with the next bytes.
  using Source = std::function<Status(std::span<std::byte>)>;
  PackReader(Source source, uint64_t bytes) : source_(std::move(source)), left_(bytes) {}

  uint64_t left() const { return left_; }
  // kCorruption: it is no such record, or ends beyond the bytes there are.
  Result<PackRecord> Next();

 private:
  Status Take(std::span<std::byte> into);
  Result<uint64_t> TakeNumber(size_t bytes);
  Result<std::string> TakeText(uint64_t bytes);
  Result<PackBytes> TakeBytes(uint64_t bytes);
  Result<std::string> TakeKey();
  Result<PackValue> TakeValue();

  const Source source_;
  uint64_t left_;
  uint64_t record_left_ = 0;  // Bytes that the record may still have.
};

}  // namespace cairn::engine
