// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/names.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/core/check.h"
#include "base/core/text.h"
#include "tools/cli/output.h"

namespace cairn::cli {

namespace {

constexpr std::string_view kDefaultText = "(default)";

Status Bad(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

struct BranchName {
  std::string ns, name;
};

// The name that `word` stands for; in the namespace `ns`, if that is given.
Result<BranchName> ReadName(const std::string& word, const std::optional<std::string>& ns) {
  BranchName read{.ns = ns.value_or(""), .name = {}};
  size_t begin = 0;
  const size_t slash = word.find('/');
  if (!ns.has_value() && slash != std::string::npos) {
    if (word.find('/', slash + 1) != std::string::npos) {
      return Bad(Quoted(Excerpt(word)) +
                 " has several slashes: one stands behind the namespace, write others as \\x2f, or "
                 "say the namespace by --ns");
    }
    if (slash == 0 || slash + 1 == word.size()) {
      return Bad(Quoted(Excerpt(word)) +
                 ": a slash stands between namespace and name; one of a name is \\x2f");
    }
    CAIRN_ASSIGN_OR_RETURN(read.ns, ReadNamespace(word.substr(0, slash)));
    begin = slash + 1;
  }
  CAIRN_ASSIGN_OR_RETURN(read.name, Unescaped(word.substr(begin)));
  return read;
}

Result<Branch> FindById(const Store& store, const std::string& word) {
  uint64_t id = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data() + 1, end, id);
  if (error != std::errc() || stop != end) {
    return Bad("branch " + Quoted(Excerpt(word)) + ": a number must follow the #");
  }
  return store.GetBranch(BranchId{id});
}

// What a user may have meant who typed `word`, of which there is no branch.
std::string Hint(const Store& store, const std::string& word) {
  const bool number = !word.empty() && std::all_of(word.begin(), word.end(),
                                                   [](char c) { return c >= '0' && c <= '9'; });
  if (number) return std::string("; ") + kQuoteIds;
  const bool has_slash = word.find('/') != std::string::npos;
  if (!has_slash || !store.FindBranch(word).ok()) return "";
  return "; the default namespace has " + ShellWord(NameText(word));
}

}  // namespace

Result<std::string> Unescaped(std::string_view word) {
  std::string text;
  for (size_t at = 0; at < word.size(); ++at) {
    if (word[at] != '\\') {
      text += word[at];
      continue;
    }
    uint8_t byte = 0;
    const std::string_view escape = word.substr(at, 4);
    const char* const end = escape.data() + escape.size();
    const bool is_hex = escape.size() == 4 && escape[1] == 'x' &&
                        std::from_chars(end - 2, end, byte, 16).ptr == end;
    if (!is_hex) {
      return Bad("\"" + Excerpt(word) + "\": behind \\ come x and two hexadecimal digits");
    }
    text += static_cast<char>(byte);
    at += 3;
  }
  return text;
}

std::string NameText(std::string_view name) {
  std::string text = Escaped(name);
  if (text.starts_with('#')) text.replace(0, 1, "\\x23");
  for (size_t slash = text.find('/'); slash != std::string::npos; slash = text.find('/', slash)) {
    text.replace(slash, 1, "\\x2f");
  }
  return text;
}

std::string NamespaceText(std::string_view ns) {
  if (ns.empty()) return std::string(kDefaultText);
  return ns == kDefaultText ? "\\x28" + NameText(ns.substr(1)) : NameText(ns);
}

Result<std::string> ReadNamespace(std::string_view word) {
  if (word == kDefaultText) return std::string();
  return Unescaped(word);
}

std::string IdText(BranchId id) { return '#' + std::to_string(static_cast<uint64_t>(id)); }

std::string NameLabel(std::string_view ns, std::string_view name) {
  return ns.empty() ? NameText(name) : NamespaceText(ns) + "/" + NameText(name);
}

std::string BranchLabel(const BranchInfo& info) {
  return info.name.empty() ? IdText(info.id) : NameLabel(info.ns, info.name);
}

std::string LabelWithId(const BranchInfo& info) {
  return info.name.empty() ? IdText(info.id) : BranchLabel(info) + " (" + IdText(info.id) + ")";
}

Result<BranchOptions> ReadNewBranch(const std::string& word, const std::optional<std::string>& ns) {
  if (word.starts_with('#')) {
    return Bad(Quoted(Excerpt(word)) +
               " cannot be a name: # and a number stand for the branch of that id");
  }
  CAIRN_ASSIGN_OR_RETURN(BranchName read, ReadName(word, ns));
  BranchOptions options;
  options.name = std::move(read.name);
  options.ns = std::move(read.ns);
  return options;
}

Result<std::string> ReadNewName(const std::string& word, const std::string& ns) {
  const bool has_ns = word.find('/') != std::string::npos;
  CAIRN_ASSIGN_OR_RETURN(const BranchOptions read,
                         ReadNewBranch(word, has_ns ? std::nullopt : std::optional(ns)));
  if (read.ns == ns) return read.name;
  return Bad(Quoted(Excerpt(word)) + ": the branch is in the namespace " + Quoted(ns) +
             " and stays there; a slash of a name is \\x2f");
}

Result<Branch> FindBranch(const Store& store, const std::string& word,
                          const std::optional<std::string>& ns) {
  if (word.starts_with('#')) return FindById(store, word);
  std::optional<std::string> given = ns;
  if (ns.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(given, ReadNamespace(*ns));
  }
  CAIRN_ASSIGN_OR_RETURN(const BranchName read, ReadName(word, given));
  Result<Branch> found = store.FindBranch(read.name, read.ns);
  if (found.status().code() != StatusCode::kNotFound) return found;
  return Status(StatusCode::kNotFound, std::string(found.status().message()) + Hint(store, word));
}

Result<ModelId> FindModel(const Store& store, const std::string& name) {
  std::optional<ModelId> found;
  for (const ModelInfo& model : store.Models()) {
    if (!name.empty() && model.spec.identity.name != name) continue;
    if (found.has_value()) {
      return Bad(name.empty() ? "several models are registered; --model says which"
                              : "several models are called " + Quoted(name));
    }
    found = model.id;
  }
  if (found.has_value()) return *found;
  return Status(StatusCode::kNotFound,
                name.empty() ? "no model is registered" : "no model " + Quoted(name));
}

}  // namespace cairn::cli
