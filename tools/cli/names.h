// SPDX-License-Identifier: Apache-2.0
//
// How branches and namespaces are written on the command line. What one command prints for a
// branch, any command takes: a name, "ns/name" or '#ID', and what cannot be shown as it is as \xNN.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cairn/store.h"

namespace cairn::cli {

// As a word that means this text alone: see base/core/text.h, and a # that it begins with, which
// would make an id of it.
std::string NameText(std::string_view name);
std::string NameLabel(std::string_view ns, std::string_view name);  // "name" or "ns/name".
// The same, or "#id".
std::string BranchLabel(const BranchInfo& info);
std::string IdText(BranchId id);                  // "#17"
std::string LabelWithId(const BranchInfo& info);  // "name (#17)", or "#17".

// How to type an id in a shell, which takes an unquoted # for the beginning of a comment: what
// follows it never reaches the command.
inline constexpr const char* kQuoteIds = "an id is quoted in a shell, as '#17'";

// kInvalidArgument if FindBranch would not find a branch of that name.
Status CheckNewName(const std::string& name);
// `word`: a name of the namespace `ns`; without one, of the default namespace, or a BranchLabel.
// kNotFound; kInvalidArgument for "#" without a number behind it, and where several branches may be
// meant.
Result<Branch> FindBranch(const Store& store, const std::string& word,
                          const std::optional<std::string>& ns);
// The one that `word` is or, if there is none, that NameText says as `word`; else `word` itself.
Result<std::string> FindNamespace(const Store& store, const std::string& word);

}  // namespace cairn::cli
