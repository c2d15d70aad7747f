// SPDX-License-Identifier: Apache-2.0
//
// SetBlendOption: options by the names that they have here, in LMCache and in UCM.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/core/text.h"
#include "cairn/blend.h"

namespace cairn {

namespace {

using Set = bool (*)(BlendOptions*, std::string_view);

template <typename Number>
requires std::is_arithmetic_v<Number>
bool Parse(std::string_view text, Number* number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && rest == end;
}

bool Parse(std::string_view text, bool* on) {
  const bool is_on = text == "on" || text == "true" || text == "True" || text == "1";
  const bool is_off = text == "off" || text == "false" || text == "False" || text == "0";
  if (is_on || is_off) *on = is_on;
  return is_on || is_off;
}

bool Parse(std::string_view text, BranchId* branch) {
  uint64_t number = 0;
  if (!Parse(text, &number)) return false;
  *branch = BranchId{number};
  return true;
}

// What stands before the mark and behind it; none: there is no mark.
std::optional<std::pair<std::string_view, std::string_view>> Split(std::string_view text,
                                                                   char mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return {};
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

// Calls add(part) for each part of the text, until one is refused.
template <typename Add>
bool ForEach(std::string_view text, char mark, const Add& add) {
  while (!text.empty()) {
    const auto parts = Split(text, mark).value_or(std::pair(text, std::string_view()));
    if (!add(parts.first)) return false;
    text = parts.second;
  }
  return true;
}

bool Parse(std::string_view text, PromptRange* range) {
  const auto ends = Split(text, '-');
  return ends && Parse(ends->first, &range->begin) && Parse(ends->second, &range->end);
}

bool Parse(std::string_view text, BlendSource* source) {
  const auto branch = Split(text, ':');
  if (!branch) return false;
  const auto at = Split(branch->second, '@');
  PromptRange range;
  if (!at || !Parse(branch->first, &source->branch) || !Parse(at->first, &range)) return false;
  source->begin = range.begin;
  source->end = range.end;
  return Parse(at->second, &source->at);
}

bool Parse(std::string_view text, std::vector<TokenId>* ids);

template <typename Value>
bool ParseAll(std::string_view text, char mark, std::vector<Value>* values) {
  std::vector<Value> all;
  const bool good = ForEach(text, mark, [&](std::string_view part) {
    Value value{};
    if (!Parse(part, &value)) return false;
    all.push_back(std::move(value));
    return true;
  });
  if (good) *values = std::move(all);
  return good;
}

bool Parse(std::string_view text, std::vector<TokenId>* ids) { return ParseAll(text, ',', ids); }

template <auto kMember>
bool SetValue(BlendOptions* options, std::string_view text) {
  auto value = options->*kMember;
  const bool good = Parse(text, &value);
  if (good) options->*kMember = value;
  return good;
}
template <auto kMember, char kMark>
bool SetValues(BlendOptions* options, std::string_view text) {
  return ParseAll(text, kMark, &(options->*kMember));
}

struct Name {
  std::string_view name;
  std::string_view takes;
  Set set;
};
constexpr std::string_view kCount = "a whole number";
constexpr std::string_view kNumber = "a number";
constexpr Name kNames[] = {
    {"min_tokens", kCount, SetValue<&BlendOptions::min_tokens>},
    {"blend_min_tokens", kCount, SetValue<&BlendOptions::min_tokens>},
    {"separators", "ids as 12,13;14", SetValues<&BlendOptions::separators, ';'>},
    {"recompute_first", kCount, SetValue<&BlendOptions::recompute_first>},
    {"recompute_ratio", kNumber, SetValue<&BlendOptions::recompute_ratio>},
    {"blend_recompute_ratio", kNumber, SetValue<&BlendOptions::recompute_ratio>},
    {"blend_recompute_ratios", kNumber, SetValue<&BlendOptions::recompute_ratio>},
    {"recompute_boundary", kCount, SetValue<&BlendOptions::recompute_boundary>},
    {"chunk_tokens", kCount, SetValue<&BlendOptions::chunk_tokens>},
    {"blend_chunk_size", kCount, SetValue<&BlendOptions::chunk_tokens>},
    {"min_match_ratio", kNumber, SetValue<&BlendOptions::min_match_ratio>},
    {"position_correction", "on or off", SetValue<&BlendOptions::position_correction>},
    {"rope_theta", kNumber, SetValue<&BlendOptions::rope_theta>},
    {"head_dim", kCount, SetValue<&BlendOptions::head_dim>},
    {"recompute", "ranges as 100-116,200-216", SetValues<&BlendOptions::recompute, ','>},
    {"align_tokens", kCount, SetValue<&BlendOptions::align_tokens>},
    {"sources", "pieces as 7:0-512@64", SetValues<&BlendOptions::sources, ','>},
};
// Options of theirs that have no meaning here.
constexpr std::string_view kOfAdapters[] = {"enable_blending", "blend_special_str"};

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

Status SetBlendOption(BlendOptions* options, std::string_view name, std::string_view value) {
  constexpr std::string_view kEnvironment = "LMCACHE_";
  const std::string known =
      name.starts_with(kEnvironment) ? Lower(name.substr(kEnvironment.size())) : std::string(name);
  if (std::find(std::begin(kOfAdapters), std::end(kOfAdapters), known) != std::end(kOfAdapters)) {
    return Status(StatusCode::kInvalidArgument,
                  "option " + Quoted(name) + " is one of adapters; here separators are ids");
  }
  const auto found = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Name& one) { return one.name == known; });
  if (found == std::end(kNames)) {
    return Status(StatusCode::kInvalidArgument, "no option is called " + Quoted(name));
  }
  if (found->set(options, value)) return Status::Ok();
  return Status(
      StatusCode::kInvalidArgument,
      "option " + Quoted(name) + " takes " + std::string(found->takes) + ", not " + Quoted(value));
}

}  // namespace cairn
