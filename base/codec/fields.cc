// SPDX-License-Identifier: Apache-2.0
#include "base/codec/fields.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/core/check.h"
#include "base/core/mutation.h"

namespace cairn {
namespace {

static_assert(std::endian::native == std::endian::little,
              "fields are written as they lie in memory");

constexpr size_t kHeaderBytes = 8;
constexpr size_t kAlignment = 8;

struct FieldHeader {
  uint16_t id;
  uint8_t type;
  uint8_t flags;
  uint32_t length;
};
static_assert(sizeof(FieldHeader) == kHeaderBytes);

constexpr size_t Padded(size_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

bool IsFixedWidth(FieldType type) {
  return type == FieldType::kU64 || type == FieldType::kI64 || type == FieldType::kF64;
}

Status Damaged(size_t position, const std::string& what) {
  return Status(StatusCode::kCorruption,
                "field table: at byte " + std::to_string(position) + ": " + what);
}

}  // namespace

void FieldWriter::Put(uint16_t id, FieldType type, bool critical, const void* value,
                      size_t length) {
  CAIRN_CHECK(length <= UINT32_MAX);
  const FieldHeader header{id, static_cast<uint8_t>(type), critical ? kFieldCritical : uint8_t{0},
                           static_cast<uint32_t>(length)};
  const size_t start = bytes_.size();
  bytes_.resize(start + kHeaderBytes + Padded(length));  // The padding is zero.
  std::memcpy(bytes_.data() + start, &header, kHeaderBytes);
  if (length > 0) std::memcpy(bytes_.data() + start + kHeaderBytes, value, length);
}

void FieldWriter::U64(uint16_t id, uint64_t value, bool critical) {
  Put(id, FieldType::kU64, critical, &value, sizeof(value));
}

void FieldWriter::F64(uint16_t id, double value, bool critical) {
  Put(id, FieldType::kF64, critical, &value, sizeof(value));
}

void FieldWriter::Bytes(uint16_t id, std::span<const std::byte> value, bool critical) {
  Put(id, FieldType::kBytes, critical, value.data(), value.size());
}

void FieldWriter::Text(uint16_t id, std::string_view value, bool critical) {
  Put(id, FieldType::kBytes, critical, value.data(), value.size());
}

void FieldWriter::Table(uint16_t id, const FieldWriter& value, bool critical) {
  Put(id, FieldType::kTable, critical, value.bytes_.data(), value.bytes_.size());
}

uint64_t Field::u64() const {
  uint64_t result = 0;
  if (type == FieldType::kU64) std::memcpy(&result, value.data(), sizeof(result));
  return result;
}

double Field::f64() const {
  double result = 0;
  if (type == FieldType::kF64) std::memcpy(&result, value.data(), sizeof(result));
  return result;
}

std::string_view Field::text() const {
  if (type != FieldType::kBytes) return {};
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

Result<FieldReader> FieldReader::Parse(std::span<const std::byte> bytes) {
  FieldReader reader;
  size_t position = 0;
  while (position < bytes.size()) {
    const size_t left = bytes.size() - position;
    if (left < kHeaderBytes) {
      return Damaged(position, std::to_string(left) + " bytes left, a field takes 8 or more");
    }
    FieldHeader header;
    std::memcpy(&header, bytes.data() + position, kHeaderBytes);
    if (CAIRN_KEPT(kBoundOfField) && Padded(header.length) > left - kHeaderBytes) {
      return Damaged(position, "field " + std::to_string(header.id) + " of " +
                                   std::to_string(header.length) + " bytes passes the end at " +
                                   std::to_string(bytes.size()));
    }
    if ((header.flags & ~kFieldCritical) != 0) {
      return Damaged(position, "field " + std::to_string(header.id) + " has unknown flags " +
                                   std::to_string(header.flags));
    }
    const FieldType type = static_cast<FieldType>(header.type);
    if (header.type == 0 || (IsFixedWidth(type) && header.length != 8)) {
      return Damaged(position, "field " + std::to_string(header.id) + " of type " +
                                   std::to_string(header.type) + " has " +
                                   std::to_string(header.length) + " bytes");
    }
    const std::byte* value = bytes.data() + position + kHeaderBytes;
    const size_t padded = Padded(header.length);
    if (!std::all_of(value + header.length, value + padded,
                     [](std::byte b) { return b == std::byte{0}; })) {
      return Damaged(position, "padding of field " + std::to_string(header.id) + " is not zero");
    }
    reader.fields_.push_back(
        {header.id, type, (header.flags & kFieldCritical) != 0, {value, header.length}});
    position += kHeaderBytes + padded;
  }
  return reader;
}

const Field* FieldReader::Find(uint16_t id, FieldType type) const {
  for (const Field& field : fields_) {
    if (field.id == id && field.type == type) return &field;
  }
  return nullptr;
}

std::optional<uint64_t> FieldReader::U64(uint16_t id) const {
  const Field* field = Find(id, FieldType::kU64);
  if (field == nullptr) return std::nullopt;
  return field->u64();
}

uint64_t FieldReader::U64Or(uint16_t id, uint64_t absent) const { return U64(id).value_or(absent); }

std::string_view FieldReader::TextOr(uint16_t id, std::string_view absent) const {
  const Field* field = Find(id, FieldType::kBytes);
  return field != nullptr ? field->text() : absent;
}

std::span<const std::byte> FieldReader::BytesOr(uint16_t id,
                                                std::span<const std::byte> absent) const {
  const Field* field = Find(id, FieldType::kBytes);
  return field != nullptr ? field->value : absent;
}

Status FieldReader::CheckCritical(std::span<const uint16_t> known) const {
  for (const Field& field : fields_) {
    if (field.critical && std::find(known.begin(), known.end(), field.id) == known.end()) {
      return Status(StatusCode::kUnsupportedFormat, "field table: critical field " +
                                                        std::to_string(field.id) +
                                                        " is not known to this version");
    }
  }
  return Status::Ok();
}

}  // namespace cairn
