// SPDX-License-Identifier: Apache-2.0
//
// Branches and namespaces on the command line. Every command accepts the text that another one
// prints for a branch: a name, "ns/name" or '#ID', with unprintable characters as \xNN.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cairn/store.h"

namespace cairn::cli {

// A word with this one meaning: escaped as in base/core/text.h, and so is a leading #, which would
// make it an id.
std::string NameText(std::string_view name);
std::string NameLabel(std::string_view ns, std::string_view name);  // "name" or "ns/name".
// The same, or "#id".
std::string BranchLabel(const BranchInfo& info);
std::string IdText(BranchId id);                  // "#17"
std::string LabelWithId(const BranchInfo& info);  // "name (#17)", or "#17".

// How to type an id in a shell: an unquoted # begins a comment, so the rest would never reach the
// command.
inline constexpr const char* kQuoteIds = "an id is quoted in a shell, as '#17'";

// kInvalidArgument if FindBranch would not find a branch of that name.
Status CheckNewName(const std::string& name);
// `word`: a name in the namespace `ns`; without one, in the default namespace, or a BranchLabel.
// kNotFound; kInvalidArgument for "#" without a number behind it, and for a word that may mean
// several branches.
Result<Branch> FindBranch(const Store& store, const std::string& word,
                          const std::optional<std::string>& ns);
// The namespace `word`; if there is none, the one whose NameText is `word`; else `word` itself.
Result<std::string> FindNamespace(const Store& store, const std::string& word);

}  // namespace cairn::cli
