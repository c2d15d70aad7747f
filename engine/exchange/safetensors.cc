// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/safetensors.h"

#include <algorithm>
#include <utility>

#include "base/core/align.h"
#include "base/core/text.h"
#include "engine/exchange/json.h"

namespace cairn::engine {

namespace {

constexpr const char* kMetadataName = "__metadata__";

Status BadHeader(const std::string& what) {
  return Status(StatusCode::kCorruption, "header: " + what);
}

// Takes the header value by value, and stops at the first one that has no place in it. So a header
// costs memory for what it really names, and nothing can nest.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(SafetensorsHeader* into) : into_(*into) {}
  const Status& status() const { return status_; }

  bool null() override { return Misplaced("null"); }
  bool boolean(bool /*value*/) override { return Misplaced("a boolean"); }
  bool number_integer(number_integer_t /*value*/) override {
    return Misplaced("a negative number");
  }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return Misplaced("a fraction");
  }
  bool binary(binary_t& /*value*/) override { return Misplaced("bytes"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape && tensor_.shape.size() < kTensorDimensionsMax) {
      tensor_.shape.push_back(value);
      return true;
    }
    if (place_ == Place::kOffsets && offsets_ < 2) {
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
      return true;
    }
    return Misplaced("a number");
  }
  bool string(string_t& value) override {
    if (place_ == Place::kMetadata && !field_.empty()) {
      if (!into_.metadata.emplace(std::exchange(field_, ""), std::move(value)).second) {
        return Fail("a text of " + std::string(kMetadataName) + " is there twice");
      }
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype") return Misplaced("a text");
    tensor_.dtype = std::move(value);
    field_.clear();
    return true;
  }
  bool start_object(size_t /*size*/) override {
    if (place_ == Place::kNowhere) {
      place_ = Place::kHeader;
    } else if (place_ == Place::kHeader && name_ == kMetadataName) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kHeader) {
      place_ = Place::kTensor;
      tensor_ = {};
      fields_ = 0;
    } else {
      return Misplaced("an object");
    }
    return true;
  }
  bool key(string_t& value) override {
    if (place_ == Place::kHeader) {
      name_ = std::move(value);
      return true;
    }
    if (place_ == Place::kTensor && value != "dtype" && value != "shape" &&
        value != "data_offsets") {
      return Fail("tensor " + Quoted(name_) + " has a field " + Quoted(value));
    }
    if (value.empty()) return Misplaced("an empty name");
    field_ = std::move(value);
    if (place_ == Place::kTensor && ++fields_ > 3) return Misplaced("a fourth field");
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kTensor) {
      // Three fields, none of them twice: both lists and the type are there.
      if (fields_ != 3 || tensor_.dtype.empty() || offsets_ != 2 || !has_shape_) {
        return Fail("tensor " + Quoted(name_) + " lacks a field");
      }
      offsets_ = 0;
      has_shape_ = false;
      if (!into_.tensors.emplace(name_, std::move(tensor_)).second) {
        return Fail("tensor " + Quoted(name_) + " is there twice");
      }
    }
    place_ = place_ == Place::kHeader ? Place::kEnd : Place::kHeader;
    return true;
  }
  bool start_array(size_t /*size*/) override {
    if (place_ != Place::kTensor || (field_ != "shape" && field_ != "data_offsets")) {
      return Misplaced("a list");
    }
    place_ = field_ == "shape" ? Place::kShape : Place::kOffsets;
    has_shape_ |= place_ == Place::kShape;
    return true;
  }
  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return Fail("is no JSON at byte " + std::to_string(position));
  }

 private:
  enum class Place : uint8_t { kNowhere, kHeader, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool Fail(const std::string& what) {
    if (status_.ok()) status_ = BadHeader(what);
    return false;
  }
  bool Misplaced(const std::string& what) { return Fail(what + " behind " + Quoted(name_)); }

  SafetensorsHeader& into_;
  Status status_;
  Place place_ = Place::kNowhere;
  std::string name_, field_;
  Tensor tensor_;
  int fields_ = 0, offsets_ = 0;
  bool has_shape_ = false;
};

Status CheckTensor(const std::string& name, const Tensor& tensor, uint64_t data_bytes) {
  const auto bad = [&](const std::string& what) {
    return BadHeader("tensor " + Quoted(name) + " " + what);
  };
  const uint64_t element_bytes = TensorTypeBytes(tensor.dtype);
  if (element_bytes == 0) return bad("is of type " + Quoted(tensor.dtype));
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    return bad("lies at [" + std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) +
               "); the file has " + std::to_string(data_bytes) + " bytes of tensors");
  }
  uint64_t bytes = element_bytes;
  for (const uint64_t extent : tensor.shape) {
    if (extent != 0 && bytes > UINT64_MAX / extent) return bad("is larger than a file can be");
    bytes *= extent;
  }
  if (bytes != tensor.bytes()) {
    return bad("has " + std::to_string(tensor.bytes()) + " bytes, its shape " +
               std::to_string(bytes));
  }
  if (tensor.begin % element_bytes != 0) {
    return bad("begins at " + std::to_string(tensor.begin) + ", which is no multiple of " +
               std::to_string(element_bytes));
  }
  return Status::Ok();
}

}  // namespace

uint64_t TensorTypeBytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, uint64_t> kTypes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
      {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

std::string EncodeHeader(const SafetensorsHeader& header, uint64_t bytes) {
  Json json = Json::object();
  json[kMetadataName] = Json::object();
  for (const auto& [name, text] : header.metadata) json[kMetadataName][name] = text;
  for (const auto& [name, tensor] : header.tensors) {
    json[name] = {{"dtype", tensor.dtype},
                  {"shape", tensor.shape},
                  {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = Dump(json);
  const uint64_t padded = AlignUp(std::max<uint64_t>(text.size() + kHeaderLengthBytes, bytes), 8);
  text.resize(padded - kHeaderLengthBytes, ' ');
  std::string encoded;
  for (size_t i = 0; i < kHeaderLengthBytes; ++i) {
    encoded += static_cast<char>(text.size() >> (8 * i));
  }
  return encoded + text;
}

Result<SafetensorsHeader> ParseHeader(std::string_view text, uint64_t data_bytes) {
  SafetensorsHeader header;
  HeaderReader reader(&header);
  const bool whole = Json::sax_parse(text, &reader);
  CAIRN_RETURN_IF_ERROR(reader.status());
  if (!whole) return BadHeader("is no JSON");
  std::vector<std::pair<uint64_t, const std::pair<const std::string, Tensor>*>> by_begin;
  for (const auto& named : header.tensors) {
    CAIRN_RETURN_IF_ERROR(CheckTensor(named.first, named.second, data_bytes));
    by_begin.emplace_back(named.second.begin, &named);
  }
  std::sort(by_begin.begin(), by_begin.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->second.end) < std::pair(b.first, b.second->second.end);
  });
  uint64_t end = 0;
  for (const auto& [begin, named] : by_begin) {
    if (begin != end) {
      return BadHeader("tensor " + Quoted(named->first) + " begins at " + std::to_string(begin) +
                       (begin < end ? ", within the one before" : ", behind a gap from ") +
                       (begin < end ? "" : std::to_string(end)));
    }
    end = named->second.end;
  }
  if (end != data_bytes) {
    return BadHeader("the tensors end at " + std::to_string(end) + ", the file has " +
                     std::to_string(data_bytes) + " bytes of them");
  }
  return header;
}

}  // namespace cairn::engine
