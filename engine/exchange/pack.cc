// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/pack.h"

#include <algorithm>
#include <bit>

#include "base/core/check.h"
#include "base/core/text.h"
#include "engine/exchange/utf8.h"

namespace cairn::engine {

namespace {

// The formats of MessagePack that are used.
enum Format : uint8_t {
  kFixMap = 0x80,   // With the number of fields in four bits.
  kFixText = 0xA0,  // With the length in five bits.
  kFalse = 0xC2,
  kTrue = 0xC3,
  kBytes8 = 0xC4,
  kBytes16 = 0xC5,
  kBytes32 = 0xC6,
  kFloat32 = 0xCA,
  kFloat64 = 0xCB,
  kNumber8 = 0xCC,
  kNumber16 = 0xCD,
  kNumber32 = 0xCE,
  kNumber64 = 0xCF,
  kText8 = 0xD9,
  kText16 = 0xDA,
  kText32 = 0xDB,
  kMap16 = 0xDE,
};

Status BadRecord(const std::string& what) { return Status(StatusCode::kCorruption, what); }

class Encoder {
 public:
  void Map(size_t fields) {
    if (fields < 16) return Number(kFixMap | fields, 1);
    Head(kMap16, fields, 2);
  }
  void Text(std::string_view text) {
    if (text.size() < 32) {
      Number(kFixText | text.size(), 1);
    } else {
      Sized(kText8, text.size());
    }
    Append(std::as_bytes(std::span(text)));
  }
  void operator()(uint64_t number) {
    if (number < 128) return Number(number, 1);
    if (number <= UINT8_MAX) return Head(kNumber8, number, 1);
    if (number <= UINT16_MAX) return Head(kNumber16, number, 2);
    if (number <= UINT32_MAX) return Head(kNumber32, number, 4);
    Head(kNumber64, number, 8);
  }
  void operator()(double number) { Head(kFloat64, std::bit_cast<uint64_t>(number), 8); }
  void operator()(bool value) { Number(value ? kTrue : kFalse, 1); }
  void operator()(const std::string& text) { Text(text); }
  void operator()(const PackBytes& bytes) {
    Sized(kBytes8, bytes.size());
    Append(bytes);
  }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  void Number(uint64_t number, size_t bytes) {
    for (size_t i = bytes; i-- > 0;) bytes_.push_back(static_cast<std::byte>(number >> (8 * i)));
  }
  void Head(uint8_t format, uint64_t number, size_t bytes) {
    Number(format, 1);
    Number(number, bytes);
  }
  // The three formats of a kind follow each other.
  void Sized(uint8_t format8, uint64_t size) {
    CAIRN_CHECK(size <= UINT32_MAX);
    if (size <= UINT8_MAX) return Head(format8, size, 1);
    if (size <= UINT16_MAX) return Head(format8 + 1, size, 2);
    Head(format8 + 2, size, 4);
  }
  void Append(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  std::vector<std::byte> bytes_;
};

}  // namespace

PackValue PackText(std::string_view text) {
  if (IsUtf8(text)) return std::string(text);
  const auto bytes = std::as_bytes(std::span(text));
  return PackBytes(bytes.begin(), bytes.end());
}

std::vector<std::byte> PackRecord::Encode() const {
  Encoder encoder;
  encoder.Map(fields_.size());
  for (const auto& [field, value] : fields_) {
    encoder.Text(field);
    std::visit(encoder, value);
  }
  return encoder.Take();
}

namespace {

template <typename T>
Status ReadField(const std::map<std::string, PackValue>& fields, const std::string& field,
                 const char* type, T* into) {
  const auto found = fields.find(field);
  if (found == fields.end()) return Status::Ok();
  const T* const value = std::get_if<T>(&found->second);
  if (value == nullptr) return BadRecord(field + " is no " + type);
  *into = *value;
  return Status::Ok();
}

}  // namespace

Status PackRecord::Read(const std::string& field, uint64_t* into) const {
  return ReadField(fields_, field, "number", into);
}
Status PackRecord::Read(const std::string& field, double* into) const {
  return ReadField(fields_, field, "fraction", into);
}
Status PackRecord::Read(const std::string& field, bool* into) const {
  return ReadField(fields_, field, "boolean", into);
}
Status PackRecord::Read(const std::string& field, PackBytes* into) const {
  return ReadField(fields_, field, "bytes", into);
}
Status PackRecord::Read(const std::string& field, std::string* into) const {
  const auto found = fields_.find(field);
  if (found == fields_.end() || !std::holds_alternative<PackBytes>(found->second)) {
    return ReadField(fields_, field, "text", into);
  }
  const PackBytes& bytes = std::get<PackBytes>(found->second);
  into->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return Status::Ok();
}

Status PackReader::Take(std::span<std::byte> into) {
  if (into.size() > std::min(left_, record_left_)) {
    return BadRecord(into.size() > left_
                         ? "a record ends beyond the last byte"
                         : "a record has more than " + BytesText(kPackRecordBytesMax));
  }
  left_ -= into.size();
  record_left_ -= into.size();
  return source_(into);
}

Result<uint64_t> PackReader::TakeNumber(size_t bytes) {
  std::byte buffer[8];
  CAIRN_RETURN_IF_ERROR(Take({buffer, bytes}));
  uint64_t number = 0;
  for (size_t i = 0; i < bytes; ++i) number = number << 8 | std::to_integer<uint64_t>(buffer[i]);
  return number;
}

// Memory grows with what was really read.
Result<PackBytes> PackReader::TakeBytes(uint64_t bytes) {
  if (bytes > std::min(left_, record_left_)) {
    return BadRecord("a value of " + std::to_string(bytes) + " bytes; " +
                     std::to_string(std::min(left_, record_left_)) + " may follow");
  }
  constexpr uint64_t kStepBytes = 1u << 20;
  PackBytes value;
  while (value.size() < bytes) {
    const size_t had = value.size();
    value.resize(had + std::min(kStepBytes, bytes - had));
    CAIRN_RETURN_IF_ERROR(Take(std::span(value).subspan(had)));
  }
  return value;
}

Result<std::string> PackReader::TakeText(uint64_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(const PackBytes value, TakeBytes(bytes));
  return std::string(reinterpret_cast<const char*>(value.data()), value.size());
}

Result<std::string> PackReader::TakeKey() {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t format, TakeNumber(1));
  if ((format & 0xE0) == kFixText) return TakeText(format & 0x1F);
  if (format != kText8) return BadRecord("a field has no name");
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, TakeNumber(1));
  return TakeText(bytes);
}

