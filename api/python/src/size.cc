// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/size.h"

#include <charconv>

#include "base/core/text.h"

namespace cairn::python {

std::optional<uint64_t> ParseSize(std::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, number);
  if (digits == 0 || error != std::errc()) return {};
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty() || unit == "B") return number;
  const size_t power = std::string_view("KMGTPE").find(unit.front());
  const bool binary = unit.substr(1) == "iB";
  if (power == std::string_view::npos || (!binary && unit.substr(1) != "B")) return {};
  for (size_t i = 0; i <= power; ++i) {
    if (__builtin_mul_overflow(number, binary ? uint64_t{1024} : uint64_t{1000}, &number))
      return {};
  }
  return number;
}

uint64_t SizeOf(const SizeArgument& given, const char* name) {
  if (const auto* const bytes = std::get_if<uint64_t>(&given)) return *bytes;
  const std::string& text = std::get<std::string>(given);
  const std::optional<uint64_t> size = ParseSize(text);
  if (!size.has_value()) {
    BadArgument(std::string(name) + ": " + Quoted(text) +
                R"( is no size; one is written as "20GiB")");
  }
  return *size;
}

}  // namespace cairn::python
