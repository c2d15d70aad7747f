// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/token_text.h"

#include <algorithm>
#include <charconv>

#include "base/core/check.h"
#include "tools/cli/output.h"

namespace cairn::cli {

namespace {

Status BadToken(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

Result<TokenId> ParseToken(std::string_view text) {
  TokenId token = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
  if (error != std::errc() || end != text.data() + text.size()) {
    return BadToken("\"" + Excerpt(text) + "\" is no token id (0 to 4294967295)");
  }
  return token;
}

}  // namespace

Status ParseTokens(std::string_view text, std::vector<TokenId>* tokens) {
  constexpr std::string_view kBetween = " \t\r\n,";
  if (const size_t begin = text.find_first_not_of(kBetween);
      begin != std::string_view::npos && text[begin] == '{') {
    return BadToken("\"" + Excerpt(text) +
                    "\" is no token id; JSON lines are read with --json-lines");
  }
  for (size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    CAIRN_ASSIGN_OR_RETURN(const TokenId token, ParseToken(text.substr(at, end - at)));
    tokens->push_back(token);
    at = text.find_first_not_of(kBetween, end);
  }
  return Status::Ok();
}

}  // namespace cairn::cli
