// SPDX-License-Identifier: Apache-2.0
//
// Token ids as commands read them.
#pragma once

#include <cstdint>
#include <istream>
#include <string_view>
#include <vector>

#include "cairn/store.h"

namespace cairn::cli {

// Appends ids between white space and commas. kInvalidArgument naming a word that is no id.
Status ParseTokens(std::string_view text, std::vector<TokenId>* tokens);
// The same of all lines of a text; the error names line and column.
Status ReadTokens(std::istream& from, std::vector<TokenId>* tokens);

}  // namespace cairn::cli
