// SPDX-License-Identifier: Apache-2.0
//
// Token ids as commands read them.
#pragma once

#include <string_view>
#include <vector>

#include "cairn/store.h"

namespace cairn::cli {

// Appends ids between white space and commas. kInvalidArgument naming a word that is no id.
Status ParseTokens(std::string_view text, std::vector<TokenId>* tokens);

}  // namespace cairn::cli
