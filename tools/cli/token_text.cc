// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/token_text.h"

#include <algorithm>
#include <charconv>
#include <string>

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

// `at`: in `text`, where the first word begins that is no id.
Status ParseUpTo(std::string_view text, std::vector<TokenId>* tokens, size_t* at) {
  constexpr std::string_view kBetween = " \t\r\n,";
  *at = text.find_first_not_of(kBetween);
  if (*at != std::string_view::npos && text[*at] == '{') {
    return BadToken("\"" + Excerpt(text.substr(*at)) +
                    "\" is no token id; JSON lines are read with --json-lines");
  }
  while (*at != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kBetween, *at), text.size());
    CAIRN_ASSIGN_OR_RETURN(const TokenId token, ParseToken(text.substr(*at, end - *at)));
    tokens->push_back(token);
    *at = text.find_first_not_of(kBetween, end);
  }
  return Status::Ok();
}

}  // namespace

Status ParseTokens(std::string_view text, std::vector<TokenId>* tokens) {
  size_t at = 0;
  return ParseUpTo(text, tokens, &at);
}

Status ReadTokens(std::istream& from, std::vector<TokenId>* tokens) {
  std::string line;
  for (uint64_t number = 1; std::getline(from, line); ++number) {
    size_t at = 0;
    const Status status = ParseUpTo(line, tokens, &at);
    if (status.ok()) continue;
    const size_t column = DisplayWidth(std::string_view(line).substr(0, at)) + 1;
    return status.WithContext("line " + std::to_string(number) + ", column " +
                              std::to_string(column));
  }
  return Status::Ok();
}

}  // namespace cairn::cli
