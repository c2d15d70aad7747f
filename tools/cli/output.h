// SPDX-License-Identifier: Apache-2.0
//
// How results are shown: values as JSON, and as text for people. Text from a store (names,
// metadata) may hold anything, so it is made printable before it reaches a terminal.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/text.h"
#include "cairn/store.h"

namespace cairn::cli {

using Json = nlohmann::ordered_json;

// One line, or indented; bytes that are no UTF-8 are replaced.
void PrintJson(const Json& value);
void PrintJsonLine(const Json& value);

Json ToJson(const BranchInfo& info);
Json ToJson(const ModelSpec& spec);
Json ToJson(const ModelInfo& info);
Json ToJson(const ContentSpan& span);
Json ToJson(const SamplerState& state);
Json ToJson(const Status& error);  // {"error": {"code", "message"}}
// The value when the content type is JSON, MessagePack or CBOR, else the bytes in hexadecimal.
Json ToJson(const AppMetadata& metadata);

// At most its first 80 characters, then "..." if it is longer: for messages about texts of any
// length.
std::string Excerpt(std::string_view text);
std::string Hex(std::span<const std::byte> bytes);
std::string TimeText(uint64_t ns);  // "2026-01-31 12:00:00 UTC" of nanoseconds since 1970
std::string SpanText(uint64_t ns);  // "7 d", "12 h", "90 s"; "-" for 0
std::string Plural(uint64_t count, std::string_view noun);  // "1 branch", "2 branches"
std::string_view GeneratorName(GeneratorKind kind);
std::string_view RoleName(PlaneRole role);
std::string_view RetentionName(Retention retention);
inline const std::map<std::string, Evict> kEvicts = {
    {"never", Evict::kNever}, {"kv", Evict::kKv}, {"branches", Evict::kBranches}};
inline const std::map<std::string, Persist> kPersists = {{"always", Persist::kAlways},
                                                         {"turn-end", Persist::kTurnEnd},
                                                         {"reused", Persist::kReused},
                                                         {"tokens-only", Persist::kTokensOnly}};
inline const std::map<std::string, Index> kIndexes = {
    {"prefix", Index::kPrefix}, {"none", Index::kNone}, {"chunks", Index::kChunks}};
// "?" for a value that is none of them.
template <typename Value>
std::string NameIn(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, known] : names) {
    if (known == value) return name;
  }
  return "?";
}
// Planes that are sealed with loss: ", k sealed as int8".
std::string LossText(const LayerGroup& group);
// How its keys are rotated, if that is known: ", k rotated in halves".
std::string RotaryText(const LayerGroup& group);
// Its part of the logical model's group: ", heads 4..8 of 32, replicated"; empty: all.
std::string HeldText(const ModelSpec& spec, const LayerGroup& group);
// A word that a shell reads as `text`: quoted, if it has to be.
std::string ShellWord(std::string_view text);

// Columns as wide as their widest cell; the columns in `right` (numbers) are aligned to the right.
class TextTable {
 public:
  TextTable(std::vector<std::string> header, std::vector<size_t> right);
  void Add(std::vector<std::string> row);
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> right_;
};

// Columns that `text` takes on a terminal, as far as counting UTF-8 characters can show.
size_t DisplayWidth(std::string_view text);

}  // namespace cairn::cli