Result<PackValue> PackReader::TakeValue() {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t format, TakeNumber(1));
  const auto text = [&](uint64_t bytes) -> Result<PackValue> {
    CAIRN_ASSIGN_OR_RETURN(std::string value, TakeText(bytes));
    return PackValue(std::move(value));
  };
  if (format < 128) return PackValue(format);
  if ((format & 0xE0) == kFixText) return text(format & 0x1F);
  switch (format) {
    case kFalse: return PackValue(false);
    case kTrue: return PackValue(true);
    case kFloat32: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t bits, TakeNumber(4));
      return PackValue(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
    }
    case kFloat64: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t bits, TakeNumber(8));
      return PackValue(std::bit_cast<double>(bits));
    }
    case kNumber8:
    case kNumber16:
    case kNumber32:
    case kNumber64: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t number, TakeNumber(size_t{1} << (format - kNumber8)));
      return PackValue(number);
    }
    case kText8:
    case kText16:
    case kText32: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, TakeNumber(size_t{1} << (format - kText8)));
      return text(bytes);
    }
    case kBytes8:
    case kBytes16:
    case kBytes32: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, TakeNumber(size_t{1} << (format - kBytes8)));
      CAIRN_ASSIGN_OR_RETURN(PackBytes value, TakeBytes(bytes));
      return PackValue(std::move(value));
    }
    default: return BadRecord("a value of a type that no record has");
  }
}

Result<PackRecord> PackReader::Next() {
  record_left_ = kPackRecordBytesMax;
  CAIRN_ASSIGN_OR_RETURN(const uint64_t format, TakeNumber(1));
  uint64_t fields = format & 0x0F;
  if (format == kMap16) {
    CAIRN_ASSIGN_OR_RETURN(fields, TakeNumber(2));
  } else if ((format & 0xF0) != kFixMap) {
    return BadRecord("no record begins here");
  }
  if (fields > kPackFieldsMax) {
    return BadRecord("a record of " + std::to_string(fields) + " fields");
  }
  PackRecord record;
  for (uint64_t i = 0; i < fields; ++i) {
    CAIRN_ASSIGN_OR_RETURN(const std::string field, TakeKey());
    if (record.Has(field)) return BadRecord("a record has " + Quoted(field) + " twice");
    CAIRN_ASSIGN_OR_RETURN(PackValue value, TakeValue());
    record.Set(field, std::move(value));
  }
  return record;
}

}  // namespace cairn::engine
