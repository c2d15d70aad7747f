// SPDX-License-Identifier: Apache-2.0
//
// Text that may hold anything, such as names that strangers chose, on a line for people: it can
// neither begin a line of its own nor command a terminal.
#pragma once

#include <string>
#include <string_view>

namespace cairn {

// As it is, but for control characters, what turns the direction of writing, and bytes that are no
// UTF-8: these become \xNN, byte by byte.
std::string Printable(std::string_view text);

// Also `"` and `\`, so that it ends where it seems to end between quotes, and means one text only.
std::string Escaped(std::string_view text);

// Escaped, between quotes: for messages.
std::string Quoted(std::string_view text);

}  // namespace cairn
