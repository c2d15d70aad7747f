// SPDX-License-Identifier: Apache-2.0
//
// Makes text that may hold anything, such as names that strangers chose, safe for a line of output:
// it can neither begin a line of its own nor control a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn {

// Unchanged except control characters, characters that change the direction of writing, and bytes
// that are no UTF-8: these become \xNN, byte by byte.
std::string Printable(std::string_view text);

// Also escapes `"` and `\`, so that quoted text ends where it seems to end, and has one meaning
// only.
std::string Escaped(std::string_view text);

// Escaped, between quotes: for messages.
std::string Quoted(std::string_view text);

// As `df -h` does, in powers of 1024: "64 MiB", "1.5 KiB", "812 B".
std::string BytesText(uint64_t bytes);

}  // namespace cairn
