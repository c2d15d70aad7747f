// SPDX-License-Identifier: Apache-2.0
//
// Sizes: a number of bytes, or text as "20GiB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "api/python/src/common.h"

namespace cairn::python {

using SizeArgument = std::variant<uint64_t, std::string>;

// "4096", "64KiB", "1.5" is none: whole numbers with B, KB to EB or KiB to EiB. Nothing: not a
// size.
std::optional<uint64_t> ParseSize(std::string_view text);

// InvalidArgument naming `name` where the text is no size.
uint64_t SizeOf(const SizeArgument& given, const char* name);

}  // namespace cairn::python
