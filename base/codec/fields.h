// SPDX-License-Identifier: Apache-2.0
//
// The typed field table: how every record, manifest and model writes its small values.
//
//   table := field*
//   field := id:u16 type:u8 flags:u8 length:u32 value padding    (little-endian, padded to 8 bytes)
//
// Fields stand in any order; an id may repeat (a list). Flag bit 0 is *critical*: a reader that
// does not know the id of a critical field must refuse the whole table; unknown fields without it
// are skipped, and kept when a table is copied. Values are fixed-width integers or bytes; nested
// tables are bytes. Why not protobuf or flatbuffers: their schemas live outside the bytes, their
// runtimes clash inside host processes, and a table of this kind is checked in one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"

namespace cairn {

// On disk; never change.
enum class FieldType : uint8_t { kU64 = 1, kI64 = 2, kF64 = 3, kBytes = 4, kTable = 5 };
inline constexpr uint8_t kFieldCritical = 1;

class FieldWriter {
 public:
  void U64(uint16_t id, uint64_t value, bool critical = true);
  void F64(uint16_t id, double value, bool critical = true);
  void Bytes(uint16_t id, std::span<const std::byte> value, bool critical = true);
  void Text(uint16_t id, std::string_view value, bool critical = true);
  void Table(uint16_t id, const FieldWriter& value, bool critical = true);
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> Take() && { return std::move(bytes_); }
  void Clear() { bytes_.clear(); }

 private:
  void Put(uint16_t id, FieldType type, bool critical, const void* value, size_t length);
  std::vector<std::byte> bytes_;
};

struct Field {
  uint16_t id = 0;
  FieldType type = FieldType::kBytes;
  bool critical = false;
  std::span<const std::byte> value;

  // Zero / empty when the type differs; FieldReader::Check catches that.
  uint64_t u64() const;
  double f64() const;
  std::string_view text() const;
};

// Reads a table in place. Safe on any bytes: Parse fails with kCorruption naming the position.
class FieldReader {
 public:
  static Result<FieldReader> Parse(std::span<const std::byte> bytes);
  const std::vector<Field>& fields() const { return fields_; }
  // First field of this id and type, or nothing.
  const Field* Find(uint16_t id, FieldType type) const;
  std::optional<uint64_t> U64(uint16_t id) const;
  uint64_t U64Or(uint16_t id, uint64_t absent) const;
  std::string_view TextOr(uint16_t id, std::string_view absent) const;
  std::span<const std::byte> BytesOr(uint16_t id, std::span<const std::byte> absent) const;
  // kUnsupportedFormat naming the first critical field whose id is not in `known`.
  Status CheckCritical(std::span<const uint16_t> known) const;

 private:
  std::vector<Field> fields_;
};

}  // namespace cairn
